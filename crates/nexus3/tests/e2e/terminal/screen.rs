//! A terminal that is not there: a real device (a pty) with the program on one end and an emulation on the other.
//!
//! # A conversation
//! ```ignore
//! let desk = Desk::new().await;                                        // a home, and a scripted model
//! desk.model().push(Reply::text("It works."));
//! let mut screen = desk.open(&["--fresh"]);                            // 80 columns, 24 rows
//! screen.say("Does it?").await;                                        // types it, and Enter
//! screen.wait_for("It works.").await;                                  // somewhere on the screen
//! screen.key(Key::Escape).await;
//! assert_eq!(screen.count("It works."), 1);                            // in the scrollback or on the screen
//! assert!(screen.exit().await.success());
//! ```
//! A [`Desk`] is a world of the harness: a directory of its own as home, and a model that says what it was told to. What
//! is opened on it are [`Screen`]s: the binary that cargo built, in a session of its own whose terminal is the pty, so
//! that signals of the device (a resize, a hang-up, Ctrl-Z) come as they come to anybody's program. The bytes that it
//! writes go to `vt100`, which keeps a screen and 200,000 lines above it. Nothing of the environment is inherited;
//! `TERM` is `linux`, since `vt100` does not break lines anew when its width changes (tmux does: `tmux.rs`).
//!
//! # What is seen
//! [`Screen::text`] is the screen now, row by row. [`Screen::everything`] is the scrollback and the screen as lines: a
//! line that was too wide for the screen is one line again. [`Screen::bytes`] is all that was ever written, to the
//! letter. What the emulation was asked to do beyond writing (titles, the clipboard, bells, sequences that it does not
//! know) is in [`Screen::asked`].
//!
//! # Waiting
//! The program is asked nothing: a test waits for what a person would see ([`Screen::wait_for`], [`Screen::wait_until`])
//! and a wait that fails prints the screen. An Esc must be seen to work before the next key is typed; together they
//! would be another key.
//!
//! # Processes
//! The server that a terminal starts has its own session and outlives it. A [`Desk`] that is dropped kills, by its id,
//! every process that has its home in its environment; so no test leaves one behind, however it ended.
//! [`Desk::server`] is the id of the server that answers now, [`Desk::ok`] a call of another client.

use std::ffi::OsString;
use std::io;
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nexus_testkit::ScriptedModel;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use serde_json::{Value, json};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::process::{Child, Command};
use tokio_util::task::AbortOnDropHandle;

use crate::harness::wire::request;
use crate::harness::{Framed, Setup, WAIT_MAX, World, within};

/// Lines above the screen that the emulation keeps.
const SCROLLBACK: usize = 200_000;

/// Longer than a question must have been there before it takes a key.
pub const LOOKED: Duration = Duration::from_millis(550);

/// A home with a model, and the terminals on it.
pub struct Desk {
    pub world: Arc<World>,
    env: Vec<(OsString, OsString)>,
    size: (u16, u16),
}

impl Desk {
    pub async fn new() -> Self {
        Self::with(Setup::new()).await
    }

    /// Any free port is the usual one of its home.
    pub async fn with(setup: Setup) -> Self {
        let world = setup.server(json!({"port": 0})).world().await;
        Self { world, env: vec![("TERM".into(), "linux".into())], size: (80, 24) }
    }

    /// A variable for whatever is opened from now on.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Columns and rows of whatever is opened from now on.
    pub fn size(mut self, columns: u16, rows: u16) -> Self {
        self.size = (columns, rows);
        self
    }

    pub fn model(&self) -> &ScriptedModel {
        &self.world.model
    }

    /// The arguments that keep the program to this desk, and then these.
    pub fn arguments(&self, args: &[&str]) -> Vec<OsString> {
        let mut all = vec!["--socket".into(), self.world.socket().into_os_string()];
        all.extend(args.iter().map(OsString::from));
        all
    }

    /// Opens a terminal.
    pub fn open(&self, args: &[&str]) -> Screen {
        self.open_command(self.world.command_on_terminal(self.arguments(args)))
    }

    /// Opens one for the server with this address.
    pub fn open_at(&self, url: &str) -> Screen {
        self.open_command(self.world.command_on_terminal(["--connect", url]))
    }

    /// Opens one in which a shell runs `script`; in it `$0 "$@"` is the program.
    pub fn open_shell(&self, script: &str, args: &[&str]) -> Screen {
        let mut command = self.world.shell_on_terminal(script);
        command.args(self.arguments(args));
        self.open_command(command)
    }

    fn open_command(&self, mut command: Command) -> Screen {
        command.envs(self.env.iter().cloned());
        Screen::open(command, self.size)
    }

