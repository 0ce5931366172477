//! The chat template of the file: how a conversation is written for this model.

mod apart;

use std::io;

use minijinja::{Environment, ErrorKind};
use nexus_core::message::{self, Message, Role};
use nexus_core::provider::ModelCall;
use serde_json::json;

pub use self::apart::{WRITER_ARGUMENT, writer_main};
use crate::Fault;
use crate::said::Said;
use crate::tokenizer::{Part, Vocabulary};
use crate::weights::Gguf;

pub struct Template {
    /// The model's own; [`CHATML`] where there is none.
    own: Option<String>,
    bos: String,
    eos: String,
}

/// What a template is shown.
type Conversation = serde_json::Value;

const NAME: &str = "chat";

/// Longest template that is taken. The longest there are have a tenth of it.
const SOURCE_BYTES_MAX: usize = 256 * 1024;

/// Steps that a template may take for one conversation, so that its loops end. It takes a hundred for a message.
const STEPS_MAX: u64 = 5_000_000;

/// What a template may write for one conversation, without the texts in it: they are put in afterwards.
const WRITTEN_BYTES_MAX: usize = 16 << 20;

/// For a file that brings none: the form most small models know.
const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + \
                      '<|im_end|>\\n' }}{% endfor %}{{ '<|im_start|>assistant\\n' }}";

impl Template {
    pub fn read(gguf: &Gguf) -> Result<Self, Fault> {
        let tokens = gguf.strings("tokenizer.ggml.tokens")?;
        let token = |key: &str| {
            let id = gguf.number(key).and_then(|id| usize::try_from(id).ok());
            id.and_then(|id| tokens.get(id)).map_or_else(String::new, ToString::to_string)
        };
        let (bos, eos) =
            (token("tokenizer.ggml.bos_token_id"), token("tokenizer.ggml.eos_token_id"));
        let source = gguf.text("tokenizer.chat_template").map(String::from);
        Self::new(source, bos, eos).map_err(|reason| gguf.unsupported(reason))
    }

    /// Of the template's text, or of the usual one where there is none. Blocks.
    pub fn new(source: Option<String>, bos: String, eos: String) -> Result<Self, String> {
        if let Some(source) = &source {
            if source.len() > SOURCE_BYTES_MAX {
                return Err(format!(
                    "the model's chat template is larger than {SOURCE_BYTES_MAX} bytes"
                ));
            }
            apart::check(source)?;
        }
        Ok(Self { own: source, bos, eos })
    }

    /// The tokens of a conversation, up to where the model's answer begins.
    ///
    /// The template is shown a mark in place of each text, and the texts are put in afterwards: what somebody wrote
    /// cannot be taken for what the template writes. Blocks; when `stopped` says so, nobody wants them any more.
    pub fn tokens(
        &self,
        vocabulary: &Vocabulary,
        answers: &Said,
        call: &ModelCall,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Vec<u32>, String> {
        let said = said(call);
        let messages: Vec<_> = said
            .iter()
            .enumerate()
            .map(|(at, (role, _))| json!({"role": role, "content": mark(at)}))
            .collect();
        let conversation = json!({
            "messages": messages,
            "add_generation_prompt": true,
            "bos_token": self.bos,
            "eos_token": self.eos,
        });
        let written = match &self.own {
            Some(source) => apart::written(source, &conversation, stopped)?,
            None => run(CHATML, &conversation)?,
        };
        let mut tokens = Vec::new();
        if let Some(bos) = vocabulary.bos.filter(|_| !written.starts_with(&self.bos)) {
            tokens.push(bos);
        }
        let known: Vec<_> = said
            .iter()
            .map(|(role, text)| (*role == "assistant").then(|| answers.tokens(text)).flatten())
            .collect();
        let mut parts = Vec::new();
        let mut rest = written.as_str();
        for (at, (_, text)) in said.iter().enumerate() {
            let mark = mark(at);
            // A template may leave a message out.
            let Some(start) = rest.find(&mark) else { continue };
            let text = known[at].as_deref().map_or(Part::Text(text), Part::Tokens);
            parts.extend([Part::Template(&rest[..start]), text]);
            rest = &rest[start + mark.len()..];
        }
        parts.push(Part::Template(rest));
        vocabulary.encode(parts, &mut tokens);
        Ok(tokens)
    }
}

/// What a template makes of a conversation, in this process.
fn run(source: &str, conversation: &Conversation) -> Result<String, String> {
    let environment = read(source)?;
    let template = environment.get_template(NAME).map_err(|error| error.to_string())?;
    let mut written = Written(Vec::new());
    match template.render_captured_to(conversation, &mut written) {
        Ok(_) => Ok(String::from_utf8_lossy(&written.0).into_owned()),
        Err(error) => Err(match error.kind() {
            ErrorKind::OutOfFuel => {
                format!("the model's chat template takes more than {STEPS_MAX} steps")
            }
            ErrorKind::WriteFailure => {
                format!("the model's chat template writes more than {WRITTEN_BYTES_MAX} bytes")
            }
            _ => format!("the model's chat template refuses the conversation: {error}"),
        }),
    }
}

/// An environment with the template in it. What is the same every time is computed by this, and nothing bounds that: a
/// stranger's template is read [`apart`].
fn read(source: &str) -> Result<Environment<'_>, String> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(STEPS_MAX));
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    // Templates are written for Python, whose strings have methods.
    environment.set_unknown_method_callback(python_method);
    environment.add_function(
        "raise_exception",
        |text: String| -> Result<String, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, text))
        },
    );
    environment
        .add_template(NAME, source)
        .map_err(|error| format!("the model's chat template is unusable ({error})"))?;
    Ok(environment)
}

