//! An editor, by hand: the program on pipes, and where it finds its agents.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::harness::{Server, Setup, World, within};

/// Where agents are: in the program itself, or in a server that runs.
pub struct Desk {
    pub world: Arc<World>,
    pub server: Option<Server>,
}

impl Desk {
    /// One of each.
    pub async fn both() -> [Self; 2] {
        [Self::embedded().await, Self::bridged().await]
    }

    pub async fn embedded() -> Self {
        Self { world: Setup::new().world().await, server: None }
    }

    pub async fn bridged() -> Self {
        let setup = Setup::new().config(json!({"permissions": {"approvals": "ask"}}));
        let server = setup.start().await;
        Self { world: server.world.clone(), server: Some(server) }
    }

    /// An editor that has said hello.
    pub async fn editor(&self) -> Editor {
        self.editor_with(json!({})).await
    }

    pub async fn editor_with(&self, capabilities: Value) -> Editor {
        let mut editor = self.silent(&[]);
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        let answer = editor.ok("initialize", params).await;
        assert_eq!(answer["protocolVersion"], 1, "{answer}");
        editor
    }

    /// One that has said nothing yet.
    pub fn silent(&self, arguments: &[&str]) -> Editor {
        let place: &[&str] = if self.server.is_some() { &[] } else { &["--embedded"] };
        let mut command = self.world.command([&["acp"], place, arguments].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let cwd = self.world.work().to_str().unwrap().to_owned();
        let (told, wire) = (VecDeque::new(), Vec::new());
        Editor { child, input, output, cwd, id_last: 0, told, wire }
    }
}

pub struct Editor {
    pub child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    pub cwd: String,
    id_last: u64,
    /// What came while something else was waited for.
    told: VecDeque<Value>,
    /// Every message, as it was said (`> …`) and heard (`< …`).
    pub wire: Vec<String>,
}

impl Editor {
    pub async fn write(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).await.unwrap();
    }

    pub async fn say(&mut self, message: Value) {
        self.wire.push(format!("> {message}"));
        self.write(format!("{message}\n").as_bytes()).await;
    }

    pub async fn notify(&mut self, method: &str, params: Value) {
        self.say(json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    /// Asks, and does not wait.
    pub async fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.id_last += 1;
        let id = self.id_last;
        self.say(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    async fn read(&mut self) -> Value {
        let mut line = String::new();
        within("a message", self.output.read_line(&mut line)).await.unwrap();
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"));
        self.wire.push(format!("< {}", line.trim_end_matches('\n')));
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        message
    }

    /// The first message of which this holds; others stay to be read.
    pub async fn find(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.told.iter().position(&is_wanted) {
            return self.told.remove(at).unwrap();
        }
        loop {
            let message = self.read().await;
            if is_wanted(&message) {
                return message;
            }
            self.told.push_back(message);
        }
    }

    /// The answer to a request.
    pub async fn answer(&mut self, id: u64) -> Value {
        self.find(|message| message["id"] == id && message.get("method").is_none()).await
    }

    /// What we are asked.
    pub async fn asked(&mut self, method: &str) -> Value {
        self.find(|message| message["method"] == method && message.get("id").is_some()).await
    }

    pub async fn reply(&mut self, asked: &Value, result: Value) {
        self.say(json!({"jsonrpc": "2.0", "id": asked["id"], "result": result})).await;
    }

    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        self.answer(id).await
    }

    pub async fn ok(&mut self, method: &str, params: Value) -> Value {
        let answer = self.call(method, params).await;
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The code and the sentence.
    pub async fn refused(&mut self, method: &str, params: Value) -> (i64, String) {
        let answer = self.call(method, params).await;
        let error = &answer["error"];
        (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
    }

    /// A new session in the world's directory.
    pub async fn session(&mut self) -> String {
        let params = json!({"cwd": self.cwd, "mcpServers": []});
        let opened = self.ok("session/new", params).await;
        opened["sessionId"].as_str().unwrap().to_owned()
    }

    pub async fn begin(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.ask("session/prompt", json!({"sessionId": session, "prompt": prompt})).await
    }

    /// Why the turn stopped.
    pub async fn stopped(&mut self, id: u64) -> String {
        let answer = self.answer(id).await;
        let reason = answer["result"]["stopReason"].as_str();
        reason.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    pub async fn prompt(&mut self, session: &str, text: &str) -> String {
        let id = self.begin(session, text).await;
        self.stopped(id).await
    }

    /// What came until now, taken away.
    pub fn notifications(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.told).into()
    }

    /// The updates that came until now, taken away.
    pub fn updates(&mut self) -> Vec<Value> {
        let told = std::mem::take(&mut self.told);
        let update = |mut message: Value| match message["method"] == "session/update" {
            true => message["params"]["update"].take(),
            false => panic!("{message}"),
        };
        told.into_iter().map(update).collect()
    }

    /// What was said in them.
    pub fn said(&mut self) -> String {
        text(&self.updates(), "agent_message_chunk")
    }

    /// The next update of a kind.
    pub async fn update(&mut self, kind: &str) -> Value {
        let is_one = |message: &Value| message["params"]["update"]["sessionUpdate"] == kind;
        let mut message = self.find(is_one).await;
        message["params"]["update"].take()
    }

    /// Hangs up, and returns how the process ended.
    pub async fn finish(mut self) -> Option<i32> {
        self.input = None;
        let status = within("the end", self.child.wait()).await.unwrap();
        status.code()
    }

    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// The text of all chunks of a kind.
pub fn text(updates: &[Value], kind: &str) -> String {
    let of_kind = updates.iter().filter(|update| update["sessionUpdate"] == kind);
    of_kind.map(|update| update["content"]["text"].as_str().unwrap()).collect()
}