    /// The program without a terminal, for one turn.
    pub fn piped(&self) -> Command {
        let mut command = self.world.command([""; 0]);
        command.envs(self.env.iter().cloned()).kill_on_drop(true);
        command
    }

    /// A call of another client.
    pub async fn call(&self, method: &str, params: Value) -> Value {
        let mut client = Framed::connect(&self.world.socket()).await;
        client.send(request(1, method, params).as_ref()).await;
        client.message().await
    }

    pub async fn ok(&self, method: &str, params: Value) -> Value {
        let mut answer = self.call(method, params).await;
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].take()
    }

    /// The process of the server that answers now.
    pub async fn server(&self) -> Pid {
        let info = self.ok("server_info", json!({})).await;
        Pid::from_raw(info["pid"].as_i64().unwrap() as i32).unwrap()
    }

    /// Processes that have this home.
    pub fn processes(&self) -> Vec<Pid> {
        let home = format!("NEXUS3_HOME={}", self.world.home().display());
        let has_home = |pid: &str| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == home.as_bytes())
        };
        let names = std::fs::read_dir("/proc").unwrap();
        let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let pids = names.filter_map(|name| Some((name.parse().ok()?, name)));
        pids.filter(|(_, name)| has_home(name)).filter_map(|(pid, _)| Pid::from_raw(pid)).collect()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Key {
    Enter,
    Escape,
    Up,
    ShiftTab,
    Ctrl(char),
}

impl Key {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Enter => b"\r".to_vec(),
            Self::Escape => b"\x1b".to_vec(),
            Self::Up => b"\x1b[A".to_vec(),
            Self::ShiftTab => b"\x1b[Z".to_vec(),
            Self::Ctrl(letter) => vec![letter as u8 & 0x1f],
        }
    }
}

/// A terminal with a program. Both go when it is dropped.
pub struct Screen {
    child: Child,
    device: OwnedFd,
    /// The same, written as a pipe would be.
    keyboard: Sender,
    /// The program's end, to look at its settings.
    line: OwnedFd,
    before: String,
    emulation: Arc<Mutex<Emulation>>,
    _reading: AbortOnDropHandle<()>,
}

struct Emulation {
    parser: vt100::Parser<Asked>,
    bytes: Vec<u8>,
    /// The sizes that it had, each with the number of bytes that were written before.
    sizes: Vec<(usize, (u16, u16))>,
}

/// What was asked for besides writing, in words.
#[derive(Default)]
pub struct Asked(Vec<String>);

impl Screen {
    fn open(mut command: Command, size: (u16, u16)) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let device = openpt(flags).unwrap();
        grantpt(&device).unwrap();
        unlockpt(&device).unwrap();
        tcsetwinsize(&device, window(size)).unwrap();
        let name = ptsname(&device, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let line = rustix::fs::open(&*name, flags, Mode::empty()).unwrap();
        rustix::io::ioctl_fionbio(&device, true).unwrap();
        let end = || Stdio::from(line.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end()).kill_on_drop(true);
        let before = settings(&line);
        let child = command.spawn().expect("the program can be started");
        let (columns, rows) = cells(size);
        let parser = vt100::Parser::new_with_callbacks(rows, columns, SCROLLBACK, Asked::default());
        let emulation =
            Arc::new(Mutex::new(Emulation { parser, bytes: Vec::new(), sizes: vec![(0, size)] }));
        let clone = || device.try_clone().unwrap();
        let keyboard = Sender::from_owned_fd_unchecked(clone()).unwrap();
        let output = Receiver::from_owned_fd_unchecked(clone()).unwrap();
        let reading = AbortOnDropHandle::new(tokio::spawn(read(output, Arc::clone(&emulation))));
        Self { child, device, keyboard, line, before, emulation, _reading: reading }
    }

