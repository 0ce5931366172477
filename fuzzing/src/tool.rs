//! A model that calls tools with what it likes: the turn ends, and nothing beside the agent's files changes.

use std::fs;

use nexus_core::Requester;
use nexus_protocol::Api as _;
use nexus_protocol::agent::CreateAgentParams;
use nexus_server::DirectAgentApi;
use nexus_testkit::Reply;
use serde_json::json;
use tokio::time::timeout;

use crate::house::{HOUSE, HUNG};
use crate::must;

pub const DIFFS: &[&[u8]] = &[
    b"--- a/note.txt\n+++ b/note.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+zwei\n three\n",
    b"--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n--- a/note.txt\n+++ /dev/null\n@@ -1,3 +0,0 @@\n-one\n-two\n-three\n",
    b"--- a/../beside.txt\n+++ b/../beside.txt\n@@ -1 +1 @@\n-beside\n+changed\n",
];

pub fn patch(bytes: &[u8]) {
    let _alone = HOUSE.alone_with_model();
    let diff = String::from_utf8_lossy(bytes).into_owned();
    let (dir, beside) = (HOUSE.work.join("patched"), HOUSE.work.join("beside.txt"));
    must(fs::create_dir_all(&dir));
    must(fs::write(dir.join("note.txt"), "one\ntwo\nthree\n"));
    must(fs::write(&beside, "beside\n"));
    HOUSE.runtime.block_on(async {
        let api = DirectAgentApi::new(HOUSE.wired.dispatcher.clone(), Requester::Administrator);
        let params = CreateAgentParams {
            preset: Some("sandboxed".into()),
            cwd: Some(dir.to_string_lossy().into_owned()),
            ..Default::default()
        };
        let agent = must(api.create_agent(params).await).agent_id;
        HOUSE.model.push(Reply::tool_call("patch", json!({"diff": diff})));
        HOUSE.model.push(Reply::text("done"));
        must(must(timeout(HUNG, api.for_agent(&agent).send("go")).await));
        must(api.destroy_agent(agent).await);
    });
    assert_eq!(must(fs::read_to_string(&beside)), "beside\n");
}
