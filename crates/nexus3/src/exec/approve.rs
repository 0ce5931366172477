//! Who answers when the agent of `nexus3 exec` needs leave: nobody, the person at the terminal, or a yes to everything.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, IsTerminal as _, Write};
use std::time::Duration;

use clap::ValueEnum;
use nexus_core::approval::ApprovalMode;
use nexus_core::visible;
use nexus_protocol::Target;
use nexus_protocol::api::Api as _;
use nexus_protocol::form::Filling;
use nexus_protocol::permission::{
    ApprovalDecision, ApprovalEntry, ApprovalKind, Preview, RespondApproval, RespondApprovalParams,
};
use nexus_server::DirectAgentApi;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::output::complain;
use crate::printed;

/// What `--approve` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Approve {
    /// Deny it
    Never,
    /// Ask on the terminal
    Ask,
    /// Allow it, as far as the preset lets anybody allow it
    All,
}

/// Whoever answers.
pub enum Approver {
    Nobody,
    Person(Terminal),
    Everything,
}

impl Approver {
    /// The one that was asked for; where nothing was said, the person who watches, if one does.
    pub fn choose(asked: Option<Approve>) -> Self {
        match asked {
            Some(Approve::Never) => Self::Nobody,
            Some(Approve::All) => Self::Everything,
            Some(Approve::Ask) => match Terminal::open() {
                Ok(terminal) => Self::Person(terminal),
                Err(_) => {
                    complain(
                        "Warning: --approve ask: there is no terminal to ask on, so what needs approval is denied",
                    );
                    Self::Nobody
                }
            },
            // Somebody who cannot see the question must not be waited for.
            None if io::stderr().is_terminal() => {
                Terminal::open().map_or(Self::Nobody, Self::Person)
            }
            None => Self::Nobody,
        }
    }

    pub fn mode(&self) -> ApprovalMode {
        match self {
            Self::Nobody => ApprovalMode::Deny,
            Self::Person(_) | Self::Everything => ApprovalMode::Ask { timeout: PATIENCE },
        }
    }

    /// Answers question after question. A person is asked one at a time.
    pub async fn run(
        self,
        api: DirectAgentApi,
        mut questions: mpsc::UnboundedReceiver<ApprovalEntry>,
    ) {
        let mut approver = self;
        while let Some(question) = questions.recv().await {
            let asked = tokio::task::spawn_blocking(move || {
                let params = approver.answer(&question);
                (approver, params)
            });
            let Ok((back, params)) = asked.await else { return };
            approver = back;
            if let Err(error) = api.call::<RespondApproval>(&Target::Server, params).await {
                complain(format_args!("Warning: the answer did not arrive: {error}"));
            }
        }
    }

    fn answer(&mut self, question: &ApprovalEntry) -> RespondApprovalParams {
        let id = question.approval_id.as_str();
        if question.kind == ApprovalKind::Call {
            return RespondApprovalParams::new(id, self.decide(question));
        }
        let filled = match self {
            // Nobody who says yes to everything has filled in a form.
            Self::Nobody | Self::Everything => None,
            Self::Person(terminal) => {
                fill_in(question, &mut terminal.keyboard, &mut terminal.screen).ok().flatten()
            }
        };
        match filled {
            None => RespondApprovalParams::new(id, ApprovalDecision::Decline),
            content => {
                let params = RespondApprovalParams::new(id, ApprovalDecision::Accept);
                RespondApprovalParams { content, ..params }
            }
        }
    }

    fn decide(&mut self, question: &ApprovalEntry) -> ApprovalDecision {
        match self {
            Self::Nobody => ApprovalDecision::Deny,
            Self::Everything => ApprovalDecision::AllowOnce,
            Self::Person(terminal) => {
                let asked = ask(question, &mut terminal.keyboard, &mut terminal.screen);
                asked.unwrap_or(ApprovalDecision::Deny)
            }
        }
    }
}

/// A person may go and look before answering; `-t` and Ctrl-C end the wait sooner.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// The terminal this program belongs to, whatever its input and output are.
pub struct Terminal {
    keyboard: BufReader<File>,
    screen: File,
}

