//! The ways out, and what becomes of a server that this terminal started.

use super::App;
use super::panel::Panel;
use crate::cx::Leaving;
use crate::session::Session;
use crate::style::Line;

impl App {
    /// Leaves, and asks before where turns run on a server of its own.
    pub(crate) fn leave(&mut self, leaving: Leaving) {
        let turns = self.session.as_ref().filter(|session| session.own.is_some());
        let turns = turns.map_or(0, |session| session.turns() as u64);
        if leaving == Leaving::Quit && turns > 0 {
            return self.ask(Panel::Quit { turns });
        }
        self.leaving = Some((0, leaving));
    }

    /// Somebody else ends this terminal, or its window is gone: nobody can be asked, and no turn ends for it.
    pub(super) fn leave_by_signal(&mut self) {
        let leaving = self.session.as_ref().map_or(Leaving::Quit, Session::by_signal);
        self.leaving = Some((0, leaving));
    }

    /// Leaves without a question: there is nothing to ask.
    pub(super) fn leave_quietly(&mut self) {
        self.leaving = Some((0, Leaving::Quit));
    }

    /// There is nothing to stay for.
    pub(super) fn fail(&mut self, why: &str) {
        self.finished.push(crate::session::failure(why));
        self.leaving = Some((1, Leaving::Quit));
    }

    /// Tells an own server, takes the live part away and prints what was finished.
    pub(super) async fn farewell(mut self) -> u8 {
        let (code, leaving) = self.leaving.unwrap_or((0, Leaving::Quit));
        if let Some(session) = &self.session {
            session.leave(leaving).await;
        }
        let mut last = std::mem::take(&mut self.finished);
        if code == 0 {
            last.push(Line::plain("Goodbye!"));
        }
        let mut out = self.screen.erase();
        if self.options.settings.title {
            // As it was before; what keeps no titles passes over it.
            out.push_str("\x1b[23;0t");
        }
        for line in &last {
            crate::screen::encode(&mut out, line, self.options.settings.colours);
            out.push_str("\r\n");
        }
        // Where the terminal is gone, nobody is told.
        let _ = self.tty.write(&out);
        self.tty.restore();
        code
    }
}
