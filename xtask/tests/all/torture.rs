//! The torture in its short form: a few seconds and a dozen kills for each door, medium and durability
//! that differ in what a crash may take. The long form is `cargo xtask torture --seconds 60`.

use std::io;
use std::path::Path;
use std::process::Command;

/// Runs `xtask torture` and demands that it finds nothing.
fn torture(arguments: &[&str]) -> io::Result<()> {
    if arguments.contains(&"shm") && !Path::new("/dev/shm").is_dir() {
        eprintln!("not run: this system has no /dev/shm");
        return Ok(());
    }
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["torture", "--seconds", "5", "--writers", "2"])
        .args(arguments)
        .output()?;
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "cargo xtask torture --seconds 5 {}:\n{text}", arguments.join(" "));
    println!("{text}");
    Ok(())
}

#[test]
fn clients_of_a_killed_server_lose_nothing() -> io::Result<()> {
    torture(&["--part", "sockets", "--medium", "shm", "--durability", "every-write"])
}

#[test]
fn clients_of_a_killed_server_on_a_file_lose_nothing() -> io::Result<()> {
    torture(&["--part", "sockets", "--medium", "file", "--durability", "interval"])
}

#[test]
fn writers_in_a_killed_process_lose_nothing() -> io::Result<()> {
    torture(&["--part", "library", "--medium", "shm", "--durability", "every-write"])
}

#[test]
fn writers_in_a_killed_process_on_a_file_lose_nothing() -> io::Result<()> {
    torture(&["--part", "library", "--medium", "file", "--durability", "interval"])
}

#[test]
fn commits_of_a_killed_process_are_kept_as_a_prefix() -> io::Result<()> {
    torture(&["--part", "library", "--medium", "shm", "--durability", "manual"])
}

#[test]
fn clients_of_a_killed_server_with_an_ordered_index_lose_nothing() -> io::Result<()> {
    torture(&["--part", "sockets", "--medium", "shm", "--index", "ordered"])
}

#[test]
fn writers_in_a_killed_process_with_an_ordered_index_lose_nothing() -> io::Result<()> {
    torture(&["--part", "library", "--medium", "file", "--durability", "interval", "--index", "ordered"])
}
