//! Markdown in, lines out; and what holds for any Markdown in any pieces.

use proptest::prelude::*;

use super::*;
use crate::style::Colour;

const LOOK: Look = Look { width: 40, wrap: Wrap::Word, theme: Theme::Ansi };

fn render(source: &str) -> Vec<Line> {
    let mut markdown = Markdown::new(LOOK);
    let mut lines = markdown.push(source);
    lines.extend(markdown.finish());
    lines
}

fn check(source: &str, expected: &[&str]) {
    let lines: Vec<String> = render(source).iter().map(Line::text).collect();
    assert_eq!(lines, expected, "{source}");
}

#[test]
fn blocks_become_lines() {
    check("", &[]);
    check("one\ntwo", &["one two"]);
    check("one  \ntwo\\\nthree", &["one", "two", "three"]);
    check("\n\none\n\n\n\ntwo\n\n", &["one", "", "two"]);
    check("# Title\ntext\n## Second ##", &["Title", "text", "Second"]);
    check("Title\n===\nSecond\n---\ntext", &["Title", "Second", "text"]);
    check("#hash tag", &["#hash tag"]);
    check("a\n\n---\n\nb", &["a", "", &"─".repeat(40), "", "b"]);
    check(
        "- a\n- b\n  more\n  - c\n\n  second\n\nafter",
        &["• a", "• b more", "  • c", "", "  second", "", "after"],
    );
    check("1. a\n2) b\n10. c", &["1. a", "2) b", "10. c"]);
    check("> one\ntwo\n>> three", &["│ one two", "│ │ three"]);
    check("    code\n\tmore\n", &["code", "more"]);
    check("text\n    more", &["text more"]);
    check("[ref]: http://a", &["[ref]: http://a"]);
    check("<div>\nraw\n</div>", &["<div> raw </div>"]);
    check("**not a list\n-5 degrees", &["**not a list -5 degrees"]);
}

#[test]
fn code_is_left_as_it_is() {
    check("```rust\nfn  main() {\n\n\t}\n```\nafter", &["fn  main() {", "", "\t}", "after"]);
    check("````\n```\n````", &["```"]);
    check("~~~\n```\n~~~~", &["```"]);
    check("- a\n  ```\n  code\n    deeper\n  ```\n- b", &["• a", "code", "  deeper", "• b"]);
    check("1. ```\n   code\n   ```", &["1. ", "code"]);
    check("> ```\n> code\n> ```\n> after", &["code", "│ after"]);
    check("> ```\n> code\nafter", &["code", "after"]);
    check("```\n# never closed", &["# never closed"]);
    let long = "word ".repeat(100);
    check(&format!("```\n{long}\n```"), &[&long]);
}

/// Long lines are taken in before they end, but only those of prose.
#[test]
fn long_lines_are_what_short_ones_are() {
    let long = "1234567 ".repeat(2 * UNDECIDED_BYTES_MAX / 8);
    let long = long.trim_end();
    for before in ["", "a\n", "> a\n", "- a\n", "> - a\n", "|a\n", "> ```\n", "```\n", "a\n\n"] {
        for start in [
            "", "    ", "    1. ", "- ", "# ", "> ", ">     ", "|", "- ```", "```", "> - ", "`",
            "**",
        ] {
            let source = format!("{before}{start}{long}\nafter 9");
            let fence = start.ends_with("```") && before != "```\n";
            let expected = if fence { "9".to_owned() } else { digits(&source) };
            assert_eq!(said(&render(&source)), expected, "{before:?} {start:?}");
        }
    }
    check(&format!("> a\n    1. {long}"), &["│ a", &format!("1. {long}")]);
}