/// Takes what a template writes, up to a limit.
struct Written(Vec<u8>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > WRITTEN_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Stands for a text while the template runs. Of private characters, so that no template treats it as words.
fn mark(at: usize) -> String {
    format!("\u{e000}{at}\u{e001}")
}

/// The conversation as a model without tools is told of it: roles it knows, in turns. The time is left out: it is
/// too small to make use of it.
fn said(call: &ModelCall) -> Vec<(&'static str, String)> {
    let mut said: Vec<(&'static str, String)> = Vec::new();
    if !call.system.is_empty() {
        said.push(("system", call.system.to_string()));
    }
    for message in call.messages.iter() {
        let Some((role, text)) = spoken(message) else { continue };
        match said.last_mut() {
            Some((last, before)) if *last == role => {
                before.push_str("\n\n");
                before.push_str(&text);
            }
            _ => said.push((role, text)),
        }
    }
    said
}

fn spoken(message: &Message) -> Option<(&'static str, String)> {
    let mut said = message.text();
    for attachment in message.attachments() {
        let words = format!("{said}\n[{}: you cannot look at it.]", attachment.words());
        said = words.into();
    }
    let text = match (message.role, said.trim()) {
        // Where nobody said anything, what stands around it is the message: that an answer is to go on.
        (Role::User, "") => message.parts.iter().find_map(around).unwrap_or_default(),
        (_, text) => text,
    };
    let (role, text) = match message.role {
        Role::User => ("user", text.to_owned()),
        Role::Assistant => ("assistant", text.to_owned()),
        Role::Tool => ("user", format!("Result of a tool:\n{text}")),
        Role::Summary => ("user", format!("Summary of what was said before:\n{text}")),
    };
    (!text.is_empty()).then_some((role, text))
}

fn around(part: &message::Part) -> Option<&str> {
    match part {
        message::Part::Context(text) => Some(text),
        _ => None,
    }
}

fn python_method(
    _: &minijinja::State,
    value: &minijinja::Value,
    method: &str,
    args: &[minijinja::Value],
) -> Result<minijinja::Value, minijinja::Error> {
    let unknown = || minijinja::Error::from(ErrorKind::UnknownMethod);
    let text = value.as_str().ok_or_else(unknown)?;
    let argument = |at: usize| args.get(at).and_then(minijinja::Value::as_str);
    Ok(match (method, argument(0), argument(1)) {
        ("strip", None, None) => text.trim().into(),
        ("lstrip", None, None) => text.trim_start().into(),
        ("rstrip", None, None) => text.trim_end().into(),
        ("strip", Some(set), None) => text.trim_matches(|char| set.contains(char)).into(),
        ("lstrip", Some(set), None) => text.trim_start_matches(|char| set.contains(char)).into(),
        ("rstrip", Some(set), None) => text.trim_end_matches(|char| set.contains(char)).into(),
        ("upper", None, None) => text.to_uppercase().into(),
        ("lower", None, None) => text.to_lowercase().into(),
        ("startswith", Some(start), None) => text.starts_with(start).into(),
        ("endswith", Some(end), None) => text.ends_with(end).into(),
        ("replace", Some(from), Some(to)) => text.replace(from, to).into(),
        ("split", None, None) => {
            text.split_whitespace().map(String::from).collect::<Vec<_>>().into()
        }
        ("split", Some(by), None) => text.split(by).map(String::from).collect::<Vec<_>>().into(),
        _ => return Err(unknown()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &str) {
        assert_eq!(written(source).unwrap(), expected, "{source}");
    }

    fn written(source: &str) -> Result<String, String> {
        Template::new(Some(source.into()), String::new(), String::new())?;
        run(source, &json!({}))
    }

    #[test]
    fn a_loop_that_does_not_end_is_ended() {
        let loops = |rounds: usize| {
            format!(
                "{{% for a in range({rounds}) %}}{{% for b in range(1000) %}}{{% endfor %}}{{% endfor %}}"
            )
        };
        assert_eq!(written(&loops(100)).unwrap(), "");
        let endless = written(&loops(100_000)).unwrap_err();
        assert_eq!(endless, "the model's chat template takes more than 5000000 steps");
    }

    #[test]
    fn what_a_template_writes_just_under_and_just_over() {
        let of = |rest: usize| {
            let piece = "x".repeat(16 << 10);
            format!("{{% for a in range(1023) %}}{piece}{{% endfor %}}{}", "x".repeat(rest))
        };
        assert_eq!(written(&of(16 << 10)).unwrap().len(), WRITTEN_BYTES_MAX);
        let more = written(&of((16 << 10) + 1)).unwrap_err();
        assert_eq!(more, "the model's chat template writes more than 16777216 bytes");
        assert!(written(&"x".repeat(SOURCE_BYTES_MAX)).is_ok());
        let long = written(&"x".repeat(SOURCE_BYTES_MAX + 1)).unwrap_err();
        assert_eq!(long, "the model's chat template is larger than 262144 bytes");
    }

    #[test]
    fn strings_have_the_methods_that_templates_use() {
        check("{{ ' a '.strip() }}|{{ '\\n a\\n'.lstrip('\\n') }}|", "a| a\n|");
        check("{{ 'xya yx'.strip('xy') }}|{{ 'a</think>b'.split('</think>')[-1] }}", "a |b");
        check("{{ 'a-b'.replace('-', '+').upper() }}{{ ' a  b '.split() | length }}", "A+B2");
        check("{{ 'ab'.startswith('a') and 'ab'.endswith('b') }}", "True");
        assert!(written("{{ 'a'.swapcase() }}").is_err());
    }
}
