//! The way to the server: every call of the terminal passes here, and can be seen.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use nexus_client::{Api, CallError, ChannelClient, NexusClient, Target, UnixClient, WatchStream};
use nexus_protocol::Method;
use nexus_protocol::watch::WatchParams;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

/// One server, by whichever way it is reached.
pub struct Link {
    wire: Wire,
    /// As it is named to a person, and for `/curl`.
    pub url: Option<String>,
    /// Whether each call is told to whoever shows it.
    is_traced: AtomicBool,
    traced: UnboundedSender<Traced>,
    last: Mutex<Option<Call>>,
}

enum Wire {
    Unix(Box<UnixClient>),
    Http(Box<NexusClient>),
    /// To a server that this terminal started.
    Channel(ChannelClient),
}

/// A call that was made, for `/curl`.
#[derive(Clone, Debug)]
pub struct Call {
    pub target: Target,
    pub method: String,
    pub params: Value,
}

/// A call and what came of it, for `/trace`.
#[derive(Debug)]
pub struct Traced {
    pub call: Call,
    pub answer: String,
}

impl Link {
    pub fn unix(client: UnixClient, url: Option<String>, traced: UnboundedSender<Traced>) -> Self {
        Self::new(Wire::Unix(Box::new(client)), url, traced)
    }

    pub fn http(client: NexusClient, url: String, traced: UnboundedSender<Traced>) -> Self {
        Self::new(Wire::Http(Box::new(client)), Some(url), traced)
    }

    /// What its address is, it says itself.
    pub fn channel(client: ChannelClient, traced: UnboundedSender<Traced>) -> Self {
        Self::new(Wire::Channel(client), None, traced)
    }

    fn new(wire: Wire, url: Option<String>, traced: UnboundedSender<Traced>) -> Self {
        Self { wire, url, is_traced: AtomicBool::new(false), traced, last: Mutex::new(None) }
    }

    pub async fn watch(&self, params: WatchParams) -> Result<WatchStream, CallError> {
        match &self.wire {
            Wire::Unix(client) => client.watch(params).await,
            Wire::Http(client) => client.watch(params).await,
            Wire::Channel(client) => client.watch(params).await,
        }
    }

    /// Calls a method for the person, who may ask for it as a line for curl.
    pub async fn ask<M: Method>(
        &self,
        target: &Target,
        params: M::Params,
    ) -> Result<M::Result, CallError> {
        let params_said = serde_json::to_value(&params).unwrap_or_default();
        self.keep(Call { target: target.clone(), method: M::NAME.into(), params: params_said });
        self.call::<M>(target, params).await
    }

    /// Calls a method known by name only, for the person.
    pub async fn value(
        &self,
        target: &Target,
        method: &str,
        params: Value,
    ) -> Result<Value, CallError> {
        let answer = match &self.wire {
            Wire::Unix(client) => client.call_value(target, method, &params).await,
            Wire::Http(client) => client.call_value(target, method, &params).await,
            Wire::Channel(client) => client.call_value(target, method, &params).await,
        };
        let call = Call { target: target.clone(), method: method.into(), params };
        self.keep(call.clone());
        self.note(call, &answer);
        answer
    }

    /// Whether calls are told.
    pub fn trace(&self, is_on: bool) {
        self.is_traced.store(is_on, Ordering::Relaxed);
    }

    fn keep(&self, call: Call) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
    }

    /// The call that was made last for the person. What the terminal asks for itself is not among them.
    pub fn last(&self) -> Option<Call> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells of the call. What came of it is written out for those only who want to see it: it may be large.
    fn note<R: Serialize>(&self, call: Call, answer: &Result<R, CallError>) {
        if self.is_traced.load(Ordering::Relaxed) {
            let answer = match answer {
                Ok(result) => serde_json::to_string(result).unwrap_or_default(),
                Err(error) => error.to_string(),
            };
            // Nobody shows it any more when the terminal is about to end.
            let _ = self.traced.send(Traced { call, answer });
        }
    }
}

impl Api for Link {
    async fn call<M: Method>(
        &self,
        target: &Target,
        params: M::Params,
    ) -> Result<M::Result, CallError> {
        let said = serde_json::to_value(&params).unwrap_or_default();
        let answer = match &self.wire {
            Wire::Unix(client) => client.call::<M>(target, params).await,
            Wire::Http(client) => client.call::<M>(target, params).await,
            Wire::Channel(client) => client.call::<M>(target, params).await,
        };
        self.note(Call { target: target.clone(), method: M::NAME.into(), params: said }, &answer);
        answer
    }
}
