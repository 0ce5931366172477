//! The typed interface in the process: the same pipeline as for every other caller, and calls that outlive theirs.

mod streams;

use std::sync::{Arc, Mutex};

use nexus_core::Requester;
use nexus_protocol::agent::CreateAgentParams;
use nexus_protocol::conversation::GetMessagesParams;
use nexus_protocol::params::{NoParams, NonBlank};
use nexus_protocol::{Api as _, CallError, RpcError, method};
use nexus_server::auth::AgentTokens;
use nexus_server::calls::{CallLog, EndedCall};
use nexus_server::dispatcher::{Dispatcher, Table};
use nexus_server::{DirectAgentApi, Services};
use nexus_testkit::{Gate, Reply};
use nexus3::wiring::{Logs, Wired};
use serde_json::json;

use crate::harness::{Setup, World, eventually, wire};

/// What was logged of calls: their names and the codes of their errors.
#[derive(Default)]
struct Lines(Mutex<Vec<(String, Option<i32>)>>);

impl CallLog for Lines {
    fn call(&self, call: &EndedCall<'_>) {
        self.0.lock().unwrap().push((call.method.into(), call.error));
    }
}

struct Process {
    world: Arc<World>,
    wired: Wired,
    lines: Arc<Lines>,
    api: DirectAgentApi,
}

async fn start() -> Process {
    start_with(Setup::new()).await
}

async fn start_with(setup: Setup) -> Process {
    let world = setup.world().await;
    let lines = Arc::new(Lines::default());
    let logs = Logs { calls: lines.clone(), ..Logs::none() };
    let wired = wire::wired(&world, logs).await;
    let api = DirectAgentApi::new(wired.dispatcher.clone(), Requester::Administrator);
    Process { world, wired, lines, api }
}

impl Process {
    async fn make(&self, name: &str) {
        let params = CreateAgentParams { agent_id: Some(name.into()), ..Default::default() };
        self.api.create_agent(params).await.unwrap();
    }

    /// Begins a call and drops it when the model is asked.
    async fn drop_when_asked<T>(&self, asked: usize, call: impl Future<Output = T>) {
        tokio::select! {
            biased;
            () = self.world.model.wait_for_requests(asked) => {}
            _ = call => panic!("the call is over already"),
        }
    }

    /// How the first call of a method ended, once it has.
    async fn ended(&self, method: &str) -> Option<i32> {
        let of = || {
            let lines = self.lines.0.lock().unwrap();
            lines.iter().find(|(name, _)| name == method).map(|(_, code)| *code)
        };
        eventually("its line", async || of().is_some()).await;
        of().unwrap()
    }

    async fn said(&self, agent: &str) -> Vec<String> {
        let page = GetMessagesParams::default();
        let messages = self.api.for_agent(agent).get_messages(page).await.unwrap().messages;
        messages.into_iter().map(|message| message.content).collect()
    }

    async fn finish(self) {
        self.wired.engine.turns.stop(std::time::Duration::ZERO).await;
        self.wired.engine.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_send_that_is_dropped_goes_on() {
    let process = start().await;
    process.make("a").await;
    let gate = Gate::new();
    process.world.model.push(Reply::text("to the end").held_by(&gate));
    process.drop_when_asked(1, process.api.for_agent("a").send("x")).await;
    gate.release();
    eventually("the whole turn", async || process.said("a").await == ["x", "to the end"]).await;
    assert_eq!(process.ended("send").await, None);
    process.finish().await;
}

#[tokio::test]
async fn an_agent_that_nobody_waits_for_is_made() {
    let process = start().await;
    let gate = Gate::new();
    process.world.model.push(Reply::text("Hello").held_by(&gate));
    let params = CreateAgentParams {
        agent_id: Some("a".into()),
        initial_message: NonBlank::new("Hi"),
        wait_for_initial_response: Some(true),
        ..Default::default()
    };
    process.drop_when_asked(1, process.api.create_agent(params)).await;
    gate.release();
    eventually("the whole turn", async || process.said("a").await == ["Hi", "Hello"]).await;
    process.finish().await;
}

#[tokio::test]
async fn a_compaction_that_is_dropped_is_whole() {
    let setup = Setup::new().config(json!({"compaction": {"recent_preserve_ratio": 0.01}}));
    let small = json!({"models": {"scripted": {"context_window": 2048}}});
    let process = start_with(setup.provider_keys(small)).await;
    process.make("a").await;
    for text in ["one", "two", "three"] {
        process.api.for_agent("a").send(text).await.unwrap();
    }
    let gate = Gate::new();
    process.world.model.push(Reply::text("SUMMARY").held_by(&gate));
    process.drop_when_asked(4, process.api.for_agent("a").compact()).await;
    gate.release();
    assert_eq!(process.ended("compact").await, None);
    // Memory and disk agree: the next turn is appended behind it.
    process.api.for_agent("a").send("and on").await.unwrap();
    let said = process.said("a").await;
    assert_eq!(said[said.len() - 2..], ["and on", "Hello from the scripted model."]);
    process.finish().await;
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_unknown_as_elsewhere() {
    let process = start().await;
    let Err(CallError::Rpc(typed)) = process.api.for_agent("nobody").get_context().await else {
        panic!("there is nobody");
    };
    let (connection, _) = nexus_server::transport::memory::MemoryConnection::open(
        process.wired.dispatcher.clone(),
        Requester::Administrator,
    );
    let message =
        br#"{"jsonrpc":"2.0","method":"get_context","params":{"agent_id":"nobody"},"id":1}"#;
    let answer = connection.request(message.to_vec()).await.unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(serde_json::to_value(&typed).unwrap(), answer["error"]);
    let line = ("get_context".to_string(), Some(-32602));
    assert_eq!(*process.lines.0.lock().unwrap(), [line.clone(), line], "one line each");
    process.finish().await;
}

method! {
    /// Fails as nobody foresaw.
    Panics = "test.panics", Server Control, NoParams => bool
}

#[tokio::test]
async fn a_panic_is_the_error_of_its_call() {
    let process = start().await;
    let mut table = Table::default();
    table.on::<Panics, _, _>(async |_, NoParams {}| -> Result<bool, RpcError> {
        panic!("on purpose")
    });
    let services = Services::new(
        process.wired.engine.clone(),
        AgentTokens::new().unwrap(),
        process.lines.clone(),
    );
    let dispatcher = Arc::new(Dispatcher::new(table, services));
    let api = DirectAgentApi::new(dispatcher, Requester::Administrator);
    let failed = api.call::<Panics>(&nexus_protocol::Target::Server, NoParams {}).await;
    assert!(matches!(failed, Err(CallError::Rpc(error)) if error.code == -32603));
    assert_eq!(*process.lines.0.lock().unwrap(), [("test.panics".to_string(), Some(-32603))]);
    process.finish().await;
}