#[test]
fn prose_is_broken_at_words_and_nothing_else() {
    let text = "aaaaaaaaa bbbbbbbbb ccccccccc ddddddddd";
    check(&format!("{text}d"), &[&format!("{text}d")]);
    check(&format!("{text}dd"), &["aaaaaaaaa bbbbbbbbb ccccccccc", "ddddddddddd"]);
    let address = format!("https://example.org/{}", "a".repeat(60));
    check(&format!("see {address} there"), &["see", &address, "there"]);
    check(
        "run `cargo test --workspace --all-features --locked` now",
        &["run", "cargo test --workspace --all-features --locked", "now"],
    );
    check(
        "1. aaaaaaaaa bbbbbbbbb ccccccccc ddddddddd",
        &["1. aaaaaaaaa bbbbbbbbb ccccccccc", "   ddddddddd"],
    );
    check(&"漢".repeat(21), &[&"漢".repeat(20), "漢"]);
    check(&format!("{}。", "漢".repeat(20)), &[&"漢".repeat(19), "漢。"]);
}

#[test]
fn the_terminal_may_do_the_breaking() {
    let mut markdown = Markdown::new(Look { wrap: Wrap::Terminal, ..LOOK });
    let text = "word ".repeat(20_000);
    assert_eq!(markdown.push(&text), []);
    assert!(
        markdown.open()[0].width() <= OPEN_BYTES_MAX,
        "what is looked at again and again is bounded"
    );
    assert_eq!(markdown.overflow(1), []);
    let lines = markdown.finish();
    assert_eq!((lines.len(), lines[0].text().as_str()), (1, text.trim_end()));
}

#[test]
fn marks_become_styles() {
    let lines = render("a **b *c*** `d  e` [f](https://x.y) \\*g\\* &amp;");
    let parts: Vec<(&str, Style, Option<&str>)> = lines[0]
        .spans
        .iter()
        .map(|span| (span.text.as_str(), span.style, span.link.as_ref().map(Shown::as_str)))
        .collect();
    let link = Style { underline: true, ..Style::PLAIN };
    let web = Some("https://x.y");
    assert_eq!(
        parts[..6],
        [
            ("a ", Style::PLAIN, None),
            ("b", Style::BOLD, None),
            (" ", Style::PLAIN, None),
            ("c", Style { italic: true, ..Style::BOLD }, None),
            (" ", Style::PLAIN, None),
            ("d  e", Style::colour(Colour::Cyan), None),
        ]
    );
    assert_eq!(
        parts[6..],
        [
            (" ", Style::PLAIN, None),
            ("f", link, web),
            (" ", Style::PLAIN, None),
            ("(https://x.y)", Style::DIM, web),
            (" *g* &", Style::PLAIN, None),
        ]
    );
    assert_eq!(
        render("# *a*")[0].spans[0].style,
        Style { italic: true, underline: true, ..Style::BOLD }
    );
}

#[test]
fn links_lead_to_the_web_alone_and_say_where() {
    let link = |source: &str| {
        let line = render(source).remove(0);
        (line.text(), line.spans[0].link.as_ref().map(|link| link.as_str().to_owned()))
    };
    let address = "https://x.y".to_owned();
    assert_eq!(link("<https://x.y>"), (address.clone(), Some(address.clone())));
    assert_eq!(link("[https://x.y](https://x.y)"), (address.clone(), Some(address)));
    assert_eq!(link("[a](file:///etc/passwd)"), ("a (file:///etc/passwd)".into(), None));
    assert_eq!(link("[a](javascript:x)"), ("a (javascript:x)".into(), None));
    assert_eq!(link("[a](https://x&#10;y)").1, None);
    assert_eq!(link("![a](http://x)"), ("a (http://x)".into(), Some("http://x".into())));
}

/// They name characters that were not in the source when it was made harmless.
#[test]
fn entities_bring_nothing_in() {
    check("a&#27;[2Jb&#x202e;c&#10;d&#x9b;e", &["a␛[2Jb<U+202E>c d<U+009B>e"]);
    check(
        "| a&#10;b | c |\n|---|---|\n| &#27; | e |",
        &["| a b | c |", "|-----|---|", "| ␛   | e |"],
    );
}

