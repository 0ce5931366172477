//! How much an agent's every call carries before anybody has said a word.

use serde_json::Value;

use crate::table::{Row, Table};
use crate::turns::recorded_call;

pub async fn run(table: &mut Table) -> anyhow::Result<()> {
    let call = recorded_call().await?;
    let messages = call["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let system = messages.iter().filter(|message| message["role"] == "system");
    let system: usize =
        system.filter_map(|message| message["content"].as_str()).map(str::len).sum();
    let (tools, tools_bytes) = match &call["tools"] {
        Value::Array(tools) => (tools.len(), call["tools"].to_string().len()),
        _ => (0, 0),
    };
    let bytes = system + tools_bytes;
    table.add(
        Row::new("default system prompt with every tool described")
            .measured(format!("{bytes} bytes, {tools} tools in {tools_bytes}"))
            .reach("< 6000 bytes", bytes < 6000),
    );
    Ok(())
}
