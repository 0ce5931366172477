//! No sequence of changes gives an agent more than its line and its ceiling allow.

use std::collections::BTreeMap;

use nexus_core::authority::Action;
use nexus_core::engine::Settings;
use nexus_core::lifecycle::AgentSpec;
use nexus_core::permission::{Permissions, Preset};
use nexus_core::rights::PermissionChange;
use nexus_core::session::LoadSpec;
use proptest::prelude::*;

use crate::fakes::{ADMIN, World, id};

/// One change somebody with the right to may ask for; agents are named by their number.
#[derive(Clone, Debug)]
enum Change {
    Create {
        parent: Option<usize>,
        preset: &'static str,
    },
    Set {
        agent: usize,
        preset: Option<&'static str>,
        tool: &'static str,
        on: bool,
    },
    Move {
        agent: usize,
        cwd: &'static str,
    },
    Rename {
        agent: usize,
    },
    /// Clones the agent and loads the clone.
    Clone {
        agent: usize,
        preset: Option<&'static str>,
    },
    /// Loads a copy of the agent.
    Load {
        agent: usize,
        preset: Option<&'static str>,
    },
    /// Saves the agent by name, destroys it and loads what was left.
    Return {
        agent: usize,
        preset: Option<&'static str>,
    },
    Destroy {
        agent: usize,
    },
    Restart,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let preset = || prop::sample::select(vec!["trusted", "listed", "sandboxed", "worker"]);
    let other = move || prop::option::of(preset());
    let tool = || prop::sample::select(vec!["echo", "exec", "write_file"]);
    let agent = || 0..6_usize;
    let create = (prop::option::of(agent()), preset())
        .prop_map(|(parent, preset)| Change::Create { parent, preset });
    let set = (agent(), other(), tool(), any::<bool>())
        .prop_map(|(agent, preset, tool, on)| Change::Set { agent, preset, tool, on });
    let moved = (agent(), prop::sample::select(vec!["/", "/usr", "/usr/bin", "/etc"]))
        .prop_map(|(agent, cwd)| Change::Move { agent, cwd });
    let change = prop_oneof![
        4 => create,
        3 => set,
        2 => moved,
        1 => agent().prop_map(|agent| Change::Rename { agent }),
        1 => (agent(), other()).prop_map(|(agent, preset)| Change::Clone { agent, preset }),
        1 => (agent(), other()).prop_map(|(agent, preset)| Change::Load { agent, preset }),
        1 => (agent(), other()).prop_map(|(agent, preset)| Change::Return { agent, preset }),
        1 => agent().prop_map(|agent| Change::Destroy { agent }),
        1 => Just(Change::Restart),
    ];
    prop::collection::vec(change, 1..32)
}

/// Adds a preset for trusted agents that may not read everywhere nor use every tool, so that their children's ceilings
/// have something to be exceeded.
fn listed(settings: &mut Settings) {
    let preset = Preset {
        name: "listed".into(),
        allowed_paths: Some(["/usr".into()].into()),
        disabled_tools: ["exec".into()].into(),
        ..Preset::built_in("trusted").unwrap()
    };
    settings.cwd = "/usr".into();
    settings.presets.insert("listed".into(), preset);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn no_sequence_of_changes_lifts_a_child_above_its_line(changes in changes()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(Line::new().hold(changes));
    }
}

/// The agents there are, each with the ceiling it was made with.
struct Line {
    agents: BTreeMap<String, Option<Permissions>>,
    made: usize,
}

impl Line {
    fn new() -> Self {
        Self { agents: BTreeMap::new(), made: 0 }
    }

    async fn hold(mut self, changes: Vec<Change>) {
        let mut world = World::with(listed);
        for change in changes {
            match change {
                Change::Restart => world = world.restarted(listed),
                change => self.change(&world, change).await,
            }
            self.check(&world).await;
        }
    }

