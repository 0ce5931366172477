//! Hostile texts, each through an emulator: nothing but their letters arrives there.

use proptest::prelude::*;
use vt100::{Callbacks, Parser, Screen};

use super::*;

/// What must come out of each text.
fn table() -> Vec<(String, String)> {
    let mut table: Vec<(String, String)> = [
        // Colours are dropped, with their parameters in every form.
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[m", ""),
        ("\x1b[38;2;1;2;3mx", "x"),
        ("\x1b[38:5:196mx", "x"),
        ("\u{9b}1mx", "x"),
        // What looks like them and is something else.
        ("\x1b[>4;2m", "␛[>4;2m"),
        ("\x1b[?4m", "␛[?4m"),
        ("\x1b[1 m", "␛[1 m"),
        ("\x1b[31\x1b[32mx", "␛[31x"),
        ("\x1b[31\nm", "␛[31\nm"),
        ("\x1b[31ä", "␛[31ä"),
        ("\x1b[31", "␛[31"),
        ("\x1b[", "␛["),
        ("\x1b", "␛"),
        ("\x1b\x1b[31m[2J", "␛[2J"),
        ("\x1b[\x1b[31m2J", "␛[2J"),
        ("\x1b[1m\x1b\x1b[1m[2J", "␛[2J"),
        // Titles, links, clipboards, notices, files.
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("\x1b]0;title\x1b\\", "␛]0;title␛\\"),
        ("\x1b]1;icon\x07", "␛]1;icon␇"),
        ("\x1b]2;title\u{9c}", "␛]2;title<U+009C>"),
        ("\u{9d}2;title\u{9c}", "<U+009D>2;title<U+009C>"),
        ("\x1b]4;1;?\x07", "␛]4;1;?␇"),
        ("\x1b]7;file:///etc\x07", "␛]7;file:///etc␇"),
        ("\x1b]8;;http://evil\x07text\x1b]8;;\x07", "␛]8;;http://evil␇text␛]8;;␇"),
        ("\x1b]9;notice\x07", "␛]9;notice␇"),
        ("\x1b]9;4;1;50\x07", "␛]9;4;1;50␇"),
        ("\x1b]10;?\x07", "␛]10;?␇"),
        ("\x1b]11;#fff\x07", "␛]11;#fff␇"),
        ("\x1b]12;red\x07", "␛]12;red␇"),
        ("\x1b]50;font\x07", "␛]50;font␇"),
        ("\x1b]52;c;cm0gLXJm\x07", "␛]52;c;cm0gLXJm␇"),
        ("\x1b]52;c;?\x07", "␛]52;c;?␇"),
        ("\x1b]104\x07", "␛]104␇"),
        ("\x1b]133;A\x07", "␛]133;A␇"),
        ("\x1b]633;E;rm\x07", "␛]633;E;rm␇"),
        ("\x1b]777;notify;a;b\x07", "␛]777;notify;a;b␇"),
        ("\x1b]1337;File=:AAAA\x07", "␛]1337;File=:AAAA␇"),
        ("\x1b]1337;SetUserVar=a=b\x07", "␛]1337;SetUserVar=a=b␇"),
        ("\x1b]lsecret\x1b\\", "␛]lsecret␛\\"),
        ("\x1b]0;unterminated", "␛]0;unterminated"),
        ("\x1b]0;a\x1b]52;c;b\x07c\x07", "␛]0;a␛]52;c;b␇c␇"),
        ("\x1b]0;\x1b[31mred\x07", "␛]0;red␇"),
        // Strings for the device, the program, the curious.
        ("\x1bPq#0;2;0;0;0~\x1b\\", "␛Pq#0;2;0;0;0~␛\\"),
        ("\x1bP$qm\x1b\\", "␛P$qm␛\\"),
        ("\x1bP+q544e\x1b\\", "␛P+q544e␛\\"),
        ("\x1bPtmux;\x1b\x1b]52;c;b\x07\x1b\\", "␛Ptmux;␛␛]52;c;b␇␛\\"),
        ("\u{90}1$r\u{9c}", "<U+0090>1$r<U+009C>"),
        ("\x1b_Ga=T;AAAA\x1b\\", "␛_Ga=T;AAAA␛\\"),
        ("\u{9f}G\u{9c}", "<U+009F>G<U+009C>"),
        ("\x1b^private\x1b\\", "␛^private␛\\"),
        ("\u{9e}p\u{9c}", "<U+009E>p<U+009C>"),
        ("\x1bXstring\x1b\\", "␛Xstring␛\\"),
        ("\u{98}s\u{9c}", "<U+0098>s<U+009C>"),
        ("\x1bkname\x1b\\", "␛kname␛\\"),
        // Modes and reports.
        ("\x1b[?1049h", "␛[?1049h"),
        ("\x1b[?1049l", "␛[?1049l"),
        ("\x1b[?2004h", "␛[?2004h"),
        ("\x1b[?1000;1006h", "␛[?1000;1006h"),
        ("\x1b[?25l", "␛[?25l"),
        ("\x1b[?7l", "␛[?7l"),
        ("\x1b[?2026h", "␛[?2026h"),
        ("\x1b[4h", "␛[4h"),
        ("\x1b[6n", "␛[6n"),
        ("\x1b[c", "␛[c"),
        ("\x1b[>c", "␛[>c"),
        ("\x1b[21t", "␛[21t"),
        ("\x1b[8;1;1t", "␛[8;1;1t"),
        ("\x1b[>1u", "␛[>1u"),
        ("\x1b[!p", "␛[!p"),
        ("\x1b[2 q", "␛[2 q"),
        ("\x1b[200~rm -rf /\x1b[201~", "␛[200~rm -rf /␛[201~"),
        // Sequences of two bytes.
        ("\x1bc", "␛c"),
        ("\x1b7", "␛7"),
        ("\x1b8", "␛8"),
        ("\x1bD", "␛D"),
        ("\x1bE", "␛E"),
        ("\x1bH", "␛H"),
        ("\x1bM", "␛M"),
        ("\x1bN", "␛N"),
        ("\x1bO", "␛O"),
        ("\x1bZ", "␛Z"),
        ("\x1b=", "␛="),
        ("\x1b>", "␛>"),
        ("\x1b#8", "␛#8"),
        ("\x1b(0", "␛(0"),
        ("\x1b)B", "␛)B"),
        ("\x1b%G", "␛%G"),
        ("\x1b F", "␛ F"),
        // Line ends.
        ("a\r\nb", "a\nb"),
        ("100%\rdone", "100%␍done"),
        ("a\r", "a␍"),
        ("a\r\r\nb", "a␍\nb"),
        ("a\r\x1b[31mb", "a␍b"),
        ("a\u{85}b", "a<U+0085>b"),
        ("a\u{2028}b\u{2029}c", "a<U+2028>b<U+2029>c"),
        // What is not UTF-8 has become replacement characters.
        ("\u{fffd}\u{fffd}[2J", "\u{fffd}\u{fffd}[2J"),
        // Directions.
        ("\u{202e}gpj.exe", "<U+202E>gpj.exe"),
        ("a\u{202a}b\u{202c}", "a<U+202A>b<U+202C>"),
        ("a\u{2066}b\u{2069}", "a<U+2066>b<U+2069>"),
        ("\u{61c}\u{200e}\u{200f}", "<U+061C><U+200E><U+200F>"),
        // What has no width.
        ("pay\u{200b}pal", "pay<U+200B>pal"),
        ("a\u{200c}b", "a<U+200C>b"),
        ("a\u{200d}b", "a<U+200D>b"),
        ("a\u{2060}b\u{2064}", "a<U+2060>b<U+2064>"),
        ("\u{feff}a", "<U+FEFF>a"),
        ("a\u{ad}b", "a<U+00AD>b"),
        ("a\u{34f}b", "a<U+034F>b"),
        ("\u{3164}\u{ffa0}\u{115f}", "<U+3164><U+FFA0><U+115F>"),
        ("a\u{180e}b", "a<U+180E>b"),
        ("\u{e0001}\u{e0041}\u{e007f}", "<U+E0001><U+E0041><U+E007F>"),
        ("🏴\u{e0067}\u{e007f}", "🏴<U+E0067><U+E007F>"),
        ("a\u{fe0f}", "a<U+FE0F>"),
        ("a\u{e0101}", "a<U+E0101>"),
        ("😀\u{e0101}", "😀<U+E0101>"),
        // Emoji keep what holds them together, once.
        ("👩\u{200d}💻", "👩\u{200d}💻"),
        ("👩🏽\u{200d}💻", "👩🏽\u{200d}💻"),
        ("❤\u{fe0f}\u{200d}🔥", "❤\u{fe0f}\u{200d}🔥"),
        ("☺\u{fe0e}", "☺\u{fe0e}"),
        ("1\u{fe0f}\u{20e3}", "1\u{fe0f}\u{20e3}"),
        ("1\u{fe0f}2", "1<U+FE0F>2"),
        ("1\u{fe0f}", "1<U+FE0F>"),
        ("😀\u{fe0f}\u{fe0f}", "😀\u{fe0f}<U+FE0F>"),
        ("👩\u{200d}", "👩<U+200D>"),
        ("👩\u{200d}x", "👩<U+200D>x"),
        ("👩\u{200d}\x1b[31m💻", "👩<U+200D>💻"),
        ("👩\u{200d}\u{200d}💻", "👩<U+200D><U+200D>💻"),
        ("x\u{200d}💻", "x<U+200D>💻"),
        // Marks stand on something, and are few.
        ("e\u{301}", "e\u{301}"),
        ("\u{301}e", "<U+0301>e"),
        ("a\n\u{301}e", "a\n<U+0301>e"),
        ("a\t\u{301}e", "a\t<U+0301>e"),
        ("plain, ümläut, 漢字\tand\n\n", "plain, ümläut, 漢字\tand\n\n"),
    ]
    .map(|(hostile, shown)| (hostile.to_owned(), shown.to_owned()))
    .into();
    for last in '@'..='~' {
        if last != 'm' {
            table.push((format!("a\x1b[2;3{last}b"), format!("a␛[2;3{last}b")));
        }
        table.push((format!("a\u{9b}?1{last}b"), format!("a<U+009B>?1{last}b")));
    }
    for code in (0..0x20_u8).filter(|code| !b"\t\n\r\x1b".contains(code)) {
        let picture = char::from_u32(0x2400 + u32::from(code)).unwrap();
        table.push((format!("a{}b", char::from(code)), format!("a{picture}b")));
    }
    table.push(("a\u{7f}b".into(), "a␡b".into()));
    for code in (0x80..0xa0_u32).filter(|&code| code != 0x9b) {
        let c = char::from_u32(code).unwrap();
        table.push((format!("a{c}b"), format!("a<U+{code:04X}>b")));
    }
    table.push((mark_flood(8), mark_flood(8)));
    table.push((mark_flood(9), mark_flood(8) + "<U+0301>"));
    table.push((colour_of(HELD_BYTES_MAX) + "x", "x".into()));
    table.push((
        colour_of(HELD_BYTES_MAX + 1) + "x",
        colour_of(HELD_BYTES_MAX + 1).replace('\x1b', "␛") + "x",
    ));
    table.push((colour_of(3 * HELD_BYTES_MAX), colour_of(3 * HELD_BYTES_MAX).replace('\x1b', "␛")));
    let title = format!("\x1b]0;{}\x07", "t".repeat(2 * HELD_BYTES_MAX));
    table.push((title.clone(), title.replace('\x1b', "␛").replace('\x07', "␇")));
    for overlong in
        [&b"\xc0\x9b2J"[..], b"\xe0\x80\x9b[2J", b"\x9b2J", b"\xc2[2J", b"\xf0\x80\x80\x9b\x1b[2J"]
    {
        let lossy = String::from_utf8_lossy(overlong).into_owned();
        table.push((lossy.clone(), lossy.replace('\x1b', "␛")));
    }
    table
}

fn mark_flood(marks: usize) -> String {
    format!("a{}", "\u{301}".repeat(marks))
}

fn colour_of(bytes: usize) -> String {
    format!("\x1b[{}m", "1".repeat(bytes - 3))
}

#[test]
fn hostile_texts_become_what_they_are() {
    let table = table();
    assert!(table.len() >= 200, "{}", table.len());
    for (hostile, shown) in table {
        assert_eq!(Shown::from(hostile.as_str()).as_str(), shown, "{hostile:?}");
    }
}

#[test]
fn hostile_texts_come_out_alike_wherever_they_are_split() {
    for (hostile, shown) in table().into_iter().filter(|(hostile, _)| hostile.len() < 100) {
        for (at, _) in hostile.char_indices() {
            let mut sieve = Sieve::default();
            let halves = [sieve.push(&hostile[..at]), sieve.push(&hostile[at..]), sieve.finish()];
            assert_eq!(halves.concat(), shown, "{hostile:?} at {at}");
        }
    }
}

#[test]
fn no_hostile_text_touches_more_of_an_emulator_than_its_cells() {
    for (hostile, _) in table() {
        let shown = Shown::from(hostile.as_str());
        let mut parser = emulator();
        parser.process(b"above\r\n");
        let before = parser.screen().clone();
        parser.process(shown.as_str().replace('\n', "\r\n").as_bytes());
        let screen = parser.screen();
        assert_eq!(parser.callbacks().0, Vec::<String>::new(), "{hostile:?}");
        assert_eq!(screen.input_mode_formatted(), before.input_mode_formatted(), "{hostile:?}");
        assert_eq!(screen.attributes_formatted(), before.attributes_formatted(), "{hostile:?}");
        assert_eq!(screen.alternate_screen(), before.alternate_screen(), "{hostile:?}");
        assert_eq!(screen.hide_cursor(), before.hide_cursor(), "{hostile:?}");
        // This emulator leaves replacement characters out.
        let expected = format!("above\n{}", shown.as_str().replace('\u{fffd}', ""));
        let tabs = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(tabs(&screen.contents()), tabs(&expected), "{hostile:?}");
        // Whatever is written next stands right behind the text, in the style it had before.
        parser.process(b"!");
        assert!(parser.screen().contents().trim_end().ends_with('!'), "{hostile:?}");
    }
}

/// The emulator would notice: each of these does something when it is not made harmless.
#[test]
fn the_emulator_shows_what_hostile_text_would_do() {
    for hostile in ["\x1b]0;title\x07", "\x1b]52;c;cm0=\x07", "\x07"] {
        let mut parser = emulator();
        parser.process(hostile.as_bytes());
        assert_ne!(parser.callbacks().0, Vec::<String>::new(), "{hostile:?}");
    }
}

#[derive(Default)]
struct Noticed(Vec<String>);

impl Callbacks for Noticed {
    fn audible_bell(&mut self, _: &mut Screen) {
        self.0.push("bell".into());
    }
    fn visual_bell(&mut self, _: &mut Screen) {
        self.0.push("flash".into());
    }
    fn resize(&mut self, _: &mut Screen, _: (u16, u16)) {
        self.0.push("resize".into());
    }
    fn set_window_icon_name(&mut self, _: &mut Screen, _: &[u8]) {
        self.0.push("icon".into());
    }
    fn set_window_title(&mut self, _: &mut Screen, _: &[u8]) {
        self.0.push("title".into());
    }
    fn copy_to_clipboard(&mut self, _: &mut Screen, _: &[u8], _: &[u8]) {
        self.0.push("copy".into());
    }
    fn paste_from_clipboard(&mut self, _: &mut Screen, _: &[u8]) {
        self.0.push("paste".into());
    }
    fn unhandled_control(&mut self, _: &mut Screen, byte: u8) {
        self.0.push(format!("control {byte}"));
    }
    fn unhandled_escape(&mut self, _: &mut Screen, _: Option<u8>, _: Option<u8>, byte: u8) {
        self.0.push(format!("escape {byte}"));
    }
    fn unhandled_osc(&mut self, _: &mut Screen, _: &[&[u8]]) {
        self.0.push("osc".into());
    }
}

fn emulator() -> Parser<Noticed> {
    Parser::new_with_callbacks(
        100.try_into().unwrap(),
        250.try_into().unwrap(),
        0,
        Noticed::default(),
    )
}

#[test]
fn what_is_judged_has_every_foreign_character_underlined() {
    let spans = Shown::suspicious("cat /etс/\x1b[8mpasswd\u{202e}", Style::BOLD);
    let parts: Vec<(&str, bool)> =
        spans.iter().map(|s| (s.text.as_str(), s.style.underline)).collect();
    assert_eq!(
        parts,
        [
            ("cat /et", false),
            ("с", true),
            ("/", false),
            ("␛", true),
            ("[8mpasswd", false),
            ("<U+202E>", true)
        ]
    );
    assert!(spans.iter().all(|span| span.style.bold));
    assert_eq!(Shown::suspicious("", Style::PLAIN), []);
}

fn pieces() -> impl Strategy<Value = Vec<String>> {
    let nasty = prop_oneof![
        "\\PC{0,6}",
        any::<String>(),
        Just("\x1b".to_owned()),
        Just("[".to_owned()),
        Just("1;2".to_owned()),
        Just("m".to_owned()),
        Just("\r".to_owned()),
        Just("\n".to_owned()),
        Just("👩".to_owned()),
        Just("\u{200d}".to_owned()),
        Just("\u{fe0f}".to_owned()),
        Just("\u{301}".to_owned()),
        Just("\u{9b}".to_owned()),
    ];
    proptest::collection::vec(nasty, 0..20)
}

proptest! {
    #[test]
    fn any_text_in_any_pieces_is_harmless(pieces in pieces()) {
        let whole = Shown::from(pieces.concat());
        let mut sieve = Sieve::default();
        let mut joined: String = pieces.iter().map(|piece| sieve.push(piece)).collect();
        joined.push_str(&sieve.finish());
        prop_assert_eq!(whole.as_str(), &joined);
        prop_assert!(!joined.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
        let again = Shown::from(joined.as_str());
        prop_assert_eq!(again.as_str(), &joined, "what is harmless stays as it is");
    }
}