#[test]
fn tables_are_aligned_where_they_fit() {
    check(
        "| a | **bold** |\n|---|---:|\n| 1 | 2 |\n| long cell | `x` |\nafter",
        &[
            "| a         | bold |",
            "|-----------|------|",
            "| 1         |    2 |",
            "| long cell |    x |",
            "after",
        ],
    );
    check("a | b\n--- | ---\n1 | 2", &["| a | b |", "|---|---|", "| 1 | 2 |"]);
    check("|a|b|\n|-|-|\n|1|\n", &["| a | b |", "|---|---|", "| 1 |   |"]);
    check("|a \\| b|\n|-|\n", &["| a | b |", "|-------|"]);
    let wide = format!("|{}|b|", "a".repeat(32));
    check(
        &format!("{wide}\n|-|-|"),
        &[&format!("| {} | b |", "a".repeat(32)), &format!("|{}|---|", "-".repeat(34))],
    );
    let too_wide = format!("|{}|b|", "a".repeat(33));
    check(&format!("{too_wide}\n|-|-|"), &[&too_wide, "|-|-|"]);
    check("|no table\n|1|2|", &["|no table", "|1|2|"]);
}

#[test]
fn a_table_is_held_until_it_ends_or_is_long() {
    let mut markdown = Markdown::new(LOOK);
    assert_eq!(markdown.push("|a|b|\n|-|-|\n"), []);
    for row in 0..table::ROWS_MAX - 3 {
        assert_eq!(markdown.push(&format!("|{row}|x|\n")), [], "{row}");
    }
    assert_eq!(markdown.open().len(), table::ROWS_MAX - 1);
    assert_eq!(markdown.push("|last|x|\n").len(), table::ROWS_MAX);
    assert_eq!(markdown.push("|1|y|\n")[0].text(), "| 1    | y |");
    assert_eq!(markdown.finish(), []);

    let mut markdown = Markdown::new(LOOK);
    markdown.push("|a|\n|-|\n");
    let row = |bytes: usize| format!("|{}|\n", "x".repeat(bytes - 2));
    assert_eq!(markdown.push(&row(table::BYTES_MAX - 7)), []);
    assert_eq!(markdown.push("|\n").len(), 4);
}

#[test]
fn items_and_lines_of_code_are_finished_one_by_one() {
    let mut markdown = Markdown::new(LOOK);
    assert_eq!(markdown.push("- a\n"), []);
    assert_eq!(markdown.push("- b\n- ").len(), 1);
    assert_eq!(markdown.push("c\n```sh\nls\ncd").len(), 3);
    let open: Vec<String> = markdown.open().iter().map(Line::text).collect();
    assert_eq!(open, ["cd"]);
    assert_eq!(markdown.push("\n").len(), 1);
}

#[test]
fn the_open_block_can_be_looked_at() {
    let open = |source: &str| {
        let mut markdown = Markdown::new(LOOK);
        markdown.push(source);
        markdown.open().iter().map(Line::text).collect::<Vec<_>>()
    };
    assert_eq!(open("some **bo"), ["some bo"]);
    assert_eq!(open("text\n-"), ["text"], "what may become a list or a heading is not shown yet");
    assert_eq!(open("text\n``"), ["text"]);
    assert_eq!(open("one\n\ntwo"), ["", "two"]);
    assert_eq!(open("```\nls\n"), Vec::<String>::new());
    assert_eq!(open(&format!("```\n{}", "a".repeat(10_000))), ["a".repeat(OPEN_CODE_BYTES_MAX)]);
}