    /// Makes a change. Whether it is refused or taken, what follows must hold.
    async fn change(&mut self, world: &World, change: Change) {
        let engine = &world.engine;
        match change {
            Change::Create { parent, preset } => {
                let name = self.fresh();
                let parent = parent.and_then(|at| self.name(at)).map(|name| id(&name));
                let spec = AgentSpec {
                    name: Some(name.clone()),
                    preset: Some(preset.into()),
                    parent,
                    ..AgentSpec::default()
                };
                if let Ok(agent) = engine.agents.create(&ADMIN, spec).await {
                    self.agents.insert(name, agent.look().ceiling.as_deref().cloned());
                }
            }
            Change::Set { agent, preset, tool, on } => {
                let Some(name) = self.name(agent) else { return };
                let agent = engine.agents.find(&ADMIN, &id(&name), Action::Manage).await.unwrap();
                let tools =
                    |wanted: bool| if on == wanted { vec![tool.to_string()] } else { Vec::new() };
                let change = PermissionChange {
                    preset: preset.map(Into::into),
                    enable_tools: tools(true),
                    disable_tools: tools(false),
                    hand: Default::default(),
                };
                let _ = engine.permits.set(&ADMIN, &agent, change).await;
            }
            Change::Move { agent, cwd } => {
                let Some(name) = self.name(agent) else { return };
                let agent = engine.agents.find(&ADMIN, &id(&name), Action::Manage).await.unwrap();
                let _ = engine.tuning.set_cwd(&ADMIN, &agent, cwd.into(), None).await;
            }
            Change::Rename { agent } => {
                let (Some(name), to) = (self.name(agent), self.fresh()) else { return };
                engine.sessions.rename(&ADMIN, &id(&name), &id(&to)).await.unwrap();
                let ceiling = self.agents.remove(&name).unwrap();
                self.agents.insert(to, ceiling);
            }
            Change::Clone { agent, preset } => {
                let (Some(name), to) = (self.name(agent), self.fresh()) else { return };
                engine.sessions.copy(&ADMIN, &id(&name), &id(&to)).await.unwrap();
                self.load(world, &to, &to, preset, &name).await;
            }
            Change::Load { agent, preset } => {
                let (Some(name), to) = (self.name(agent), self.fresh()) else { return };
                self.load(world, &name, &to, preset, &name).await;
            }
            Change::Return { agent, preset } => {
                let Some(name) = self.name(agent) else { return };
                engine.sessions.save(&ADMIN, &id(&name), &id(&name)).await.unwrap();
                let gone = engine.agents.destroy(&ADMIN, &id(&name)).await.unwrap();
                self.load(world, &name, &name, preset, &name).await;
                for other in gone.iter().filter(|other| other.as_str() != name) {
                    self.agents.remove(other.as_str());
                }
                if world.engine.agents.live(&id(&name)).is_none() {
                    self.agents.remove(&name);
                }
            }
            Change::Destroy { agent } => {
                let Some(name) = self.name(agent) else { return };
                for gone in engine.agents.destroy(&ADMIN, &id(&name)).await.unwrap() {
                    self.agents.remove(gone.as_str());
                }
            }
            Change::Restart => {}
        }
    }

    async fn load(
        &mut self,
        world: &World,
        session: &str,
        to: &str,
        preset: Option<&str>,
        like: &str,
    ) {
        let spec = LoadSpec {
            session: id(session),
            agent: Some(id(to)),
            preset: preset.map(Into::into),
            model: None,
            hand: Default::default(),
        };
        if world.engine.sessions.load(&ADMIN, spec).await.is_ok() {
            self.agents.insert(to.into(), self.agents[like].clone());
        }
    }

    async fn check(&self, world: &World) {
        for (name, ceiling) in &self.agents {
            let agent = world.engine.agents.find(&ADMIN, &id(name), Action::Read).await.unwrap();
            let now = agent.snapshot();
            assert_eq!(
                now.ceiling.as_deref(),
                ceiling.as_ref(),
                "the ceiling of {name} is what it was"
            );
            if let Some(ceiling) = ceiling {
                assert_eq!(now.settings.permissions.within(ceiling), Ok(()), "{name}");
            }
            let effective = world.engine.permits.effective(&now).await.unwrap();
            let mut above = now.parent.clone();
            while let Some(parent) = above {
                let parent = world.engine.agents.find(&ADMIN, &parent, Action::Read).await.unwrap();
                let within = effective.within(&parent.look().settings.permissions);
                assert_eq!(within, Ok(()), "{name} under {}", parent.id());
                above = parent.look().parent.clone();
            }
        }
    }

    fn name(&self, at: usize) -> Option<String> {
        self.agents.keys().nth(at % self.agents.len().max(1)).cloned()
    }

    fn fresh(&mut self) -> String {
        self.made += 1;
        format!("a{}", self.made)
    }
}
