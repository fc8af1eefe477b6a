//! The workspace has only the allowed dependency edges.
//!
//! An edge counts in every kind of dependency table: a test that needs a crate of a higher layer belongs in that layer.

use std::collections::BTreeMap;

use super::tree::Tree;
use super::violation::Violation;

/// Directory of a crate, and the directories of the crates it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("crates/media", &[]),
    ("crates/log", &["crates/media"]),
    ("crates/index", &["crates/log", "crates/media"]),
    ("crates/duramen", &["crates/index", "crates/log", "crates/media"]),
    ("crates/checks", &["crates/duramen", "crates/index", "crates/log", "crates/media"]),
    ("crates/resp", &[]),
    ("crates/lua", &["crates/resp"]),
    ("crates/structures", &["crates/duramen"]),
    // Results are keys that a server serves, so stream writes them in the format of structures.
    ("crates/stream", &["crates/duramen", "crates/resp", "crates/structures"]),
    ("crates/server", &["crates/duramen", "crates/lua", "crates/resp", "crates/structures"]),
    ("crates/bench", &["crates/duramen", "crates/media", "crates/resp", "crates/stream"]),
    // A persistent skip list that is updated in place, for comparison; it uses the same media as the engine, and
    // nothing else.
    ("crates/bench-peers/hyperkv", &["crates/media"]),
    ("crates/bench-peers", &["crates/bench-peers/hyperkv", "crates/bench", "crates/media"]),
    ("crates/crash", &["crates/media", "crates/duramen", "crates/structures", "crates/stream"]),
    ("crates/cli", &["crates/duramen", "crates/server", "crates/stream", "crates/bench"]),
    // The torture writes through the library as well as through sockets.
    ("xtask", &["crates/duramen", "crates/resp"]),
];

/// Reads the manifests of all crates and checks each edge between them.
pub fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    let mut manifests = BTreeMap::new();
    for (path, text) in tree.texts(|path| path.ends_with("/Cargo.toml") && !path.starts_with("fuzz/")) {
        let Some(directory) = path.strip_suffix("/Cargo.toml") else { continue };
        match text.parse::<toml::Table>() {
            Ok(table) => {
                manifests.insert(directory, (path, text, table));
            }
            Err(error) => violations.push(Violation {
                file: path.to_owned(),
                line: 1,
                found: format!("no TOML ({})", error.message()),
                wanted: "a manifest".to_owned(),
                action: "mend it".to_owned(),
            }),
        }
    }
    let directory_of_package: BTreeMap<&str, &str> = manifests
        .iter()
        .filter_map(|(directory, (_, _, table))| {
            Some((table.get("package")?.get("name")?.as_str()?, *directory))
        })
        .collect();

    for (directory, (path, text, table)) in &manifests {
        let Some((_, allowed)) = ALLOWED.iter().find(|(from, _)| from == directory) else {
            if directory.starts_with("crates/") {
                violations.push(Violation {
                    file: (*path).to_owned(),
                    line: 1,
                    found: "a crate that is missing from ALLOWED".to_owned(),
                    wanted: "one of those listed in ALLOWED of xtask/src/tidy/edges.rs".to_owned(),
                    action: "make it a module, or enter it there and in ARCHITECTURE.md with its reason"
                        .to_owned(),
                });
            }
            continue;
        };
        for package in dependencies(table) {
            let Some(to) = directory_of_package.get(package.as_str()) else { continue };
            if !allowed.contains(to) {
                violations.push(Violation {
                    file: (*path).to_owned(),
                    line: line_of(text, &package),
                    found: format!("an edge from {directory} to {to}"),
                    wanted: match allowed {
                        [] => "no edge to another crate of the workspace".to_owned(),
                        _ => format!("edges to {} only", allowed.join(", ")),
                    },
                    action: "remove the dependency; move the needed part into an allowed crate".to_owned(),
                });
            }
        }
    }
}

/// The packages that a manifest names in any of its dependency tables.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let mut names = Vec::new();
    let mut tables = vec![manifest];
    if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
        tables.extend(targets.values().filter_map(toml::Value::as_table));
    }
    for table in tables {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(dependencies) = table.get(kind).and_then(toml::Value::as_table) else { continue };
            for (name, value) in dependencies {
                let renamed = value.get("package").and_then(toml::Value::as_str);
                names.push(renamed.unwrap_or(name).to_owned());
            }
        }
    }
    names
}

fn line_of(manifest: &str, package: &str) -> usize {
    let names = |line: &str| {
        let key = line.trim_start().split(['.', '=', ' ']).next().unwrap_or_default();
        key == package
            || line.contains(&format!("\"{package}\""))
            || line.trim() == format!("[dependencies.{package}]")
    };
    // The package's own name line comes first and is no edge.
    manifest
        .lines()
        .position(|line| names(line) && !line.trim_start().starts_with("name"))
        .map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::super::tree::fabricated;
    use super::*;

    const MEDIA: (&str, &str) = ("crates/media/Cargo.toml", "[package]\nname = \"duramen-media\"\n");

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize, String)> {
        fabricated::found(check, files)
    }

    #[test]
    fn allowed_edge_and_outside_packages_pass() {
        let duramen =
            "[package]\nname = \"duramen\"\n[dependencies]\nduramen-media.workspace = true\nclap = \"4\"\n";
        assert_eq!(found(&[MEDIA, ("crates/duramen/Cargo.toml", duramen)]), []);
    }

    #[test]
    fn a_forbidden_edge_is_reported_at_its_line() {
        let server =
            "[package]\nname = \"duramen-server\"\n\n[dependencies]\nduramen-media.workspace = true\n";
        assert_eq!(
            found(&[MEDIA, ("crates/server/Cargo.toml", server)]),
            [(
                "crates/server/Cargo.toml".to_owned(),
                5,
                "an edge from crates/server to crates/media".to_owned()
            )]
        );
    }

    #[test]
    fn renamed_test_and_platform_edges_count() {
        let structures = "[package]\nname = \"duramen-structures\"\n\
             [dev-dependencies]\nm = { path = \"../media\", package = \"duramen-media\" }\n";
        assert_eq!(found(&[MEDIA, ("crates/structures/Cargo.toml", structures)])[0].1, 4);
        let stream = "[package]\nname = \"duramen-stream\"\n\
             [target.'cfg(unix)'.dependencies]\nduramen-media = { path = \"../media\" }\n";
        assert_eq!(found(&[MEDIA, ("crates/stream/Cargo.toml", stream)])[0].1, 4);
    }

    #[test]
    fn unplanned_crate_is_reported() {
        let found = found(&[("crates/helpers/Cargo.toml", "[package]\nname = \"helpers\"\n")]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, "crates/helpers/Cargo.toml");
    }
}
