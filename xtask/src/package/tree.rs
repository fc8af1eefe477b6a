//! Files of the repository, and files that are written below a directory with the same permissions everywhere.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::failure::{Attempt, Result};

/// Writes a file with these permissions, and the directories above it.
pub fn put(root: &Path, path: &str, bytes: &[u8], mode: u32) -> Result<PathBuf> {
    let to = root.join(path.trim_start_matches('/'));
    if let Some(above) = to.parent() {
        fs::create_dir_all(above).attempt(|| format!("make {}", above.display()))?;
    }
    fs::write(&to, bytes)
        .and_then(|()| fs::set_permissions(&to, Permissions::from_mode(mode)))
        .attempt(|| format!("write {}", to.display()))?;
    Ok(to)
}

/// Reads a file of the repository as text.
pub fn text(repository: &Path, path: &str) -> Result<String> {
    fs::read_to_string(repository.join(path)).attempt(|| format!("read {path}"))
}

/// Gives all directories the same permissions, whatever the umask is.
pub fn plain_directories(root: &Path) -> Result<()> {
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        let attempt = || format!("list {}", directory.display());
        fs::set_permissions(&directory, Permissions::from_mode(0o755)).attempt(attempt)?;
        for entry in fs::read_dir(&directory).attempt(attempt)? {
            let path = entry.attempt(attempt)?.path();
            if path.is_dir() {
                waiting.push(path);
            }
        }
    }
    Ok(())
}
