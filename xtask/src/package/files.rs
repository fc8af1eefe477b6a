//! The files that are installed beside the program, in one directory tree: Debian's package and the archive have them all.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::release::{Release, date};
use super::sbom::Sbom;
use super::tool::{gzip, output};
use super::tree::{plain_directories, put, text};
use crate::failure::{Attempt, Failure, Result};

/// Where packages put the store.
pub const STATE: &str = "/var/lib/duramen";

/// What is known before the files are written.
pub struct Input<'a> {
    pub repository: &'a Path,
    pub release: &'a Release,
    /// The static program.
    pub program: &'a Path,
    /// The same program, or one of this machine's processor, which writes its manual.
    pub runnable: &'a Path,
    pub sbom: &'a Sbom,
}

/// Writes the tree.
pub fn write(root: &Path, input: &Input<'_>) -> Result<()> {
    let program = fs::read(input.program).attempt(|| format!("read {}", input.program.display()))?;
    put(root, "usr/bin/duramen", &program, 0o755)?;
    manual(root, input)?;
    let plain = |from: &str, to: &str| {
        let bytes = fs::read(input.repository.join(from)).attempt(|| format!("read {from}"))?;
        put(root, to, &bytes, 0o644)
    };
    plain("dist/systemd/duramen.service", "usr/lib/systemd/system/duramen.service")?;
    plain("dist/prometheus/duramen.rules.yml", "usr/share/duramen/prometheus/duramen.rules.yml")?;
    plain("dist/grafana/duramen.json", "usr/share/duramen/grafana/duramen.json")?;
    documents(root, input)?;
    plain_directories(root)
}

/// Man pages, completions and the configuration, which the program itself writes.
fn manual(root: &Path, input: &Input<'_>) -> Result<()> {
    let made = tempfile::tempdir().attempt(|| "make a directory".to_owned())?;
    output(Command::new(input.runnable).arg("manual").arg(made.path()))?;
    let man = made.path().join("man");
    let mut pages = Vec::new();
    for page in fs::read_dir(&man).attempt(|| format!("list {}", man.display()))? {
        pages.push(page.attempt(|| format!("list {}", man.display()))?.path());
    }
    for page in pages {
        let bytes = fs::read(&page).attempt(|| format!("read {}", page.display()))?;
        let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let section = name.rsplit_once('.').map_or("1", |(_, section)| section);
        gzip(&put(root, &format!("usr/share/man/man{section}/{name}"), &bytes, 0o644)?)?;
    }
    for (from, to) in [
        ("duramen.bash", "usr/share/bash-completion/completions/duramen"),
        ("_duramen", "usr/share/zsh/vendor-completions/_duramen"),
        ("duramen.fish", "usr/share/fish/vendor_completions.d/duramen.fish"),
    ] {
        let from = made.path().join("completions").join(from);
        let bytes = fs::read(&from).attempt(|| format!("read {}", from.display()))?;
        put(root, to, &bytes, 0o644)?;
    }
    let sample = made.path().join("duramen.conf");
    let sample = fs::read_to_string(&sample).attempt(|| format!("read {}", sample.display()))?;
    put(root, "etc/duramen/duramen.conf", installed(&sample)?.as_bytes(), 0o640)?;
    Ok(())
}

/// The configuration as it is installed: with the places of the package.
fn installed(sample: &str) -> Result<String> {
    let mut text = sample.to_owned();
    for (name, value) in [("duramen-path", format!("{STATE}/store")), ("dir", STATE.to_owned())] {
        let head = format!("#{name} ");
        let mut lines = text.lines().filter(|line| line.starts_with(&head));
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return Err(Failure::new(format!("the configuration has not one line {head}")));
        };
        text = text.replace(&format!("\n{line}\n"), &format!("\n{name} {value}\n"));
    }
    Ok(text)
}

fn documents(root: &Path, input: &Input<'_>) -> Result<()> {
    let Input { repository, release, sbom, .. } = input;
    let home = "usr/share/doc/duramen";
    // As the format of Debian's copyright files wants it: indented, and a dot for an empty line.
    let expat: Vec<String> = text(repository, "LICENSE-MIT")?
        .lines()
        .map(|line| if line.trim().is_empty() { " .".to_owned() } else { format!(" {line}") })
        .collect();
    let copyright = text(repository, "dist/debian/copyright")?.replace("@EXPAT@", &expat.join("\n"));
    put(root, &format!("{home}/copyright"), copyright.as_bytes(), 0o644)?;
    gzip(&put(root, &format!("{home}/third-party.txt"), sbom.licences()?.as_bytes(), 0o644)?)?;
    gzip(&put(root, &format!("{home}/changelog"), text(repository, "CHANGELOG.md")?.as_bytes(), 0o644)?)?;
    let entry = format!(
        "duramen ({}) unstable; urgency=medium\n\n  * Commit {}.\n    The changes are in changelog.gz.\n\n -- {}  {}\n",
        release.debian,
        release.commit,
        maintainer(repository)?,
        date(release.epoch, "--rfc-email")?
    );
    gzip(&put(root, &format!("{home}/changelog.Debian"), entry.as_bytes(), 0o644)?)?;
    put(root, &format!("{home}/duramen.cdx.json"), sbom.document(release)?.as_bytes(), 0o644)?;
    Ok(())
}

/// The maintainer's name and address, from the package's control file.
fn maintainer(repository: &Path) -> Result<String> {
    let control = text(repository, "dist/debian/control")?;
    let found = control.lines().find_map(|line| line.strip_prefix("Maintainer: "));
    found.map(str::to_owned).ok_or_else(|| Failure::new("dist/debian/control names no maintainer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_installed_configuration_has_the_places_of_the_package() {
        let sample = "# Text of dir\n#dir ./\n\n#duramen-path ./duramen-data\n#port 6379\n";
        let wanted =
            "# Text of dir\ndir /var/lib/duramen\n\nduramen-path /var/lib/duramen/store\n#port 6379\n";
        assert_eq!(installed(sample).unwrap(), wanted);
        assert!(installed("#port 6379\n").is_err());
    }
}
