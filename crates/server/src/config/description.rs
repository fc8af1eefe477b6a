//! The directives in words: what docs/configuration.md, the commented configuration file and the man page show of them.

use super::Config;
use super::directives::{Directive, SECTIONS};
use super::rewrite::line;
use std::fmt::Write as _;

// Columns of a commented configuration file.
const WIDTH: usize = 80;

/// Whether the directive takes this value alone.
fn takes(directive: &Directive, value: &str) -> bool {
    (directive.set)(&mut Config::default(), &[value]).is_ok()
}

/// The form of a directive's values, by the values that it takes.
pub fn values(directive: &Directive) -> &'static str {
    let is_switch = takes(directive, "yes") && takes(directive, "no") && !takes(directive, "local");
    let default = (directive.get)(&Config::default());
    match () {
        () if directive.values.1 > 1 => "list",
        () if takes(directive, "xyzzy") => "text",
        () if takes(directive, "64mb") => "bytes",
        () if is_switch => "`yes`, `no`",
        () if default.parse::<i64>().is_ok() || takes(directive, "1") => "number",
        () => "word",
    }
}

/// The built-in value, with the largest unit in which it is whole. It does not depend on the current directory.
pub fn default(directive: &Directive) -> String {
    let text = (directive.get)(&Config::default());
    let here = std::path::absolute("./").map_or_else(|_| String::new(), |here| here.display().to_string());
    if !text.is_empty() && text == here {
        return "./".to_owned();
    }
    if values(directive) == "bytes" {
        for (unit, bytes) in [("gb", 1_u64 << 30), ("mb", 1 << 20), ("kb", 1 << 10)] {
            let whole = text.parse().ok().filter(|value: &u64| *value > 0 && value.is_multiple_of(bytes));
            if let Some(value) = whole {
                return format!("{}{unit}", value / bytes);
            }
        }
    }
    text
}

/// A configuration file of all directives, each commented out with its built-in value after its meaning.
pub fn sample() -> String {
    let mut out = String::new();
    let comment = |out: &mut String, text: &str| {
        let mut column = 0;
        for word in text.split_whitespace() {
            if column == 0 || column + 1 + word.len() > WIDTH {
                out.push_str(if column == 0 { "#" } else { "\n#" });
                column = 1;
            }
            // Writing to a string cannot fail.
            let _ = write!(out, " {word}");
            column += 1 + word.len();
        }
        out.push('\n');
    };
    comment(
        &mut out,
        "Configuration of Duramen: duramen serve FILE. A line \"#name value\" shows the built-in value; remove its # to \
         change it. Lines \"# text\" are comments. \"include FILE\" reads another file at its place; \"user NAME RULES\" \
         defines a user, and \"rename-command OLD NEW\" renames a command. See duramen.conf(5) and duramen-serve(1).",
    );
    for (title, directives) in SECTIONS {
        let _ = write!(out, "\n# === {title} ===\n");
        for directive in *directives {
            out.push('\n');
            comment(&mut out, directive.text);
            let when = if directive.mutable { "CONFIG SET changes it." } else { "It is read at the start." };
            comment(&mut out, &format!("Value: {}. {when}", values(directive)));
            let _ = writeln!(out, "#{}", line(directive, &default(directive)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::directives::directives;
    use super::*;

    #[test]
    fn the_sample_without_its_hashes_is_the_default_configuration() {
        let text = sample();
        let settings: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix('#'))
            .filter(|line| !line.starts_with(' ') && !line.is_empty())
            .collect();
        assert_eq!(settings.len(), directives().count());
        let dir = tempfile::tempdir().unwrap();
        let shown = |name: &str, lines: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, lines).unwrap();
            let path = path.to_str().unwrap().to_owned();
            let config = Config::from_args([path], std::iter::empty()).unwrap();
            directives().map(|directive| (directive.name, (directive.get)(&config))).collect::<Vec<_>>()
        };
        assert_eq!(shown("all.conf", &settings.join("\n")), shown("none.conf", &text));
        assert!(text.lines().filter(|line| line.starts_with("# ")).all(|line| line.len() <= 2 * WIDTH));
    }
}
