//! Keys on the input: editing, sending, history, and the ways out.

use std::time::{Duration, Instant};

use super::complete::Completion;
use super::panel::{Panel, Search};
use super::{App, Pressed};
use crate::compose::beside;
use crate::cx::Leaving;
use crate::keymap::{Action, Bound};
use crate::keys::{Code, Input, Key};

/// Ctrl-C twice within this quits.
const AGAIN: Duration = Duration::from_secs(2);

/// Esc twice within this goes back in the conversation.
const TWICE: Duration = Duration::from_millis(500);

impl App {
    pub(super) async fn input(&mut self, input: Input) {
        self.is_dirty = true;
        match input {
            Input::Paste(text) => {
                // A paste answers nothing, whatever it says.
                self.focus.takes_key(Instant::now());
                self.focus.forget();
                self.editor.paste(&text);
                self.changed();
            }
            Input::Key(key) => self.key(key).await,
        }
        self.close_lobby_for_text();
    }

    async fn key(&mut self, key: Key) {
        let is_questions = self.focus.takes_key(Instant::now());
        if self.is_panels(key, is_questions) {
            return self.panel_key(key).await;
        }
        let is_approvals = is_questions && self.panel.is_none() && self.approval.is_some();
        if is_approvals && self.approval_key(key).await {
            return;
        }
        if self.completion.is_some() && self.completion_key(key) {
            return;
        }
        let pressed = self.pressed.take().filter(|(_, at)| at.elapsed() < AGAIN);
        let before = match pressed {
            Some((Pressed::First(key), _)) => Some(key),
            _ => None,
        };
        match self.options.settings.keys.find(before, key) {
            Bound::Action(action) => self.act(action).await,
            Bound::First => self.pressed = Some((Pressed::First(key), Instant::now())),
            Bound::Free => match (key.code, key.ctrl, key.alt) {
                (Code::Enter, ..) => self.enter(),
                (Code::Escape, ..) => self.escape(pressed),
                (Code::Char('c'), true, _) => self.interrupt(pressed),
                (Code::Char('d'), true, _) if self.editor.is_empty() => self.leave(Leaving::Quit),
                (Code::Char(digit @ '1'..='9'), false, true) => {
                    self.show_marked(digit as usize - '1' as usize);
                }
                _ => self.edit_key(key),
            },
        }
        if is_approvals && !self.editor.is_empty() {
            self.focus.typed();
        }
    }

    async fn act(&mut self, action: Action) {
        match action {
            Action::Suspend => self.suspend().await,
            Action::Redraw => self.redraw(),
            Action::Editor => self.edit_input().await,
            Action::LastTool => self.say("/tool last"),
            Action::Tree => self.say("/tree"),
            Action::Search => {
                let draft = self.editor.text();
                self.ask_first(Panel::Search(Search { draft, ..Search::default() }));
            }
            Action::Approval => self.turn_to_question(),
            Action::Complete => self.complete_now(),
            Action::Older => self.up(),
            Action::Newer => self.down(),
            Action::NextAgent => self.show_next(),
            action => self.edit_with(action),
        }
    }

    /// A key that can only change the text.
    pub(super) fn edit_key(&mut self, key: Key) {
        match (self.options.settings.keys.find(None, key), key.code) {
            (Bound::Action(action), _) => return self.edit_with(action),
            (_, Code::Char('d')) if key.ctrl => self.editor.delete(),
            (_, Code::Char(c)) if !key.ctrl && !key.alt => self.editor.insert(c),
            _ => return,
        }
        self.changed();
    }

    fn edit_with(&mut self, action: Action) {
        let editor = &mut self.editor;
        match action {
            Action::NewLine => editor.insert('\n'),
            Action::Left => editor.left(),
            Action::Right => editor.right(),
            Action::WordLeft => editor.word_left(),
            Action::WordRight => editor.word_right(),
            Action::LineStart => editor.line_start(),
            Action::LineEnd => editor.line_end(),
            Action::DeleteLeft => editor.backspace(),
            Action::DeleteRight => editor.delete(),
            Action::DeleteWord => editor.kill_word(),
            Action::DeleteWordLeft => editor.kill_word_left(),
            Action::DeleteWordRight => editor.kill_word_right(),
            Action::DeleteToStart => editor.kill_to_start(),
            Action::DeleteToEnd => editor.kill_to_end(),
            Action::Yank => editor.yank(),
            Action::Undo => editor.undo(),
            Action::Redo => editor.redo(),
            _ => return,
        }
        self.changed();
    }

    /// The text is another one, and no longer one of the history's.
    fn changed(&mut self) {
        self.history.leave();
        self.complete();
    }

