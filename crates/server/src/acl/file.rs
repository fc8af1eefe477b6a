//! The ACL file: one user in a line, as ACL LIST shows it. It is replaced whole, or not at all.

use super::commands::Commands;
use super::selector::{RuleError, has_blanks};
use super::user::{Rules, merge_selectors};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The users of a file; all of its errors in one line, as Redis reports them.
///
/// # Errors
/// See above.
pub fn parse(
    text: &[u8],
    path: &str,
    commands: &Commands,
    all_channels: bool,
) -> Result<BTreeMap<Box<[u8]>, Rules>, String> {
    let (mut users, mut errors) = (BTreeMap::new(), String::new());
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let (number, line) = (at + 1, trim(line));
        if line.is_empty() {
            continue;
        }
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let [b"user", name, words @ ..] = words.as_slice() else {
            errors += &format!("{path}:{number} should start with user keyword followed by the username. ");
            continue;
        };
        let shown = String::from_utf8_lossy(name);
        if has_blanks(name) {
            errors += &format!("'{path}:{number}: username '{shown}' contains invalid characters. ");
            continue;
        }
        if users.contains_key(*name) {
            errors += &format!("WARNING: Duplicate user '{shown}' found on line {number}. ");
            continue;
        }
        let mut rules = Rules::new(commands, all_channels);
        match merge_selectors(words) {
            Err(_) => errors += &format!("{path}:{number}: Unmatched parenthesis in selector definition. "),
            Ok(words) => {
                let mut is_bad = false;
                for word in words {
                    let word = trim(&word);
                    let Err(why) = rules.set(commands, word, all_channels) else { continue };
                    let text = why.text();
                    if why == RuleError::Unknown {
                        let word = String::from_utf8_lossy(word);
                        errors += &format!("{path}:{number}: Error in applying operation '{word}': {text}. ");
                    } else if !std::mem::replace(&mut is_bad, true) {
                        // Without the word, which may be a password.
                        errors += &format!("{path}:{number}: {text}. ");
                    }
                }
            }
        }
        users.insert((*name).into(), rules);
    }
    if errors.is_empty() {
        return Ok(users);
    }
    Err(errors + "WARNING: ACL errors detected, no change to the previously active ACL rules was performed")
}

fn trim(line: &[u8]) -> &[u8] {
    line.trim_ascii()
}

/// Replaces the file. Durable when it returns.
///
/// # Errors
/// Those of the file system; the old file is then unchanged.
pub fn save(path: &Path, text: &[u8]) -> io::Result<()> {
    // The target of a link and its permissions stay; a new file is for its owner alone, because it has hashes of passwords.
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let permissions = std::fs::metadata(path).map(|found| found.permissions());
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".tmp-{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    let written = permissions
        .map_or(Ok(()), |permissions| out.set_permissions(permissions))
        .and_then(|()| out.write_all(text))
        // Before the name: a crash leaves the old file or all of the new one.
        .and_then(|()| out.sync_all());
    written.and_then(|()| std::fs::rename(&temporary, path)).inspect_err(|_| {
        // The next save overwrites it.
        let _ = std::fs::remove_file(&temporary);
    })?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}
