//! What is found in code that means no harm. Code that does is for workers, and tested end to end.

use nexus_core::code::Position;

use super::*;

/// Checks code by rules and says what was found, one finding a line: `LINE:COLUMN-LINE:COLUMN RULE message`.
fn check(language: Language, rules: &[&str], code: &str, expected: &str) -> Report {
    let rules: Vec<String> = rules.iter().map(|rule| (*rule).to_owned()).collect();
    let report = super::check(code, language, &rules).unwrap();
    let found = report.findings.iter().map(|it| {
        let (start, end, rule, message) = (it.start, it.end, &it.rule, &it.message);
        format!("{}:{}-{}:{} {rule} {message}", start.line, start.column, end.line, end.column)
    });
    assert_eq!(found.collect::<Vec<_>>().join("\n"), expected, "{language:?} {code:?}");
    report
}

fn syntax(language: Language, code: &str, expected: &str) {
    let report = check(language, &["syntax"], code, expected);
    assert_eq!(report.rules_applied, ["syntax"]);
    assert_eq!(report.rules_unsupported, [""; 0]);
}

#[test]
fn what_cannot_be_read_is_said_in_a_sentence() {
    use Language::*;
    for (language, code, expected) in [
        (JavaScript, "let ä = 'x;\n", "1:9-1:12 syntax Unterminated string constant"),
        (JavaScript, "return 1", "1:1-1:9 syntax Return statement is not allowed here"),
        (JavaScript, "a(;\n", "1:3-1:4 syntax Expression expected"),
        (TypeScript, "class A { x: number y }", "1:21-1:22 syntax Expected a semicolon"),
        (Jsx, "const a = <p>;\n", "2:1-2:1 syntax Expected '</', got '<eof>'"),
        (Tsx, "f(<p></q>);", "1:8-1:9 syntax Expected corresponding JSX closing tag for <p>"),
        (Python, "x = (1\n", "2:1-2:1 syntax unexpected EOF while parsing"),
        (Python, "return 1\n", "1:1-1:9 syntax `return` statement outside of a function/method"),
        (Rust, "fn main() { let x = (1; }\n", "1:23-1:23 syntax `)` is missing"),
        (Rust, "fn main() }\n", "1:11-1:12 syntax `}` closes nothing"),
        (Go, "package main\nfunc f() {\n", "2:10-2:11 syntax `{` is never closed"),
        (Go, "package main\nfunc f() { x := }\n", "2:16-2:16 syntax an identifier is missing"),
        (Java, "class A { int x = 1 }\n", "1:20-1:20 syntax `;` is missing"),
        (C, "int f( { return 0; }\n", "1:6-1:7 syntax `(` is never closed"),
        (Cpp, "class A { void f( { } };\n", "1:18-1:18 syntax `)` is missing"),
        (Bash, "if true; then\n  echo\n", "3:1-3:1 syntax `fi` is missing"),
        (Html, "<p>a<div><b>c</div>\n", "1:10-1:13 syntax `<b>` is never closed"),
        (Html, "<div>a</div></b>\n", "1:13-1:17 syntax unexpected `</b>`"),
        (Css, "a { color }\n", "1:5-1:10 syntax unexpected `color`"),
        (Json, "{\"ä\": 1,}", "1:9-1:10 syntax key must be a string"),
        (Json, "[1\n", "2:1-2:1 syntax EOF while parsing a list"),
        (Yaml, "a: [1\nb: 2\n", "2:2-2:3 syntax illegal placement of ':' indicator"),
        (
            Toml,
            "a = [1\nb = 2\n",
            "2:1-2:2 syntax missing comma between array elements, expected `,`",
        ),
        (Sql, "SELECT a FROM\n", "2:1-2:1 syntax Expected: identifier, found: EOF"),
        (Sql, "SELECT 'ä\n", "1:8-1:9 syntax Unterminated string literal"),
    ] {
        syntax(language, code, expected);
    }
}

