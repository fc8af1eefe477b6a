//! `duramen manual`: the files that a package installs beside the program, made from its own command line and directives.

use crate::{Answer, Failure};
use clap_complete::Shell;
use clap_mangen::roff::{Roff, bold, italic, roman};
use duramen_server::config::description::{default, sample, values};
use duramen_server::config::directives::SECTIONS;
use std::fs;
use std::path::{Path, PathBuf};

/// Write man pages, shell completions and a commented configuration file into a directory
///
/// Makes `man/*.1` and `man/duramen.conf.5`, `completions/` for bash, zsh and fish, and `duramen.conf` with all
/// directives. Existing files are overwritten.
#[derive(clap::Args)]
pub struct Args {
    /// The directory; it is created if it does not exist
    directory: PathBuf,
}

pub fn run(args: &Args, program: clap::Command) -> Result<Answer, Failure> {
    let man = args.directory.join("man");
    let completions = args.directory.join("completions");
    for directory in [&man, &completions] {
        fs::create_dir_all(directory).map_err(|error| failed(directory, &error))?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut program.clone(), "duramen", &completions)
            .map_err(|error| failed(&completions, &error))?;
    }
    clap_mangen::generate_to(program.disable_help_subcommand(true), &man)
        .map_err(|error| failed(&man, &error))?;
    for (path, text) in
        [(man.join("duramen.conf.5"), directives()), (args.directory.join("duramen.conf"), sample())]
    {
        fs::write(&path, text).map_err(|error| failed(&path, &error))?;
    }
    Ok(Answer::Yes)
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("cannot write to {}: {error}", path.display())
}

/// The man page duramen.conf(5).
fn directives() -> String {
    let mut page = Roff::new();
    let version = format!("duramen {}", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["duramen.conf", "5", "", &version, ""]);
    page.control("SH", ["NAME"]);
    page.text([roman("duramen.conf - configuration file of duramen serve")]);
    page.control("SH", ["DESCRIPTION"]);
    for paragraph in [
        "Each line has a directive and its values, as in redis.conf. Empty lines and lines that begin with # are \
         skipped. A value with spaces stands in quotes. A file with the ending .toml is read as TOML.",
        "Every directive is also an option of duramen serve (--port 7000) and a variable of the environment \
         (DURAMEN_PORT). Later sources override earlier ones: file, environment, command line.",
        "Values of bytes take k, m, g (powers of 1000) or kb, mb, gb (powers of 1024).",
    ] {
        page.text([roman(paragraph)]);
        page.control("PP", []);
    }
    for (title, directives) in SECTIONS {
        page.control("SH", [title.to_uppercase().as_str()]);
        for directive in *directives {
            let default = default(directive);
            let shown = if default.is_empty() { "empty" } else { &default };
            let mutable = if directive.mutable { "; CONFIG SET changes it" } else { "" };
            page.control("TP", []);
            page.text([bold(directive.name), roman(" "), italic(values(directive).replace('`', ""))]);
            page.text([roman(format!("{} Default: {shown}{mutable}.", directive.text.replace('`', "")))]);
        }
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("duramen"), roman("(1), "), bold("duramen-serve"), roman("(1)")]);
    page.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn all_commands_and_directives_have_a_page() {
        let dir = tempfile::tempdir().unwrap();
        let program = <crate::Args as clap::CommandFactory>::command();
        run(&Args { directory: dir.path().to_owned() }, program).unwrap();
        for command in crate::Args::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let page = fs::read_to_string(dir.path().join(format!("man/duramen-{name}.1"))).unwrap();
            assert!(page.contains(".SH SYNOPSIS"), "{name}");
            for file in ["duramen.bash", "_duramen", "duramen.fish"] {
                let text = fs::read_to_string(dir.path().join("completions").join(file)).unwrap();
                assert!(text.contains(name), "{file}: {name}");
            }
        }
        let page = fs::read_to_string(dir.path().join("man/duramen.conf.5")).unwrap();
        let found = page.lines().filter(|line| *line == ".TP").count();
        assert_eq!(found, SECTIONS.iter().map(|(_, directives)| directives.len()).sum::<usize>());
    }
}
