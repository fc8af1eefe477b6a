//! What would be published on crates.io: each package has its metadata, and cargo packs it.

use std::path::Path;

use serde_json::Value;

use super::tool::output;
use crate::cargo::cargo;
use crate::failure::{Attempt, Result};

/// Fields without which crates.io refuses a package, or shows a poor page.
const WANTED: [&str; 4] = ["description", "license", "repository", "rust_version"];

/// Packs all published packages; returns whether nothing is wrong.
pub fn check(repository: &Path) -> Result<bool> {
    let cargo = || cargo(repository);
    let text = output(cargo().args(["metadata", "--format-version=1", "--no-deps", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&text).attempt(|| "read cargo's metadata".to_owned())?;
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    let published: Vec<&Value> = packages.iter().filter(|package| package["publish"].is_null()).collect();
    let mut clean = true;
    for package in &published {
        let name = package["name"].as_str().unwrap_or_default();
        for field in WANTED.iter().filter(|field| package[**field].as_str().is_none_or(str::is_empty)) {
            println!("crate {name} has no {field}");
            clean = false;
        }
        let files =
            output(cargo().args(["package", "--list", "--allow-dirty", "--locked", "--package", name]))?;
        for wanted in ["LICENSE-APACHE", "LICENSE-MIT"] {
            if !files.lines().any(|file| file == wanted) {
                println!("crate {name} has no {wanted}");
                clean = false;
            }
        }
    }
    let mut pack = cargo();
    pack.args(["package", "--no-verify", "--allow-dirty", "--locked", "--quiet"]);
    for package in &published {
        pack.args(["--package", package["name"].as_str().unwrap_or_default()]);
    }
    output(&mut pack)?;
    println!("crates: cargo packs {}, with their metadata", published.len());
    Ok(clean)
}