impl Terminal {
    fn open() -> io::Result<Self> {
        let screen = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
        Ok(Self { keyboard: BufReader::new(screen.try_clone()?), screen })
    }
}

/// Lines that are shown of what would become of a file.
const DIFF_LINES_MAX: usize = 40;

/// Shows the question until it is answered. An end of the input is a no.
fn ask(
    question: &ApprovalEntry,
    keyboard: &mut impl BufRead,
    screen: &mut impl Write,
) -> io::Result<ApprovalDecision> {
    // A model's words: none of them may pass for ours.
    let (agent, tool) = (visible::line(&question.agent_id), visible::line(&question.tool));
    let arguments = question.arguments.to_string();
    let (arguments, reason) = (visible::line(&arguments), visible::line(&question.reason));
    write!(screen, "\n{agent} calls {tool} {arguments}\nIt asks to {reason}.\n")?;
    if let Some(Preview::Diff(change)) = &question.preview {
        let diff = printed::harmless(&change.diff);
        for line in diff.lines().take(DIFF_LINES_MAX) {
            writeln!(screen, "  {line}")?;
        }
        let left = diff.lines().count().saturating_sub(DIFF_LINES_MAX);
        if left > 0 || change.truncated {
            writeln!(screen, "  … {left} more lines")?;
        }
    }
    loop {
        write!(screen, "Allow it? y (once), n (no), always (while the agent lives): ")?;
        let Some(answer) = read_line(keyboard, screen)? else {
            return Ok(ApprovalDecision::Deny);
        };
        match answer.to_lowercase().as_str() {
            "y" | "yes" => return Ok(ApprovalDecision::AllowOnce),
            "a" | "always" => return Ok(ApprovalDecision::AllowSession),
            "n" | "no" => return Ok(ApprovalDecision::Deny),
            _ => {}
        }
    }
}

/// Shows what a server asks, and takes the fields of its form one by one. None when it is not answered.
fn fill_in(
    question: &ApprovalEntry,
    keyboard: &mut impl BufRead,
    screen: &mut impl Write,
) -> io::Result<Option<Map<String, Value>>> {
    // A stranger's words: none of them may pass for ours.
    let (agent, reason) = (visible::line(&question.agent_id), visible::line(&question.reason));
    writeln!(screen, "\n{agent} asks to {reason}:")?;
    for words in question.message.iter().chain(&question.url) {
        for line in words.lines() {
            writeln!(screen, "  {}", visible::line(line))?;
        }
    }
    loop {
        write!(screen, "Answer it? y or n: ")?;
        match read_line(keyboard, screen)?.as_deref().map(str::to_lowercase).as_deref() {
            Some("y" | "yes") => break,
            Some("n" | "no") | None => return Ok(None),
            Some(_) => {}
        }
    }
    let mut filling = Filling::new(question.schema.as_ref().unwrap_or(&Value::Null));
    while let Some(field) = filling.field() {
        for (at, choice) in field.kind.choices().iter().enumerate() {
            writeln!(screen, "  {}) {}", at + 1, visible::line(&choice.label))?;
        }
        let default =
            field.default_words().map(|it| format!("; {} when empty", visible::line(&it)));
        let (label, hint) = (visible::line(&field.label), field.kind.hint());
        write!(screen, "{label} ({hint}{}): ", default.unwrap_or_default())?;
        let Some(written) = read_line(keyboard, screen)? else { return Ok(None) };
        if let Err(fault) = filling.take(&written) {
            writeln!(screen, "{}", visible::line(&fault))?;
        }
    }
    Ok(Some(filling.content()))
}