    fn enter(&mut self) {
        // A backslash before Enter makes a new line, as in a shell.
        let raw = self.editor.raw();
        if self.editor.caret() == raw.len() && raw.ends_with('\\') {
            self.editor.backspace();
            self.editor.insert('\n');
            return;
        }
        let text = self.editor.text();
        if text.trim().is_empty() {
            return;
        }
        let is_lost = self.session.as_ref().is_some_and(|session| !session.is_connected);
        if is_lost {
            return self.hint("not connected: nothing was sent");
        }
        if text.len() > crate::cx::MESSAGE_BYTES_MAX {
            return self.hint("not sent: a message has at most 1 MiB");
        }
        self.editor = Default::default();
        self.completion = None;
        self.history.add(text.trim_end());
        if text.starts_with('/') && !text.starts_with("//") {
            self.finished.push(crate::style::Line::styled(
                format!("{}{}", self.prompt(), text.trim_end()),
                crate::style::Style::DIM,
            ));
        }
        self.say(text.trim_end());
    }

    fn escape(&mut self, pressed: Option<(Pressed, Instant)>) {
        if self.runs() {
            if let Some(session) = &self.session {
                session.cancel();
            }
            return self.hint("cancelling");
        }
        let is_twice = matches!(pressed, Some((Pressed::Escape, at)) if at.elapsed() < TWICE);
        if is_twice && self.editor.is_empty() {
            return self.say("/rewind");
        }
        self.pressed = Some((Pressed::Escape, Instant::now()));
    }

    fn interrupt(&mut self, pressed: Option<(Pressed, Instant)>) {
        if !self.editor.is_empty() {
            let text = self.editor.clear();
            self.history.add(&text);
            return;
        }
        if matches!(pressed, Some((Pressed::Quit, _))) {
            return self.leave(Leaving::Quit);
        }
        if self.runs() {
            if let Some(session) = &self.session {
                session.cancel();
            }
            self.pressed = Some((Pressed::Quit, Instant::now()));
            return self.hint("cancelling; Ctrl-C again to quit");
        }
        self.pressed = Some((Pressed::Quit, Instant::now()));
        self.hint("Ctrl-C again to quit");
    }

    fn up(&mut self) {
        let (prompt, width) = (self.prompt(), self.screen.width());
        if let Some(at) = beside(&self.editor, &prompt, width, false) {
            return self.editor.place(at);
        }
        if self.editor.is_empty() && self.take_back() {
            return;
        }
        let present = self.editor.text();
        if let Some(text) = self.history.older(&present).map(ToOwned::to_owned) {
            self.editor.set(&text);
        }
    }

    fn down(&mut self) {
        let (prompt, width) = (self.prompt(), self.screen.width());
        if let Some(at) = beside(&self.editor, &prompt, width, true) {
            return self.editor.place(at);
        }
        if let Some(text) = self.history.newer() {
            self.editor.set(&text);
        }
    }

    /// Takes the message back that waits last, into the input.
    fn take_back(&mut self) -> bool {
        let Some(session) = &self.session else { return false };
        let Some(view) = &session.view else { return false };
        let Some((id, text)) = view.queued().last().cloned() else { return false };
        session.cancel_turn(view.agent.clone(), id);
        self.editor.set(&text);
        true
    }

    /// Shows the agent of this number among the marks.
    fn show_marked(&mut self, number: usize) {
        let marked = self.marked().get(number).map(|mark| mark.agent.agent_id.clone());
        if let (Some(agent), Some(session)) = (marked, &mut self.session) {
            session.show(agent);
        }
    }

    /// Shows the next agent behind the shown one with something unread, or one that waits for approval.
    fn show_next(&mut self) {
        if let Some(session) = &mut self.session
            && let Some(agent) = session.next_to_look_at()
        {
            session.show(agent);
        }
    }

    pub(super) fn redraw(&mut self) {
        let out = self.screen.erase();
        let _ = self.tty.write(&out);
        self.is_dirty = true;
    }

    /// A list that opens while one types.
    pub(super) fn complete(&mut self) {
        self.completion = Completion::of(&self.editor, self.session.as_ref(), &mut self.walk);
    }

    fn complete_now(&mut self) {
        if self.completion.is_none() {
            if let Some(session) = &self.session {
                session.ask_names();
            }
            self.completion =
                Completion::asked(&self.editor, self.session.as_ref(), &mut self.walk);
        }
        if let Some(completion) = &self.completion
            && completion.is_single()
        {
            self.take_completion();
        }
    }

    fn take_completion(&mut self) {
        if let Some((from, text)) = self.completion.take().and_then(|list| list.chosen()) {
            self.editor.replace(from, &text);
        }
    }

    /// Whether the list took the key.
    fn completion_key(&mut self, key: Key) -> bool {
        let Some(completion) = &mut self.completion else { return false };
        match key.code {
            Code::Tab if !key.shift => self.take_completion(),
            Code::Down => completion.step(true),
            Code::Up => completion.step(false),
            Code::Escape => self.completion = None,
            _ => return false,
        }
        true
    }
}
