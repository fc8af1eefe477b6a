//! The parts of the program, from `cargo metadata` and the toolchain: as CycloneDX 1.5, and their licences as text.
//!
//! Counted is what a normal dependency leads to from the program, with its features and for its processor. Build scripts and
//! tests are no part of it. What cargo does not know is added: Lua, Rust's standard library and the C library.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::digest::sha256;
use super::program::{FEATURES, Processor};
use super::release::{Release, date};
use super::tool::{output, tool};
use super::tree;
use crate::cargo::cargo;
use crate::failure::{Attempt, Failure, Result};

/// The package whose program is shipped.
const PROGRAM: &str = "duramen-cli";

/// One part.
struct Component {
    name: String,
    version: String,
    license: String,
    purl: String,
    checksum: Option<String>,
    /// The directory of its source, which has its licence.
    source: Option<PathBuf>,
    is_ours: bool,
    needs: Vec<String>,
}

/// The parts of the program.
pub struct Sbom {
    /// The address of the project.
    pub homepage: String,
    root: String,
    /// By cargo's id, or by name for those that cargo does not know.
    components: BTreeMap<String, Component>,
}

impl Sbom {
    /// Reads the dependencies of the program for this processor.
    pub fn of(repository: &Path, processor: Processor) -> Result<Sbom> {
        let text = output(
            cargo(repository)
                .args(["metadata", "--format-version=1", "--locked"])
                .arg(format!("--filter-platform={}-unknown-linux-gnu", processor.linux()))
                .args(["--manifest-path", "crates/cli/Cargo.toml", "--features", FEATURES]),
        )?;
        let metadata: Value = serde_json::from_str(&text).attempt(|| "read cargo's metadata".to_owned())?;
        let checksums = checksums(repository)?;
        let mut sbom = read(&metadata, &checksums)?;
        sbom.add_unknown_to_cargo()?;
        Ok(sbom)
    }

    /// What is linked in and is no crate.
    fn add_unknown_to_cargo(&mut self) -> Result<()> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let about = output(Command::new(&rustc).arg("--version").arg("--verbose"))?;
        let rust =
            about.lines().find_map(|line| line.strip_prefix("release: ")).unwrap_or_default().to_owned();
        let libc = output(tool("getconf", "libc-bin")?.arg("GNU_LIBC_VERSION"))?;
        let libc = libc.trim_start_matches("glibc ").to_owned();
        let sources = output(Command::new(rustc).args(["--print", "sysroot"]))?;
        for (name, version, license, purl, source) in [
            (
                "rust-std",
                rust.clone(),
                "MIT OR Apache-2.0",
                format!("pkg:generic/rust-std@{rust}"),
                Some(Path::new(&sources).join("share/doc/rust")),
            ),
            ("glibc", libc.clone(), "LGPL-2.1-or-later", format!("pkg:generic/glibc@{libc}"), None),
        ] {
            let part = Component {
                name: name.to_owned(),
                version,
                license: license.to_owned(),
                purl,
                checksum: None,
                source,
                is_ours: false,
                needs: Vec::new(),
            };
            self.components.insert(name.to_owned(), part);
            if let Some(root) = self.components.get_mut(&self.root) {
                root.needs.push(name.to_owned());
            }
        }
        Ok(())
    }

    /// The document.
    pub fn document(&self, release: &Release) -> Result<String> {
        let reference = |id: &str| self.components.get(id).map(|part| part.purl.clone());
        let component = |part: &Component| {
            let mut object = json!({
                "type": "library",
                "bom-ref": part.purl,
                "name": part.name,
                "version": part.version,
                "scope": "required",
                "licenses": [{ "expression": part.license }],
                "purl": part.purl,
            });
            if let Some(checksum) = &part.checksum {
                object["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
            }
            object
        };
        let root =
            self.components.get(&self.root).ok_or_else(|| Failure::new("no program in the metadata"))?;
        let mut program = component(root);
        program["type"] = json!("application");
        program["name"] = json!("duramen");
        program["version"] = json!(release.upstream);
        let others: Vec<Value> = self
            .components
            .iter()
            .filter(|(id, _)| **id != self.root)
            .map(|(_, part)| component(part))
            .collect();
        let dependencies: Vec<Value> = self
            .components
            .values()
            .map(|part| {
                let needs: BTreeSet<String> = part.needs.iter().filter_map(|id| reference(id)).collect();
                json!({ "ref": part.purl, "dependsOn": needs })
            })
            .collect();
        let document = json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "timestamp": date(release.epoch, "+%Y-%m-%dT%H:%M:%SZ")?,
                "component": program,
                "properties": [{ "name": "duramen:commit", "value": release.commit }],
            },
            "components": others,
            "dependencies": dependencies,
        });
        serde_json::to_string_pretty(&document)
            .attempt(|| "write the SBOM".to_owned())
            .map(|text| text + "\n")
    }

    /// The licences of everything but the project's own crates: each text once, after the names of its crates.
    pub fn licences(&self) -> Result<String> {
        let mut texts: BTreeMap<String, (BTreeSet<String>, String)> = BTreeMap::new();
        let mut without = Vec::new();
        for part in self.components.values().filter(|part| !part.is_ours || part.name == "duramen-lua") {
            let name = format!("{} {} ({})", part.name, part.version, part.license);
            let found = part.source.as_deref().map(license_files).transpose()?.unwrap_or_default();
            if found.is_empty() {
                without.push(name.clone());
            }
            for path in found {
                let bytes = fs::read(&path).attempt(|| format!("read {}", path.display()))?;
                let text = String::from_utf8_lossy(&bytes).replace('\r', "").trim().to_owned();
                let entry = texts.entry(sha256(text.as_bytes())).or_insert_with(|| (BTreeSet::new(), text));
                entry.0.insert(name.clone());
            }
        }
        let mut out = String::from(
            "Parts of the program that others wrote, and the texts of their licences.\n\n\
             Without a text of their own:\n",
        );
        without.iter().for_each(|name| out.push_str(&format!("  {name}\n")));
        let mut all: Vec<_> = texts.into_values().collect();
        all.sort();
        for (names, text) in all {
            out.push_str(&format!("\n{}\n", "=".repeat(80)));
            names.iter().for_each(|name| out.push_str(&format!("{name}\n")));
            out.push_str(&format!("\n{text}\n"));
        }
        Ok(out)
    }
}

