//! Who is told what, and where.

use serde::Serialize;
use serde_json::{Value, json};

use super::{Door, Facts};

/// What one client needs for one door.
#[derive(Serialize)]
pub struct Entry {
    /// By which it is asked for.
    pub client: &'static str,
    pub title: &'static str,
    pub door: Door,
    /// The command that makes the key, where one is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The environment variable that the client finds the key in.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub variable: &'static str,
    /// Where the lines go.
    pub place: &'static str,
    /// What they are written in: `json`, `lua`, `sh`, `python`, `js` or `yaml`.
    pub form: &'static str,
    pub lines: String,
}

/// Where clients find their key, unless they have a name of their own for it.
const KEY: &str = "NEXUS3_KEY";

/// An agent for each conversation. The key's own agent has to be allowed to make it.
const MODEL: &str = "new:sandboxed";

/// All of them; those of one client stand together.
pub fn all(facts: &Facts) -> Vec<Entry> {
    let Facts { url, .. } = facts;
    let mcp = format!("{url}/mcp");
    let bearer = |variable: &str| json!({"Authorization": format!("Bearer {variable}")});
    vec![
        acp("zed", "Zed", "In settings.json (zed: open settings file)", {
            let mut agent = facts.started(&["acp"]);
            agent["type"] = "custom".into();
            json_lines(&json!({"agent_servers": {"nexus3": agent}}))
        }),
        acp("jetbrains", "The IDEs of JetBrains", "In ~/.jetbrains/acp.json (AI Chat, Add Custom Agent)", {
            json_lines(&json!({"agent_servers": {"nexus3": facts.started(&["acp"])}}))
        }),
        Entry { form: "lua", ..acp("neovim", "Neovim with CodeCompanion", "In the plugin's setup", codecompanion(facts)) },
        Entry { form: "lua", ..acp("neovim", "Neovim with avante.nvim", "In the plugin's setup", avante(facts)) },
        Entry { form: "sh", ..acp("acpx", "acpx", "In a shell", acpx(facts)) },
        facts.on_port("vscode", "VS Code, over the port", Door::Mcp, "In .vscode/mcp.json, or the user's mcp.json (MCP: Open User Configuration); the key is asked for once", "json", {
            let input = json!({"type": "promptString", "id": "nexus3-key", "description": "Key of nexus3", "password": true});
            let server = json!({"type": "http", "url": mcp, "headers": bearer("${input:nexus3-key}")});
            json_lines(&json!({"inputs": [input], "servers": {"nexus3": server}}))
        })
        .asks_itself(),
        started("vscode", "VS Code, which starts it", "In .vscode/mcp.json, or the user's mcp.json; needs no key", "json", {
            let mut server = facts.started(&["mcp", "serve"]);
            server["type"] = "stdio".into();
            json_lines(&json!({"servers": {"nexus3": server}}))
        }),
        facts.on_port("cursor", "Cursor, over the port", Door::Mcp, "In ~/.cursor/mcp.json, or .cursor/mcp.json of a project", "json", {
            let server = json!({"url": mcp, "headers": bearer("${env:NEXUS3_KEY}")});
            json_lines(&json!({"mcpServers": {"nexus3": server}}))
        }),
        started("cursor", "Cursor, which starts it", "In ~/.cursor/mcp.json, or .cursor/mcp.json of a project; needs no key", "json", {
            json_lines(&json!({"mcpServers": {"nexus3": facts.started(&["mcp", "serve"])}}))
        }),
        facts.on_port("claude-code", "Claude Code, over the port", Door::Mcp, "In a shell, in the project's directory; the variable is looked up when Claude Code starts", "sh", {
            let header = quoted("Authorization: Bearer ${NEXUS3_KEY}");
            format!("claude mcp add --scope project --transport http nexus3 {mcp} --header {header}")
        }),
        started("claude-code", "Claude Code, which starts it", "In a shell; needs no key", "sh", {
            let home = facts.home.as_deref().map(|home| format!("--env {} ", quoted(&format!("NEXUS3_HOME={home}"))));
            let (home, program) = (home.unwrap_or_default(), quoted(&facts.program));
            format!("claude mcp add --scope user nexus3 {home}-- {program} mcp serve")
        }),
        facts.on_port("openai-python", "openai for Python", Door::OpenAi, "In the program", "python", python(url)),
        facts.on_port("openai-node", "openai for Node", Door::OpenAi, "In the program, an ES module", "js", node(url)),
        facts.on_port("langchain", "LangChain", Door::OpenAi, "In the program", "python", langchain(url)),
        facts.on_port("litellm", "LiteLLM", Door::OpenAi, "In the proxy's config.yaml", "yaml", litellm(url)),
        facts.on_port("open-webui", "Open WebUI", Door::OpenAi, "In the environment of its first start; later: Admin Panel, Settings, Connections", "sh", {
            format!("export OPENAI_API_BASE_URL={url}/v1\nopen-webui serve")
        })
        .reads("OPENAI_API_KEY"),
        facts.on_port("websocket", "Any WebSocket client", Door::WebSocket, "In the program, here for Node 22 or newer", "js", websocket(url)),
    ]
}

impl Facts {
    /// How the program is started by others.
    fn started(&self, arguments: &[&str]) -> Value {
        let mut command = json!({"command": self.program, "args": arguments});
        if let Some(home) = &self.home {
            command["env"] = json!({"NEXUS3_HOME": home});
        }
        command
    }

