//! Those whom a call asks while it runs.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::approval::{Announce, Approvals, Matter, Question};
use crate::inquiry::{Asking, NO_LEAVE, People, Reply, Sample, Sampled, Wants};
use crate::name::TurnId;
use crate::sampling::Sampler;

/// Whoever answers what the call's agent asks.
pub(super) struct Approvers {
    pub approvals: Arc<Approvals>,
    pub sampler: Arc<Sampler>,
    pub agent: Agent,
    pub turn: TurnId,
    pub tool: String,
    pub arguments: Value,
    pub cancel: CancellationToken,
    pub announce: Announce,
    /// Questions that are open.
    pub open: watch::Sender<usize>,
}

#[async_trait]
impl People for Approvers {
    async fn ask(&self, asking: Asking) -> Reply {
        let patience = match self.approvals.patience(self.announce.person()) {
            Ok(patience) => patience,
            Err(why) => {
                tracing::info!(server = asking.inquiry.server, why, "an MCP server asked in vain");
                return Reply::Decline;
            }
        };
        let server = &asking.inquiry.server;
        let reason = match &asking.inquiry.wants {
            Wants::Form(_) => format!("answer a question of the MCP server {server}"),
            Wants::Visit { host, .. } => {
                format!("open a page of {host} for the MCP server {server}")
            }
            Wants::Sampling => format!("let the MCP server {server} ask the agent's model"),
        };
        let question = Question {
            tool: self.tool.clone(),
            arguments: self.arguments.clone(),
            reason,
            turn: self.turn.clone(),
            patience,
            matter: Matter::Server(asking),
        };
        let _open = Open::new(&self.open);
        let asked = self.approvals.inquire(&self.agent, question, &self.cancel, &self.announce);
        asked.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a question of an MCP server could not be stored");
            Reply::Cancel
        })
    }

    async fn sample(&self, asking: Asking, sample: Sample) -> Result<Sampled, String> {
        match self.ask(asking).await {
            Reply::Accept(_) => self.sampler.sample(&self.agent, sample, &self.cancel).await,
            Reply::Decline | Reply::Cancel => Err(NO_LEAVE.into()),
        }
    }
}

/// A question that somebody may answer.
struct Open<'a>(&'a watch::Sender<usize>);

impl<'a> Open<'a> {
    fn new(open: &'a watch::Sender<usize>) -> Self {
        open.send_modify(|open| *open += 1);
        Self(open)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

/// Returns when so much time has passed, without that in which somebody was asked.
pub(super) async fn passed(mut time: Duration, mut open: watch::Receiver<usize>) {
    loop {
        let began = Instant::now();
        tokio::select! {
            () = tokio::time::sleep(time) => return,
            Ok(_) = open.wait_for(|open| *open > 0) => {}
        }
        time = time.saturating_sub(began.elapsed());
        // Whoever asks is gone: then no more is asked.
        if open.wait_for(|open| *open == 0).await.is_err() {
            return tokio::time::sleep(time).await;
        }
    }
}