#[test]
fn rules_are_those_of_the_linters() {
    let javascript = |rule: &str, code: &str, place: &str| {
        let rules = [rule.to_owned()];
        let report = super::check(code, Language::JavaScript, &rules).unwrap();
        let found: Vec<_> = report.findings.iter().collect();
        let [found] = found[..] else { panic!("{rule}: {report:?}") };
        let Position { line, column } = found.start;
        assert_eq!((format!("{line}:{column}").as_str(), found.severity), (place, Severity::Error));
        assert_eq!(report.rules_applied, ["syntax", rule]);
    };
    javascript("no-unused-vars", "export {};\nconst a = 1;", "2:7");
    javascript("no-console", "console.log(1);", "1:1");
    javascript("no-undef", "f(nowhere);\nfunction f() {}", "1:3");
    javascript("eqeqeq", "if (a == 1) f();", "1:5");
    javascript("no-debugger", "debugger;", "1:1");
    javascript("no-empty", "if (a) {}", "1:8");
    javascript("prefer-const", "let a = 1; f(a);", "1:5");
    javascript("no-var", "var a = 1;", "1:1");
    javascript("no-unreachable", "function f() { return 1; g(); }", "1:26");

    let code = "import os\n\ndef f():\n    x = 1\n    return y\n";
    let all = "1:8-1:10 F401 `os` imported but unused\n\
               4:5-4:6 F841 Local variable `x` is assigned to but never used\n\
               5:12-5:13 F821 Undefined name `y`";
    let report = check(Language::Python, &["F"], code, all);
    assert_eq!((report.errors, report.rules_applied), (3, vec!["syntax".into(), "F".into()]));
    let report = check(Language::Python, &["F401"], code, all.lines().next().unwrap());
    assert_eq!((report.errors, report.warnings), (1, 0));
}

#[test]
fn what_is_recommended_warns_and_what_is_unknown_is_named() {
    let code = "import os\n";
    let found = "1:8-1:10 F401 `os` imported but unused";
    let report = check(Language::Python, &["recommended", "F999", "no-var"], code, found);
    assert_eq!((report.errors, report.warnings), (0, 1));
    assert_eq!(report.rules_applied, ["syntax", "recommended"]);
    assert_eq!(report.rules_unsupported, ["F999", "no-var"]);
    let report = check(Language::Python, &["recommended", "F401"], code, found);
    assert_eq!((report.errors, report.warnings), (1, 0));
    let report = super::check("debugger;", Language::TypeScript, &["recommended".into()]).unwrap();
    assert_eq!((report.errors, report.warnings), (0, 1));
    // Without a linter nothing is recommended.
    let report = check(Language::Json, &["recommended"], "1", "");
    assert_eq!(report.rules_unsupported, ["recommended"]);
    // Nobody looks for rules in what cannot be read.
    let report = super::check("debugger (", Language::JavaScript, &["no-debugger".into()]).unwrap();
    assert_eq!((report.rules_applied, report.rules_unsupported), (vec!["syntax".into()], vec![]));
}

#[test]
fn comments_switch_rules_off_as_each_linter_lets_them() {
    check(Language::Python, &["F401"], "import os  # noqa: F401\n", "");
    check(Language::JavaScript, &["no-var"], "// deno-lint-ignore no-var\nvar a = 1;\n", "");
    check(Language::JavaScript, &["no-var"], "// deno-lint-ignore-file\nf();\nvar a = 1;\n", "");
}

#[test]
fn a_mark_and_line_ends_move_nothing() {
    for code in ["f();\ndebugger;\n", "\u{feff}f();\ndebugger;\n", "f();\r\ndebugger;\r\n"] {
        let report = super::check(code, Language::JavaScript, &["no-debugger".into()]).unwrap();
        let [found] = &report.findings[..] else { panic!("{report:?}") };
        let (start, end) = (Position { line: 2, column: 1 }, Position { line: 2, column: 10 });
        assert_eq!((found.start, found.end), (start, end), "{code:?}");
    }
}

#[test]
fn so_many_findings_are_told_and_all_are_counted() {
    for more in [0, 1] {
        let code = "debugger;\n".repeat(FINDINGS_MAX + more);
        let report = super::check(&code, Language::JavaScript, &["no-debugger".into()]).unwrap();
        assert_eq!(report.findings.len(), FINDINGS_MAX);
        assert_eq!(report.errors, (FINDINGS_MAX + more) as u64);
    }
}
