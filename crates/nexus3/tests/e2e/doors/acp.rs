//! `nexus3 acp`: agents in editors that speak the Agent Client Protocol.

mod asking;
mod beneath;
mod borders;
mod clients;
mod editor;
mod ending;
mod golden;
mod journey;
mod prompts;
mod servers;
mod sessions;
mod settings;
