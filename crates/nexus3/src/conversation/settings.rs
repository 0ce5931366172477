//! How the conversation looks: as configured, unless the command line or what is around the program asks for less.

use std::ffi::OsString;

use nexus_config::{Terminal, Thoughts, Wrap};
use nexus_terminal::keymap::Keymap;
use nexus_terminal::options::{Reasoning, Settings};

use super::TerminalArgs;

/// What is around the program.
pub struct Surroundings<'a> {
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// Whether standard output is a terminal.
    pub is_shown: bool,
}

impl Surroundings<'_> {
    /// An empty variable counts as unset.
    fn says(&self, name: &str) -> bool {
        (self.variable)(name).is_some_and(|value| !value.is_empty())
    }

    /// The characters that the locale names, unless they are UTF-8. One that names none is taken for UTF-8: in a container
    /// nobody set one, and the terminal outside has it.
    fn charset(&self) -> Option<String> {
        let names = ["LC_ALL", "LC_CTYPE", "LANG"];
        let locale = names.into_iter().find(|name| self.says(name));
        let locale = (self.variable)(locale?)?.into_string().ok()?;
        let charset = locale.split_once('.')?.1.split('@').next()?.to_owned();
        let plain = charset.to_lowercase().replace('-', "");
        (plain != "utf8").then_some(charset)
    }

    fn is_dumb(&self) -> bool {
        (self.variable)("TERM").is_some_and(|term| term == "dumb")
    }
}

pub fn settings(
    configured: &Terminal,
    args: &TerminalArgs,
    around: &Surroundings<'_>,
) -> anyhow::Result<Settings> {
    let charset = around.charset();
    let plain = args.plain
        || configured.plain
        || around.is_dumb()
        || around.says("ACCESSIBLE")
        || charset.is_some()
        || !around.is_shown;
    let is_black = args.no_color || around.says("NO_COLOR") || configured.theme == "mono";
    let keys = Keymap::new(&configured.keys)
        .map_err(|why| anyhow::anyhow!("config.json: terminal.keys.{why}"))?;
    Ok(Settings {
        preset: configured.preset.clone(),
        theme: configured.theme.into(),
        wrap_words: configured.wrap == Wrap::Word,
        width_max: configured.width_max,
        tool_lines: configured.tool_lines,
        diff_lines: configured.diff_lines,
        reasoning: match configured.reasoning {
            Thoughts::Time => Reasoning::Time,
            Thoughts::Text => Reasoning::Text,
            Thoughts::Off => Reasoning::Off,
        },
        motion: configured.motion,
        plain,
        colours: !is_black && !plain,
        bell_approval: configured.bell.approval,
        bell_turn: configured.bell.turn,
        title: configured.title,
        editor: configured.editor.clone(),
        pager: configured.pager.clone(),
        history: configured.history,
        keys,
        charset,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nexus_config::{Bell, Config};

    use super::*;

    fn unset() -> Terminal {
        let home = tempfile::tempdir().unwrap();
        Config::load(home.path(), home.path(), &|_| None).unwrap().terminal
    }

    /// What becomes of it with these variables on a terminal.
    fn made(configured: &Terminal, args: &TerminalArgs, variables: &[(&str, &str)]) -> Settings {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        settings(configured, args, &Surroundings { variable: &variable, is_shown: true }).unwrap()
    }

    #[test]
    fn without_files_it_looks_as_the_terminal_does_by_itself() {
        let made = made(&unset(), &TerminalArgs::default(), &[]);
        assert_eq!(made, Settings::default());
    }

    #[test]
    fn every_setting_arrives() {
        let keys: BTreeMap<_, _> = [("tree".to_owned(), vec!["ctrl-g".to_owned()])].into();
        let configured = Terminal {
            preset: "worker".into(),
            theme: "light",
            wrap: Wrap::Terminal,
            width_max: 72,
            tool_lines: 3,
            diff_lines: 9,
            reasoning: Thoughts::Text,
            motion: false,
            plain: false,
            bell: Bell { approval: true, turn: false },
            title: false,
            editor: Some("nano -w".into()),
            pager: Some("less -R".into()),
            history: false,
            keys: keys.clone(),
        };
        let expected = Settings {
            preset: "worker".into(),
            theme: "light".into(),
            wrap_words: false,
            width_max: 72,
            tool_lines: 3,
            diff_lines: 9,
            reasoning: Reasoning::Text,
            motion: false,
            plain: false,
            colours: true,
            bell_approval: true,
            bell_turn: false,
            title: false,
            editor: Some("nano -w".into()),
            pager: Some("less -R".into()),
            history: false,
            keys: Keymap::new(&keys).unwrap(),
            charset: None,
        };
        assert_eq!(made(&configured, &TerminalArgs::default(), &[]), expected);
        let quiet = Terminal {
            reasoning: Thoughts::Off,
            bell: Bell { approval: false, turn: true },
            ..configured
        };
        let made = made(&quiet, &TerminalArgs::default(), &[]);
        assert_eq!(
            (made.reasoning, made.bell_approval, made.bell_turn),
            (Reasoning::Off, false, true)
        );
    }

    #[test]
    fn keys_that_cannot_be_are_refused_by_name() {
        let keys = [("fly".to_owned(), vec!["ctrl-g".to_owned()])].into();
        let configured = Terminal { keys, ..unset() };
        let around = Surroundings { variable: &|_| None, is_shown: true };
        let refused = settings(&configured, &TerminalArgs::default(), &around).unwrap_err();
        assert!(
            refused
                .to_string()
                .starts_with("config.json: terminal.keys.fly: there is no such action")
        );
    }

    #[test]
    fn flags_and_surroundings_win_where_they_ask_for_less() {
        let none = TerminalArgs::default();
        let check = |configured: &Terminal, args: &TerminalArgs, variables: &[_], expected| {
            let made = made(configured, args, variables);
            assert_eq!(
                (made.plain, made.colours),
                expected,
                "{configured:?} {args:?} {variables:?}"
            );
        };
        let (full, black, plain) = ((false, true), (false, false), (true, false));
        check(&unset(), &none, &[], full);
        check(&unset(), &TerminalArgs { plain: true, ..none.clone() }, &[], plain);
        check(&unset(), &TerminalArgs { no_color: true, ..none.clone() }, &[], black);
        check(&Terminal { plain: true, ..unset() }, &none, &[], plain);
        check(&Terminal { theme: "mono", ..unset() }, &none, &[], black);
        check(&Terminal { theme: "dark", ..unset() }, &none, &[("NO_COLOR", "1")], black);
        check(&unset(), &none, &[("NO_COLOR", "")], full);
        check(&unset(), &none, &[("ACCESSIBLE", "1")], plain);
        check(&unset(), &none, &[("ACCESSIBLE", "")], full);
        check(&unset(), &none, &[("TERM", "dumb")], plain);
        check(&unset(), &none, &[("TERM", "xterm-256color")], full);
        check(&unset(), &none, &[("LANG", "de_DE.ISO-8859-1")], plain);
        check(&unset(), &none, &[("LANG", "de_DE.ISO-8859-15@euro"), ("LC_ALL", "C.UTF-8")], full);
        for locale in ["", "C", "POSIX", "en_US.utf8", "en_US.UTF-8", "de_DE@euro"] {
            check(&unset(), &none, &[("LANG", locale)], full);
        }
    }

    #[test]
    fn what_goes_to_a_file_is_plain() {
        let around = Surroundings { variable: &|_| None, is_shown: false };
        let made = settings(&unset(), &TerminalArgs::default(), &around).unwrap();
        assert_eq!((made.plain, made.colours), (true, false));
    }
}