    fn emulation(&self) -> MutexGuard<'_, Emulation> {
        self.emulation.lock().unwrap()
    }

    /// Bytes as they come from a keyboard.
    pub async fn type_bytes(&self, mut bytes: &[u8]) {
        let typing = async {
            while !bytes.is_empty() {
                self.keyboard.writable().await.unwrap();
                match self.keyboard.try_write(bytes) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    written => bytes = &bytes[written.unwrap()..],
                }
            }
        };
        within("the terminal to take what is typed", typing).await;
    }

    pub async fn type_text(&self, text: &str) {
        self.type_bytes(text.as_bytes()).await;
    }

    pub async fn key(&self, key: Key) {
        self.type_bytes(&key.bytes()).await;
    }

    /// Types a line, sees it in the input, and sends it.
    pub async fn say(&self, text: &str) {
        self.type_text(text).await;
        self.wait_for(&format!("> {text}")).await;
        self.key(Key::Enter).await;
    }

    /// The screen as it stands.
    pub fn text(&self) -> String {
        let emulation = self.emulation();
        let screen = emulation.parser.screen();
        let rows = screen.rows(0, screen.size().1.get());
        rows.collect::<Vec<_>>().join("\n")
    }

    /// The scrollback and the screen, line by line.
    pub fn everything(&self) -> Vec<String> {
        let mut emulation = self.emulation();
        let screen = emulation.parser.screen_mut();
        let rows = usize::from(screen.size().0.get());
        let (mut lines, mut open) = (Vec::new(), String::new());
        let mut left = screen.scrollback_len() + rows;
        while left > 0 {
            screen.set_scrollback(left.saturating_sub(rows));
            // The last page may begin before what is left.
            let first = rows.saturating_sub(left);
            for (at, row) in screen.rows(0, u16::MAX).enumerate().skip(first) {
                open.push_str(&row);
                if !screen.row_wrapped(at as u16) {
                    lines.push(std::mem::take(&mut open).trim_end().to_owned());
                }
            }
            left = left.saturating_sub(rows);
        }
        screen.set_scrollback(0);
        if !open.is_empty() {
            lines.push(open);
        }
        lines
    }

    /// How many lines there are that say exactly this.
    pub fn count(&self, line: &str) -> usize {
        self.everything().iter().filter(|it| *it == line).count()
    }

    /// All that was ever written.
    pub fn bytes(&self) -> Vec<u8> {
        self.emulation().bytes.clone()
    }

    /// All that was ever written, in the pieces between the sizes that the window had, each with the size it was for.
    pub fn recording(&self) -> Vec<((u16, u16), Vec<u8>)> {
        let emulation = self.emulation();
        let ends = emulation.sizes.iter().skip(1).map(|(at, _)| *at).chain([emulation.bytes.len()]);
        let pieces = emulation.sizes.iter().zip(ends);
        pieces.map(|((from, size), end)| (*size, emulation.bytes[*from..end].to_vec())).collect()
    }

    /// What the emulation was asked to do besides writing, but for what a terminal may ask: synchronized output, wrapping,
    /// kitty's first flag, and a title that is the program's own and goes with it.
    pub fn asked(&self) -> Vec<String> {
        let modes = ["CSI ?2026h", "CSI ?2026l", "CSI ?7h", "CSI ?7l", "CSI >1u", "CSI <1u"];
        let titles = ["CSI 22;0t", "CSI 23;0t", "icon nexus3", "title nexus3"];
        let named = ["icon work · nexus3", "title work · nexus3"];
        let mut asked = self.emulation().parser.callbacks().0.clone();
        let is_ours = |asked: &&str| [&modes[..], &titles[..], &named[..]].concat().contains(asked);
        asked.retain(|asked| !is_ours(&asked.as_str()));
        asked
    }

    /// The number of the entry that says this, in a list on the screen.
    pub fn number_of(&self, text: &str) -> usize {
        let screen = self.text();
        let line = screen.lines().find(|line| line.contains(text)).expect("it is in the list");
        let number = line.trim_start_matches(['›', ' ']).split(')').next();
        number.and_then(|number| number.parse().ok()).expect("it has a number")
    }

    /// Row and column of the cursor, unless it is hidden.
    pub fn cursor(&self) -> Option<(u16, u16)> {
        let emulation = self.emulation();
        let screen = emulation.parser.screen();
        (!screen.hide_cursor()).then(|| screen.cursor_position())
    }

    pub async fn wait_for(&self, text: &str) {
        self.wait_until(text, |screen| screen.text().contains(text)).await;
    }

    pub async fn wait_until_gone(&self, text: &str) {
        let what = format!("{text} to be gone");
        self.wait_until(&what, |screen| !screen.text().contains(text)).await;
    }

    /// The lines that end turns.
    pub fn ends(&self) -> Vec<String> {
        self.everything().into_iter().filter(|line| line.starts_with("─ ")).collect()
    }

    pub async fn wait_for_end(&self) {
        self.wait_until("the end of a turn", |screen| !screen.ends().is_empty()).await;
    }

    /// Waits until a line says exactly this, on the screen or above it.
    pub async fn wait_for_line(&self, line: &str) {
        self.wait_until(line, |screen| screen.count(line) > 0).await;
    }

    pub async fn wait_until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + WAIT_MAX;
        while !condition(self) {
            assert!(Instant::now() < deadline, "waited for {what}:\n{}", self.text());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Reads what stands there. How long that takes is what the terminal tells an answer by.
    pub async fn read(&self) {
        let since = Instant::now();
        self.wait_until("a look at it", |_| since.elapsed() > LOOKED).await;
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        let (columns_set, rows_set) = cells((columns, rows));
        let mut emulation = self.emulation();
        emulation.parser.set_size(rows_set, columns_set);
        let written = emulation.bytes.len();
        emulation.sizes.push((written, (columns, rows)));
        drop(emulation);
        tcsetwinsize(&self.device, window((columns, rows))).unwrap();
    }

    pub fn id(&self) -> Pid {
        Pid::from_raw(self.child.id().expect("it was not waited for") as i32).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.id(), signal).unwrap();
    }

    /// Waits for the end of the program and for what it wrote last.
    pub async fn exit(&mut self) -> ExitStatus {
        within("the program to end", self.child.wait()).await.unwrap()
    }

    /// Whether the settings of the device are those from before.
    pub fn is_in_order(&self) -> bool {
        settings(&self.line) == self.before
    }

    /// Waits until the device is as it was, and no mode of ours is set on the emulation.
    pub async fn wait_until_in_order(&self) {
        let what = "the terminal to be in order";
        self.wait_until(what, |screen| {
            let is_pasting = screen.emulation().parser.screen().bracketed_paste();
            screen.is_in_order() && !is_pasting && screen.cursor().is_some()
        })
        .await;
    }

    /// Pulls the plug: the device is gone.
    pub fn unplug(self) -> Child {
        self.child
    }
}