/// What is typed next; none at the end of the input.
fn read_line(keyboard: &mut impl BufRead, screen: &mut impl Write) -> io::Result<Option<String>> {
    screen.flush()?;
    let mut line = String::new();
    Ok((keyboard.read_line(&mut line)? > 0).then(|| line.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use nexus_protocol::permission::FileChange;
    use serde_json::json;

    use super::*;

    fn question() -> ApprovalEntry {
        ApprovalEntry {
            approval_id: "1".into(),
            kind: ApprovalKind::Call,
            agent_id: ".1".into(),
            tool: "exec".into(),
            arguments: json!({"argv": ["ls", "\u{1b}[2J\u{9b}\u{202e}x"]}),
            reason: "run a command with exec in /a\nb".into(),
            created_at: String::new(),
            status: "pending".into(),
            lineage: Vec::new(),
            request_id: None,
            expires_at: None,
            decided_by: None,
            message: None,
            schema: None,
            url: None,
            grant: None,
            preview: None,
        }
    }

    /// What is decided on these lines, and how often it is asked.
    fn check(typed: &str, expected: &str, times: usize) {
        let mut screen = Vec::new();
        let decision = ask(&question(), &mut typed.as_bytes(), &mut screen).unwrap();
        assert_eq!(serde_json::to_value(decision).unwrap(), expected, "{typed:?}");
        let screen = String::from_utf8(screen).unwrap();
        assert_eq!(screen.matches("Allow it?").count(), times, "{screen}");
    }

    #[test]
    fn an_answer_is_a_word_or_its_first_letter() {
        check("y\n", "allow_once", 1);
        check(" YES \n", "allow_once", 1);
        check("always\n", "allow_session", 1);
        check("a\n", "allow_session", 1);
        check("n\n", "deny", 1);
        check("no\n", "deny", 1);
        check("", "deny", 1);
        check("\nperhaps\ny\n", "allow_once", 3);
        check("perhaps", "deny", 2);
    }

    #[test]
    fn a_question_cannot_dress_up() {
        let mut screen = Vec::new();
        ask(&question(), &mut "n\n".as_bytes(), &mut screen).unwrap();
        let screen = String::from_utf8(screen).unwrap();
        let (asked, _) = screen.split_once("Allow it?").unwrap();
        assert_eq!(
            asked,
            "\n.1 calls exec {\"argv\":[\"ls\",\"\\u001b[2J\\u{9b}\\u{202e}x\"]}\n\
             It asks to run a command with exec in /a\\nb.\n"
        );
    }

    #[test]
    fn a_form_is_filled_in_at_the_terminal() {
        let schema = json!({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"}, "sure": {"type": "boolean", "default": true},
            "colour": {"type": "string", "enum": ["red", "gr\u{1b}[2Jeen"]}}});
        let message = Some("Who\u{1b}[2J?\nAllow it? y".into());
        let asked = ApprovalEntry {
            kind: ApprovalKind::Elicitation,
            schema: Some(schema),
            message,
            ..question()
        };
        let fill = |typed: &str| {
            let mut screen = Vec::new();
            let filled = fill_in(&asked, &mut typed.as_bytes(), &mut screen).unwrap();
            (filled.map(Value::Object), String::from_utf8(screen).unwrap())
        };
        let (filled, screen) = fill("y\n\nAda\n\n2\n");
        assert_eq!(filled, Some(json!({"name": "Ada", "colour": "gr\u{1b}[2Jeen"})));
        assert!(!screen.contains('\u{1b}') && screen.contains("\n  Allow it? y\n"), "{screen}");
        assert!(screen.contains("name is needed: a text\n"), "{screen}");
        assert_eq!(fill("n\n").0, None);
        assert_eq!(fill("y\nAda\n").0, None, "left in the middle");
    }

    #[test]
    fn a_change_is_shown_by_its_first_lines() {
        let diff = (0..41).map(|number| format!("+line {number}\u{1b}[2J\n")).collect();
        let change =
            FileChange { path: "/a".into(), diff, added: 41, removed: 0, truncated: false };
        let question = ApprovalEntry { preview: Some(Preview::Diff(change)), ..question() };
        let mut screen = Vec::new();
        ask(&question, &mut "n\n".as_bytes(), &mut screen).unwrap();
        let screen = String::from_utf8(screen).unwrap();
        assert!(screen.contains("\n  +line 39␛[2J\n  … 1 more lines\n"), "{screen}");
        assert!(!screen.contains("line 40"));
    }
}
