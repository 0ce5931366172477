//! The languages, and what people call them.

use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    JavaScript,
    TypeScript,
    Jsx,
    Tsx,
    Python,
    Rust,
    Go,
    Java,
    C,
    Cpp,
    Bash,
    Json,
    Yaml,
    Toml,
    Html,
    Css,
    Sql,
}

struct Entry {
    language: Language,
    /// The first is the one we use.
    names: &'static [&'static str],
    extensions: &'static [&'static str],
}

const LANGUAGES: [Entry; 17] = [
    entry(Language::JavaScript, &["javascript", "js", "node", "ecmascript"], &["js", "mjs", "cjs"]),
    entry(Language::TypeScript, &["typescript", "ts"], &["ts", "mts", "cts"]),
    entry(Language::Jsx, &["jsx", "javascriptreact"], &["jsx"]),
    entry(Language::Tsx, &["tsx", "typescriptreact"], &["tsx"]),
    entry(Language::Python, &["python", "py", "python3"], &["py", "pyi"]),
    entry(Language::Rust, &["rust", "rs"], &["rs"]),
    entry(Language::Go, &["go", "golang"], &["go"]),
    entry(Language::Java, &["java"], &["java"]),
    entry(Language::C, &["c"], &["c", "h"]),
    entry(Language::Cpp, &["cpp", "c++", "cxx", "cc"], &["cpp", "cc", "cxx", "hpp", "hh", "hxx"]),
    entry(Language::Bash, &["bash", "sh", "shell", "shellscript"], &["sh", "bash"]),
    entry(Language::Json, &["json"], &["json"]),
    entry(Language::Yaml, &["yaml", "yml"], &["yaml", "yml"]),
    entry(Language::Toml, &["toml"], &["toml"]),
    entry(Language::Html, &["html", "htm"], &["html", "htm"]),
    entry(Language::Css, &["css"], &["css"]),
    entry(Language::Sql, &["sql"], &["sql"]),
];

const fn entry(
    language: Language,
    names: &'static [&'static str],
    extensions: &'static [&'static str],
) -> Entry {
    Entry { language, names, extensions }
}

impl Language {
    /// The language of this name, however it is written.
    pub fn parse(name: &str) -> Option<Self> {
        let known = |entry: &&Entry| entry.names.iter().any(|it| it.eq_ignore_ascii_case(name));
        LANGUAGES.iter().find(known).map(|entry| entry.language)
    }

    /// What a file is in, by its name or its first line.
    pub fn of_file(path: &Path, text: &str) -> Option<Self> {
        let Some(extension) = path.extension() else { return Self::of_script(text) };
        let extension = extension.to_str()?;
        let known = |entry: &&Entry| {
            entry.extensions.iter().any(|known| known.eq_ignore_ascii_case(extension))
        };
        LANGUAGES.iter().find(known).map(|entry| entry.language)
    }

    /// What a script is in whose first line names who runs it.
    fn of_script(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("#!")?;
        let program = line.split_whitespace().map(|word| word.rsplit('/').next().unwrap_or(word));
        let program = program.into_iter().find(|word| *word != "env" && !word.starts_with('-'))?;
        Self::parse(program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
    }

    /// The name we have for it.
    pub fn name(self) -> &'static str {
        let own = LANGUAGES.iter().find(|entry| entry.language == self);
        own.and_then(|entry| entry.names.first()).copied().unwrap_or_default()
    }

    /// All of them, for people.
    pub fn known() -> String {
        LANGUAGES.map(|entry| entry.language.name()).join(", ")
    }

    pub fn all() -> impl Iterator<Item = Self> {
        LANGUAGES.iter().map(|entry| entry.language)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_has_its_names_and_none_is_in_doubt() {
        for language in Language::all() {
            assert_eq!(Language::parse(language.name()), Some(language));
        }
        let mut names: Vec<_> = LANGUAGES.iter().flat_map(|entry| entry.names).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
        for (name, expected) in [
            ("JS", Some(Language::JavaScript)),
            ("c++", Some(Language::Cpp)),
            ("yml", Some(Language::Yaml)),
            ("sh", Some(Language::Bash)),
            ("", None),
            ("cobol", None),
        ] {
            assert_eq!(Language::parse(name), expected, "{name}");
        }
    }

    #[test]
    fn a_file_says_what_it_is_in() {
        for (path, text, expected) in [
            ("a/b.py", "", Some(Language::Python)),
            ("a.HTML", "", Some(Language::Html)),
            ("a.txt", "#!/bin/sh", None),
            ("run", "#!/bin/sh -e\n", Some(Language::Bash)),
            ("run", "#!/usr/bin/env -S python3.12 -u\n", Some(Language::Python)),
            ("run", "#!/usr/bin/env node", Some(Language::JavaScript)),
            ("run", "echo", None),
            ("run", "", None),
        ] {
            assert_eq!(Language::of_file(Path::new(path), text), expected, "{path} {text}");
        }
    }
}