#[test]
fn open_marks_are_closed_while_they_are_looked_at() {
    for (open, closed) in [
        ("a **b", "a **b**"),
        ("a **b ", "a **b**"),
        ("a **b*", "a **b**"),
        ("a **b**", "a **b**"),
        ("a **", "a **"),
        ("2 ** 3", "2 ** 3"),
        ("a `b c", "a `b c`"),
        ("a `", "a `"),
        ("a ``b ` c", "a ``b ` c``"),
        ("`**` b", "`**` b"),
        ("**a `b", "**a `b`**"),
        ("\\**a", "\\**a"),
        ("\\`a", "\\`a"),
        ("\\", "\\"),
        ("*a", "*a"),
    ] {
        assert_eq!(inline::closed(open), closed);
    }
    let mut markdown = Markdown::new(LOOK);
    markdown.push("a **b");
    assert_eq!(markdown.open(), render("a **b**"));
    markdown.push("\nc");
    assert_eq!(markdown.open(), render("a **b c**"));
    assert_eq!(markdown.finish(), render("a **b c"), "what is never closed is printed as it is");
}

#[test]
fn prose_that_outgrows_its_room_is_finished_but_for_its_last_row() {
    let mut markdown = Markdown::new(LOOK);
    markdown.push("1. **bold words that go on and on** and plain ones that go on and on, *then these that lean");
    assert_eq!(markdown.open().len(), 3);
    assert_eq!(markdown.overflow(3), []);
    let finished: Vec<String> = markdown.overflow(2).iter().map(Line::text).collect();
    assert_eq!(
        finished,
        ["1. bold words that go on and on and", "   plain ones that go on and on, *then"]
    );
    assert_eq!(markdown.open()[0].text(), "   these that lean");

    let mut markdown = Markdown::new(LOOK);
    markdown.push("**bold words that go on and on and on and on** plain words after them");
    let finished = markdown.overflow(1);
    assert!(finished[0].spans.iter().all(|span| span.style.bold));
    let rest = markdown.finish();
    assert_eq!(rest[0].text(), "on plain words after them");
    assert_eq!(rest[0].spans[0].style, Style::BOLD, "emphasis goes on over the cut");
}

/// Looking at it after each piece is what the screen does, so that is bounded as well.
#[test]
fn the_work_grows_as_the_text_does() {
    let word = "word ".repeat(200_000);
    let code = format!("```\n{}", "let a = 1;\n".repeat(20_000));
    let items = "- item\n".repeat(20_000);
    let table = "|a|b|\n".repeat(20_000);
    for source in [word.clone(), word.replace(' ', ""), code, items, table, "**a ".repeat(40_000)] {
        let before = work::bytes();
        let mut markdown = Markdown::new(LOOK);
        let mut printed = 0;
        for piece in source.as_bytes().chunks(50) {
            printed += markdown.push(std::str::from_utf8(piece).unwrap()).len();
        }
        printed += markdown.finish().len();
        let parsed = work::bytes() - before;
        assert!(parsed <= 4 * source.len(), "{parsed} for {}", source.len());
        assert!(printed > 0);
    }
}

#[test]
fn looking_never_costs_more_than_a_bounded_block() {
    let mut markdown = Markdown::new(LOOK);
    for _ in 0..100 {
        markdown.push(&"endless".repeat(2_000));
        let before = work::bytes();
        markdown.open();
        assert!(work::bytes() - before <= OPEN_BYTES_MAX);
    }
}