/// The crates that the program is linked from.
fn read(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Result<Sbom> {
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (word(&package["id"]), package)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (word(&node["id"]), node)).collect();
    let root = packages.iter().find(|(_, package)| package["name"] == PROGRAM);
    let (root, program) = root.ok_or_else(|| Failure::new(format!("cargo knows no package {PROGRAM}")))?;
    let mut components = BTreeMap::new();
    let mut waiting = vec![root.clone()];
    while let Some(id) = waiting.pop() {
        let Some(package) = packages.get(&id).filter(|_| !components.contains_key(&id)) else { continue };
        let is_normal =
            |dependency: &Value| list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        let needs: Vec<String> = nodes
            .get(&id)
            .map(|node| list(&node["deps"]))
            .unwrap_or_default()
            .iter()
            .filter(|dependency| is_normal(dependency))
            .map(|dependency| word(&dependency["pkg"]))
            .collect();
        waiting.extend(needs.iter().cloned());
        let (name, version) = (word(&package["name"]), word(&package["version"]));
        let component = Component {
            license: word(&package["license"]).replace('/', " OR "),
            purl: format!("pkg:cargo/{name}@{version}"),
            checksum: checksums.get(&(name.clone(), version.clone())).cloned(),
            source: Path::new(&word(&package["manifest_path"])).parent().map(Path::to_owned),
            is_ours: package["source"].is_null(),
            needs,
            name,
            version,
        };
        components.insert(id, component);
    }
    // Its source is of a build dependency of the crate that links it.
    let lua = packages.values().find(|package| package["name"] == "lua-src");
    let lua = lua.ok_or_else(|| Failure::new("cargo knows no package lua-src"))?;
    let version = word(&lua["version"]);
    components.insert(
        "lua".to_owned(),
        Component {
            name: "lua-src".to_owned(),
            license: word(&lua["license"]),
            purl: format!("pkg:cargo/lua-src@{version}"),
            checksum: checksums.get(&("lua-src".to_owned(), version.clone())).cloned(),
            source: Path::new(&word(&lua["manifest_path"])).parent().map(Path::to_owned),
            is_ours: false,
            needs: Vec::new(),
            version,
        },
    );
    if let Some(own) = components.values_mut().find(|part| part.name == "duramen-lua") {
        own.needs.push("lua".to_owned());
    }
    Ok(Sbom { homepage: word(&program["repository"]), root: root.clone(), components })
}

/// The digests of the crates' archives, which Cargo.lock has.
fn checksums(repository: &Path) -> Result<BTreeMap<(String, String), String>> {
    let text = tree::text(repository, "Cargo.lock")?;
    let lock: toml::Table = text.parse().attempt(|| "read Cargo.lock".to_owned())?;
    let packages = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    let field = |package: &toml::Value, name: &str| Some(package.get(name)?.as_str()?.to_owned());
    Ok(packages
        .filter_map(|package| {
            Some(((field(package, "name")?, field(package, "version")?), field(package, "checksum")?))
        })
        .collect())
}

/// The files of a source that are licences by their names, in order.
fn license_files(source: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    // Lua's files of the project are a directory below.
    for directory in [source.to_owned(), source.join("c")] {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries {
            let entry = entry.attempt(|| format!("list {}", directory.display()))?;
            let name = entry.file_name().to_string_lossy().to_uppercase();
            let is_license = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];
            // The toolchain has a page of everything that its sources contain, compiler included.
            let is_page = name.ends_with(".HTML");
            if is_license.iter().any(|word| name.starts_with(word)) && !is_page && entry.path().is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_linked_is_a_component() {
        let dependency = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let package = |name: &str| {
            json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0",
                    "source": "registry", "manifest_path": format!("/{name}/Cargo.toml"), "repository": "home" })
        };
        let packages = ["duramen-cli", "used", "deep", "tested", "built", "lua-src"].map(package);
        let metadata = json!({
            "packages": packages,
            "resolve": { "nodes": [
                { "id": "duramen-cli", "deps": [
                    dependency("used", Value::Null),
                    dependency("tested", json!("dev")),
                    dependency("built", json!("build")),
                ] },
                { "id": "used", "deps": [dependency("deep", Value::Null)] },
            ] },
        });
        let sbom = read(&metadata, &BTreeMap::new()).unwrap();
        let names: Vec<&str> = sbom.components.values().map(|part| &*part.name).collect();
        assert_eq!(names, ["deep", "duramen-cli", "lua-src", "used"]);
        assert_eq!(sbom.components["used"].license, "MIT OR Apache-2.0");
        assert_eq!(sbom.homepage, "home");
    }
}
