//! The changelog has an entry for the workspace's version.

use super::tree::Tree;
use super::violation::Violation;

const CHANGELOG: &str = "CHANGELOG.md";

/// Checks that `CHANGELOG.md` has a heading for `workspace.package.version`.
pub fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    let Some(manifest) = tree.text("Cargo.toml") else { return };
    let version = manifest.parse::<toml::Table>().ok().and_then(|table| {
        let version = table.get("workspace")?.get("package")?.get("version")?;
        version.as_str().map(str::to_owned)
    });
    let Some(version) = version else {
        violations.push(Violation {
            file: "Cargo.toml".to_owned(),
            line: 1,
            found: "no workspace.package.version".to_owned(),
            wanted: "one version for all crates".to_owned(),
            action: "add it".to_owned(),
        });
        return;
    };
    let headings = |text: &str| {
        text.lines().any(|line| {
            line.starts_with("##")
                && line
                    .split(|c: char| !c.is_ascii_alphanumeric() && !".-+".contains(c))
                    .any(|w| w == version)
        })
    };
    if !tree.text(CHANGELOG).is_some_and(headings) {
        violations.push(Violation {
            file: CHANGELOG.to_owned(),
            line: 1,
            found: "no heading for the workspace's version".to_owned(),
            wanted: format!("a line \"## {version}\""),
            action: "add it, with the effects of the changes under it".to_owned(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::fabricated;
    use super::*;

    fn found(changelog: &str) -> Vec<String> {
        let (_keep, tree) = fabricated::tree(&[
            ("Cargo.toml", "[workspace.package]\nversion = \"0.2.1\"\n"),
            (CHANGELOG, changelog),
        ]);
        let mut violations = Vec::new();
        check(&tree, &mut violations);
        violations.into_iter().map(|violation| violation.wanted).collect()
    }

    #[test]
    fn version_missing_from_changelog_is_reported() {
        assert_eq!(found("## 0.2.0\n\nSpeaks of 0.2.1 in passing.\n"), ["a line \"## 0.2.1\""]);
        assert_eq!(found("## 10.2.1\n"), ["a line \"## 0.2.1\""]);
    }

    #[test]
    fn a_version_in_a_heading_is_sufficient() {
        assert!(found("# Changes\n\n## [0.2.1] (unreleased)\n").is_empty());
        assert!(found("## 0.2.1, not yet released\n").is_empty());
    }
}