/// Markdown of every kind, in which each digit is text and nothing else is.
fn source() -> impl Strategy<Value = String> {
    let words = proptest::collection::vec(
        prop_oneof![
            4 => "[0-9]{1,9}",
            1 => "\\*\\*[0-9]{1,5} [0-9]{1,5}\\*\\*",
            1 => "\\*[0-9]{1,5}\\*",
            1 => "_[0-9]{1,5} [0-9]{1,3}_",
            1 => "`[0-9]{1,5} [0-9]{1,5}`",
            1 => "\\[[0-9]{1,5} [0-9]\\]\\(https://a\\.b\\)",
            1 => "<b>[0-9]{1,3}</b>",
            1 => "\\\\\\*[0-9]{1,3}",
            1 => "[漢字]{1,3}[0-9]",
            1 => Just("**".to_owned()),
            1 => Just("`".to_owned()),
            1 => Just("[".to_owned()),
            1 => Just("](".to_owned()),
            1 => Just("|".to_owned()),
        ],
        1..40,
    )
    .prop_map(|words| words.join(" "));
    let block = prop_oneof![
        words.clone().prop_map(|words| format!("a{words}\n")),
        words.clone().prop_map(|words| format!("a{words}  \n")),
        words.clone().prop_map(|words| format!("## {words}\n")),
        words.clone().prop_map(|words| format!("- {words}\n")),
        words.clone().prop_map(|words| format!("   1. {words}\n")),
        words.clone().prop_map(|words| format!("> {words}\n")),
        words.clone().prop_map(|words| format!("    {words}\n")),
        words.clone().prop_map(|words| format!("```sh\n{words}\n\n{words}\n```\n")),
        words.clone().prop_map(|words| format!("> ~~~\n> {words}\n> ~~~\n")),
        words.clone().prop_map(|words| format!("|{words}|\n|-|-|\n|{words}|\n")),
        Just("\n".to_owned()),
        Just("---\n".to_owned()),
        Just("===\n".to_owned()),
        Just("```\n".to_owned()),
        Just("-\n".to_owned()),
        "[-*#>`|= \n0-9a]{0,12}",
    ];
    proptest::collection::vec(block, 0..12).prop_map(|blocks| blocks.concat())
}

fn digits(text: &str) -> String {
    text.chars().filter(char::is_ascii_digit).collect()
}

fn said(lines: &[Line]) -> String {
    lines.iter().map(|line| digits(&line.text())).collect()
}

proptest! {
    #[test]
    fn all_that_is_said_is_shown_once_and_in_order(source in source()) {
        prop_assert_eq!(said(&render(&source)), digits(&source));
    }

    #[test]
    fn pieces_come_to_the_same_lines(source in source(), size in 1..40_usize) {
        let mut markdown = Markdown::new(LOOK);
        let mut lines = Vec::new();
        let characters: Vec<char> = source.chars().collect();
        for piece in characters.chunks(size) {
            lines.extend(markdown.push(&piece.iter().collect::<String>()));
            markdown.open();
        }
        lines.extend(markdown.finish());
        prop_assert_eq!(lines, render(&source));
    }

    #[test]
    fn nothing_is_lost_where_room_is_short(source in source(), size in 1..40_usize, rows_max in 0..4_usize) {
        let mut markdown = Markdown::new(LOOK);
        let mut lines = Vec::new();
        let characters: Vec<char> = source.chars().collect();
        for piece in characters.chunks(size) {
            lines.extend(markdown.push(&piece.iter().collect::<String>()));
            lines.extend(markdown.overflow(rows_max));
        }
        lines.extend(markdown.finish());
        prop_assert_eq!(said(&lines), digits(&source));
    }

    #[test]
    fn any_text_is_rendered(pieces in proptest::collection::vec("\\PC{0,20}|[\n\t*_`#>|~\\[\\]()<&;-]{0,20}", 0..20)) {
        let source = Shown::from(pieces.concat());
        for line in render(source.as_str()) {
            prop_assert!(!line.text().contains('\n'));
        }
    }
}

#[test]
fn code_is_coloured_and_stays_where_it_is() {
    let mut markdown = Markdown::new(LOOK).with_highlighter(Highlighter::new(Theme::Ansi));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        // The first code may be plain, for nobody waits until the languages are read.
        let lines = markdown.push("before\n```rust\nfn a() {}\n```\n\nafter\n\n");
        let texts: Vec<String> = lines.iter().map(Line::text).collect();
        assert_eq!(
            texts.iter().rev().take(4).rev().collect::<Vec<_>>(),
            ["before", "fn a() {}", "", "after"]
        );
        if lines[lines.len() - 3].spans[0].style.colour == Some(Colour::Magenta) {
            break;
        }
        assert!(std::time::Instant::now() < deadline);
    }
}
