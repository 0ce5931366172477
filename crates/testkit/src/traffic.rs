//! How many requests the scripted model takes: so many at once, and none for a while.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a client is told to wait that comes when too many are served.
const RETRY_AFTER_SECONDS: &str = "1";

/// Who is served and who is told to come again.
#[derive(Default)]
pub(crate) struct Traffic {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    served: usize,
    most_served: usize,
    at_once: Option<usize>,
    /// Requests still to be refused, whoever is served.
    storm: usize,
    storm_retry_after: String,
    refused: usize,
}

impl Traffic {
    pub fn at_once(&self, n: usize) {
        self.lock().at_once = Some(n);
    }

    pub fn storm(&self, count: usize, retry_after: String) {
        let mut state = self.lock();
        state.storm = count;
        state.storm_retry_after = retry_after;
    }

    pub fn refused(&self) -> usize {
        self.lock().refused
    }

    pub fn most_served(&self) -> usize {
        self.lock().most_served
    }

    /// A place until it is dropped, or the time after which to come again.
    pub fn enter(self: &Arc<Self>) -> Result<Place, String> {
        let mut state = self.lock();
        if state.storm > 0 {
            state.storm -= 1;
            state.refused += 1;
            return Err(state.storm_retry_after.clone());
        }
        if state.at_once.is_some_and(|most| state.served >= most) {
            state.refused += 1;
            return Err(RETRY_AFTER_SECONDS.to_owned());
        }
        state.served += 1;
        state.most_served = state.most_served.max(state.served);
        Ok(Place(self.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request that is being served.
pub(crate) struct Place(Arc<Traffic>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.lock().served -= 1;
    }
}
