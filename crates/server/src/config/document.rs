//! Makes the tables of `docs/configuration.md` from the directives. `cargo xtask docs` writes them; a test compares.

use super::description::{self, values};
use super::directives::{Directive, NOT_SUPPORTED, SECTIONS};
use super::inert::INERT;
use crate::generated_page;
use std::fmt::Write as _;

/// The built-in value, as the tables have it.
fn default(directive: &Directive) -> String {
    match description::default(directive).as_str() {
        "" => "empty".to_owned(),
        text => format!("`{text}`"),
    }
}

/// All tables.
fn tables() -> String {
    let mut out = String::new();
    for (title, directives) in SECTIONS {
        out.push_str(&format!(
            "\n### {title}\n\n| directive | values | default | at run time | meaning |\n|---|---|---|---|---|\n"
        ));
        for directive in *directives {
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "| `{}` | {} | {} | {} | {} |",
                directive.name,
                values(directive),
                default(directive),
                if directive.mutable { "yes" } else { "no" },
                directive.text.replace('|', "\\|"),
            );
        }
    }
    let is_refused = |name: &str| NOT_SUPPORTED.iter().any(|(refused, _)| *refused == name);
    let names: Vec<&str> = INERT.iter().map(|(name, ..)| *name).filter(|name| !is_refused(name)).collect();
    let _ = write!(
        out,
        "\n### Directives of Redis without effect\n\nThey are accepted, and the log names them at start. \
         CONFIG GET gives Redis's default.\n\n| directives |\n|---|\n| `{}` |\n",
        names.join("`, `"),
    );
    out.push_str(
        "\n### Directives of Redis that are refused\n\nA value that turns the feature off is accepted.\n\n\
         | directive | not supported |\n|---|---|\n",
    );
    for (name, feature) in NOT_SUPPORTED {
        let _ = writeln!(out, "| `{name}` | {feature} |");
    }
    out
}

#[test]
fn the_page_has_the_directives_that_are_declared() {
    generated_page::compare("configuration.md", "crates/server/src/config/directives.rs", &tables());
}