    /// What a person types to call this program.
    pub fn called(&self) -> String {
        if self.is_found { "nexus3".into() } else { quoted(&self.program) }
    }

    fn on_port(
        &self,
        client: &'static str,
        title: &'static str,
        door: Door,
        place: &'static str,
        form: &'static str,
        lines: String,
    ) -> Entry {
        // What asks for agents of its own has to come as one that may make them.
        let wants = match door {
            Door::OpenAi => "openai --preset trusted",
            Door::WebSocket => "websocket",
            Door::Acp | Door::Started | Door::Mcp => "mcp",
        };
        let key = Some(format!("{} key create {client} --door {wants}", self.called()));
        Entry { client, title, door, key, variable: KEY, place, form, lines }
    }
}

fn acp(client: &'static str, title: &'static str, place: &'static str, lines: String) -> Entry {
    Entry { client, title, door: Door::Acp, key: None, variable: "", place, form: "json", lines }
}

fn started(
    client: &'static str,
    title: &'static str,
    place: &'static str,
    form: &'static str,
    lines: String,
) -> Entry {
    Entry { form, door: Door::Started, ..acp(client, title, place, lines) }
}

impl Entry {
    /// It has a name of its own for the variable.
    fn reads(self, variable: &'static str) -> Self {
        Self { variable, ..self }
    }

    /// It keeps the key itself, and reads no variable.
    fn asks_itself(self) -> Self {
        self.reads("")
    }
}

fn json_lines(value: &Value) -> String {
    format!("{value:#}")
}

/// A text as JSON, Lua, Python and JavaScript all read it.
fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

/// A word of a shell's command line.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=,@".contains(c);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn codecompanion(facts: &Facts) -> String {
    let program = literal(&facts.program);
    let env = facts
        .home
        .as_ref()
        .map(|home| format!("        env = {{ NEXUS3_HOME = {} }},\n", literal(home)));
    format!(
        r#"adapters = {{
  acp = {{
    nexus3 = function()
      local helpers = require("codecompanion.adapters.acp.helpers")
      return {{
        name = "nexus3",
        formatted_name = "nexus3",
        type = "acp",
        roles = {{ llm = "assistant", user = "user" }},
        commands = {{ default = {{ {program}, "acp" }} }},
{env}        defaults = {{ mcpServers = {{}}, timeout = 20000 }},
        parameters = {{ protocolVersion = 1, clientInfo = {{ name = "CodeCompanion.nvim", version = "1.0.0" }} }},
        handlers = {{
          setup = function(self) return true end,
          auth = function(self) return true end,
          form_messages = function(self, messages, capabilities)
            return helpers.form_messages(self, messages, capabilities)
          end,
          on_exit = function(self, code) end,
        }},
      }}
    end,
  }},
}},
interactions = {{ chat = {{ adapter = "nexus3" }} }},"#,
        env = env.unwrap_or_default(),
    )
}

fn avante(facts: &Facts) -> String {
    let program = literal(&facts.program);
    let env =
        facts.home.as_ref().map(|home| format!(", env = {{ NEXUS3_HOME = {} }}", literal(home)));
    let env = env.unwrap_or_default();
    format!(
        r#"provider = "nexus3",
acp_providers = {{ nexus3 = {{ command = {program}, args = {{ "acp" }}{env} }} }},"#
    )
}

fn acpx(facts: &Facts) -> String {
    let home = facts.home.as_ref().map(|home| format!("NEXUS3_HOME={} ", quoted(home)));
    let agent = quoted(&format!("{} acp", quoted(&facts.program)));
    format!("{}acpx --agent {agent} exec 'What is in this directory?'", home.unwrap_or_default())
}

fn python(url: &str) -> String {
    format!(
        r#"import os

from openai import OpenAI

client = OpenAI(base_url="{url}/v1", api_key=os.environ["{KEY}"])
answer = client.chat.completions.create(
    model="{MODEL}", messages=[{{"role": "user", "content": "Say hello."}}]
)
print(answer.choices[0].message.content)"#
    )
}

fn node(url: &str) -> String {
    format!(
        r#"import OpenAI from "openai";

const client = new OpenAI({{ baseURL: "{url}/v1", apiKey: process.env.{KEY} }});
const answer = await client.chat.completions.create({{
  model: "{MODEL}", messages: [{{ role: "user", content: "Say hello." }}],
}});
console.log(answer.choices[0].message.content);"#
    )
}

fn langchain(url: &str) -> String {
    format!(
        r#"import os

from langchain_openai import ChatOpenAI

model = ChatOpenAI(model="{MODEL}", base_url="{url}/v1", api_key=os.environ["{KEY}"])
print(model.invoke("Say hello.").content)"#
    )
}

fn litellm(url: &str) -> String {
    format!(
        r"model_list:
  - model_name: nexus3
    litellm_params:
      model: openai/{MODEL}
      api_base: {url}/v1
      api_key: os.environ/{KEY}"
    )
}

fn websocket(url: &str) -> String {
    let address = url.replacen("http://", "ws://", 1);
    format!(
        r#"const headers = {{ Authorization: `Bearer ${{process.env.{KEY}}}` }};
const socket = new WebSocket("{address}/ws", {{ headers }});
socket.onopen = () => socket.send('{{"jsonrpc":"2.0","id":1,"method":"rpc.version"}}');
socket.onmessage = ({{ data }}) => {{
  console.log(data);
  socket.close();
}};"#
    )
}
