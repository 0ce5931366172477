//! Processes of a server that are one agent's each, and end with it.

use std::sync::Arc;

use nexus_core::tool::ServerUser;

use crate::lock;
use crate::seat::{Seat, state_dir};
use crate::server::Server;
use crate::state::Phase;

impl Server {
    /// What serves an agent: this, or the process that is the agent's own.
    pub fn serving(self: &Arc<Self>, user: ServerUser<'_>) -> Result<Arc<Self>, String> {
        let own = lock(&self.apart).get(&user.agent.number()).cloned();
        match own {
            Some(own) => {
                own.bind(user);
                Ok(own)
            }
            None if self.entry.share => Ok(self.clone()),
            None => self.set_apart(user),
        }
    }

    /// The agent's own process from now on, though others may share one.
    pub fn set_apart(self: &Arc<Self>, user: ServerUser<'_>) -> Result<Arc<Self>, String> {
        let (number, going) = (user.agent.number(), user.agent.going());
        let own = {
            let mut apart = lock(&self.apart);
            if let Some(own) = apart.get(&number) {
                own.bind(user);
                return Ok(own.clone());
            }
            // Whoever ends it later looks here, and finds what is put here before.
            if going.is_cancelled() {
                return Err("its agent is not here any more".into());
            }
            let own = self.seated(Seat::new(&self.entry.name, user.permissions));
            apart.insert(number, own.clone());
            own
        };
        let (base, ended) = (Arc::downgrade(self), own.stop.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = going.cancelled() => {}
                () = ended.cancelled() => return,
            }
            if let Some(base) = base.upgrade() {
                base.end_apart(number).await;
            }
        });
        Ok(own)
    }

    /// How it is for an agent, without that anything is begun.
    pub fn seen_by(self: &Arc<Self>, number: u64) -> Arc<Self> {
        lock(&self.apart).get(&number).unwrap_or(self).clone()
    }

    /// Ends the process that is an agent's own, and waits for that. False when there is none.
    pub async fn end_apart(&self, number: u64) -> bool {
        let Some(own) = lock(&self.apart).remove(&number) else { return false };
        own.end_seat().await;
        if lock(&self.apart).is_empty()
            && let Some(emptied) = &self.emptied
        {
            emptied();
        }
        true
    }

    /// Ends all of them.
    pub async fn end_all_apart(&self) {
        let numbers: Vec<u64> = lock(&self.apart).keys().copied().collect();
        for number in numbers {
            self.end_apart(number).await;
        }
    }

    /// A process that was started with more than the agent may do by now is ended; whoever needs it has another started.
    fn bind(&self, user: ServerUser<'_>) {
        let Some(seat) = &self.seat else { return };
        if seat.bind(user.permissions) {
            return;
        }
        let mut state = lock(&self.state);
        if let Phase::Ready(connection) = &state.phase {
            connection.end.cancel();
            state.phase = Phase::Off;
        }
    }

    async fn end_seat(&self) {
        self.stop.cancel();
        let (connection, started) = match &lock(&self.state).phase {
            Phase::Ready(connection) => (Some(connection.clone()), None),
            Phase::Starting(started) => (None, Some(started.clone())),
            Phase::Off => (None, None),
        };
        if let Some(connection) = connection {
            let _ = connection.obituary.subscribe().wait_for(Option::is_some).await;
        }
        if let Some(mut started) = started {
            while started.changed().await.is_ok() {}
        }
        let Some(seat) = &self.seat else { return };
        let dir = state_dir(&self.ground.home).join(&seat.dir);
        // There is none where nothing was started.
        let _ = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(dir)).await;
    }
}
