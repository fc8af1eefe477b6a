//! The target directory of this run.

use crate::failure::{Attempt, Result};
use std::path::{Path, PathBuf};

/// A place in the target directory, as an absolute path: the builds of other directories use it too.
pub fn target(repository: &Path, name: &str) -> Result<PathBuf> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository.join("target"), PathBuf::from);
    let target = std::path::absolute(&target).attempt(|| format!("find {}", target.display()))?;
    Ok(target.join(name))
}
