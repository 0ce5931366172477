//! Keys on the input: editing, sending, history, and the ways out.

use std::time::{Duration, Instant};

use super::complete::Completion;
use super::panel::{Panel, Search};
use super::{App, Pressed};
use crate::compose::beside;
use crate::cx::Leaving;
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
                self.history.leave();
                self.complete();
            }
            Input::Key(key) => self.key(key).await,
        }
    }

    async fn key(&mut self, key: Key) {
        let is_questions = self.focus.takes_key(Instant::now());
        if self.panel.is_some() {
            return self.panel_key(key).await;
        }
        if self.approval.is_some() && is_questions && self.approval_key(key).await {
            return;
        }
        if self.completion.is_some() && self.completion_key(key) {
            return;
        }
        let pressed = self.pressed.take().filter(|(_, at)| at.elapsed() < AGAIN);
        match (key.code, key.ctrl, key.alt) {
            (Code::Enter, _, _) if key.alt || key.shift => self.editor.insert('\n'),
            (Code::Enter, ..) => self.enter(),
            (Code::Char('j'), true, _) => self.editor.insert('\n'),
            (Code::Escape, ..) => self.escape(pressed),
            (Code::Char('c'), true, _) => self.interrupt(pressed),
            (Code::Char('d'), true, _) if self.editor.is_empty() => self.leave(Leaving::Quit),
            (Code::Char('d'), true, _) => self.editor.delete(),
            (Code::Char('z'), true, _) => self.suspend().await,
            (Code::Char('l'), true, _) => self.redraw(),
            (Code::Char('x'), true, _) => self.pressed = Some((Pressed::Prefix, Instant::now())),
            (Code::Char('e'), true, _) if matches!(pressed, Some((Pressed::Prefix, _))) => {
                self.edit_input().await;
            }
            (Code::Char('g'), true, _) => self.edit_input().await,
            (Code::Char('o'), true, _) => self.say("/tool last"),
            (Code::Char('t'), true, _) => self.say("/tree"),
            (Code::Char('r'), true, _) => {
                let draft = self.editor.text();
                self.panel = Some(Panel::Search(Search { draft, ..Search::default() }));
            }
            (Code::Tab, ..) if key.shift => self.turn_to_approval(),
            (Code::Tab, ..) => self.complete_now(),
            (Code::Up, ..) => self.up(),
            (Code::Down, ..) => self.down(),
            (Code::Char(digit @ '1'..='9'), false, true) => {
                self.show_marked(digit as usize - '1' as usize);
            }
            (Code::Char('a' | 'A'), false, true) => self.show_next(),
            _ => self.edit_key(key),
        }
    }

    pub(super) fn edit_key(&mut self, key: Key) {
        let editor = &mut self.editor;
        let is_word = key.ctrl || key.alt;
        match (key.code, key.ctrl, key.alt) {
            (Code::Left, ..) if is_word => editor.word_left(),
            (Code::Right, ..) if is_word => editor.word_right(),
            (Code::Left, ..) => editor.left(),
            (Code::Right, ..) => editor.right(),
            (Code::Home, ..) => editor.line_start(),
            (Code::End, ..) => editor.line_end(),
            (Code::Backspace, ..) if is_word => editor.kill_word_left(),
            (Code::Backspace, ..) => editor.backspace(),
            (Code::Delete, ..) if is_word => editor.kill_word_right(),
            (Code::Delete, ..) => editor.delete(),
            (Code::Char(c), true, _) => match c {
                'a' => editor.line_start(),
                'e' => editor.line_end(),
                'b' => editor.left(),
                'f' => editor.right(),
                'w' => editor.kill_word(),
                'u' => editor.kill_to_start(),
                'k' => editor.kill_to_end(),
                'y' => editor.yank(),
                '_' | '-' => editor.undo(),
                'h' => editor.backspace(),
                'p' => return self.up(),
                'n' => return self.down(),
                _ => return,
            },
            (Code::Char(c), false, true) => match c {
                'b' => editor.word_left(),
                'f' => editor.word_right(),
                'd' => editor.kill_word_right(),
                '_' => editor.redo(),
                _ => return,
            },
            (Code::Char(c), false, false) => editor.insert(c),
            _ => return,
        }
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
        if self.runs() {
            if let Some(session) = &self.session {
                session.cancel();
            }
            self.pressed = Some((Pressed::Quit, Instant::now()));
            return self.hint("cancelling; Ctrl-C again to quit");
        }
        if matches!(pressed, Some((Pressed::Quit, _))) {
            return self.leave(Leaving::Quit);
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

    /// Shows the next agent with something unread, or one that waits for approval.
    fn show_next(&mut self) {
        self.show_marked(0);
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
