//! Starts of a small server, in its short form: values are compared, and a loss is reported.

#[path = "../../src/cargo.rs"]
mod cargo;

use std::io;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `xtask restart` on a small store, with the program that the tests build.
fn restart(arguments: &[&str]) -> io::Result<Output> {
    let own = Path::new(env!("CARGO_BIN_EXE_xtask"));
    let target = own.parent().and_then(Path::parent).unwrap_or(Path::new("target"));
    // As `.ci/run` builds the tests, so that the same build is used.
    let mut build = cargo::cargo(Path::new(env!("CARGO_MANIFEST_DIR")));
    build.args(["build", "--quiet", "--workspace", "--features", "bench,sql"]);
    build.args(["--bin", "duramen", "--target-dir"]).arg(target);
    assert!(build.status()?.success());
    Command::new(own)
        .args(["restart", "--keys", "3000", "--starts", "2", "--medium", "file", "--duramen"])
        .arg(own.with_file_name("duramen"))
        .args(arguments)
        .output()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn acknowledged_writes_exist_after_every_start() -> io::Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("found.json");
    let output = restart(&["--cold", "--json", &file.display().to_string()])?;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let found: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
    let rows = found["rows"].as_array().map_or(&[][..], Vec::as_slice);
    assert_eq!(rows.len(), 4, "hash and ordered, after SIGTERM and after SIGKILL");
    for row in rows {
        assert_eq!((row["wrong"].as_u64(), row["keys"].as_u64()), (Some(0), Some(3000)), "{row}");
        let seconds = row["seconds"].as_array().map_or(&[][..], Vec::as_slice);
        let opening = row["recovery_seconds"].as_array().map_or(&[][..], Vec::as_slice);
        assert_eq!((seconds.len(), opening.len()), (2, 2), "{row}");
        for (whole, part) in seconds.iter().zip(opening) {
            assert!(whole.as_f64() > part.as_f64() && part.as_f64() > Some(0.0), "{row}");
        }
    }
    Ok(())
}

/// With `manual` and no commit, writes acknowledged before SIGKILL are lost, and the check must find that.
#[test]
fn a_server_that_loses_writes_is_found() -> io::Result<()> {
    let output = restart(&["--index", "ordered", "--", "--durability", "manual"])?;
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("values were lost"), "{}", text(&output));
    let output = restart(&["--index", "hash", "--", "--no-such-directive", "1"])?;
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("no-such-directive"), "{}", text(&output));
    Ok(())
}