async fn read(output: Receiver, emulation: Arc<Mutex<Emulation>>) {
    let mut bytes = vec![0; 64 << 10];
    while output.readable().await.is_ok() {
        match output.try_read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => return,
            Ok(read) => {
                let mut emulation = emulation.lock().unwrap();
                emulation.parser.process(&bytes[..read]);
                emulation.bytes.extend_from_slice(&bytes[..read]);
            }
        }
    }
}

fn window((columns, rows): (u16, u16)) -> Winsize {
    Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }
}

fn cells((columns, rows): (u16, u16)) -> (NonZeroU16, NonZeroU16) {
    (NonZeroU16::new(columns).unwrap(), NonZeroU16::new(rows).unwrap())
}

fn settings(line: &OwnedFd) -> String {
    let settings: io::Result<_> = tcgetattr(line).map_err(Into::into);
    format!("{settings:?}")
}

impl Asked {
    fn note(&mut self, what: String) {
        self.0.push(what);
    }
}

impl vt100::Callbacks for Asked {
    fn audible_bell(&mut self, _: &mut vt100::Screen) {
        self.note("bell".into());
    }

    fn visual_bell(&mut self, _: &mut vt100::Screen) {
        self.note("visual bell".into());
    }

    fn resize(&mut self, _: &mut vt100::Screen, request: (u16, u16)) {
        self.note(format!("resize {request:?}"));
    }

    fn set_window_icon_name(&mut self, _: &mut vt100::Screen, name: &[u8]) {
        self.note(format!("icon {}", String::from_utf8_lossy(name)));
    }

    fn set_window_title(&mut self, _: &mut vt100::Screen, title: &[u8]) {
        self.note(format!("title {}", String::from_utf8_lossy(title)));
    }

    fn copy_to_clipboard(&mut self, _: &mut vt100::Screen, _: &[u8], data: &[u8]) {
        self.note(format!("copy {}", data.escape_ascii()));
    }

    fn paste_from_clipboard(&mut self, _: &mut vt100::Screen, _: &[u8]) {
        self.note("paste".into());
    }

    fn unhandled_control(&mut self, _: &mut vt100::Screen, byte: u8) {
        self.note(format!("control {byte:#04x}"));
    }

    fn unhandled_escape(
        &mut self,
        _: &mut vt100::Screen,
        first: Option<u8>,
        second: Option<u8>,
        byte: u8,
    ) {
        let all = first.into_iter().chain(second).chain([byte]);
        self.note(format!("ESC {}", all.map(char::from).collect::<String>()));
    }

    fn unhandled_csi(
        &mut self,
        _: &mut vt100::Screen,
        first: Option<u8>,
        _: Option<u8>,
        params: &[&[u16]],
        end: char,
    ) {
        let mark = first.map(|mark| char::from(mark).to_string()).unwrap_or_default();
        let params: Vec<String> =
            params.iter().flat_map(|all| all.iter()).map(ToString::to_string).collect();
        self.note(format!("CSI {mark}{}{end}", params.join(";")));
    }

    fn unhandled_osc(&mut self, _: &mut vt100::Screen, params: &[&[u8]]) {
        let params: Vec<String> =
            params.iter().map(|param| param.escape_ascii().to_string()).collect();
        self.note(format!("OSC {}", params.join(";")));
    }
}
