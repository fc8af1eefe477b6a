//! `duramen bench mem` with bad input and interrupts: which input is refused, and which results and files remain.

use duramen_bench::report::Run;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn duramen(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duramen"));
    command.args(["bench", "mem"]).args(args).stdin(Stdio::null());
    command
}

fn failed(output: &Output, code: i32, wanted: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert!(error.contains(wanted), "wanted {wanted:?}, found {error}");
}

fn file(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

const SMALL: &str =
    "a:\n  args: { memory_range: 4M, min_io_chunk_size: 1M, operation: write, persist_instruction: none }\n";

#[test]
fn the_published_example_runs_unchanged_with_a_smaller_range() {
    let published =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/bench/hash_index_published.yaml");
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("run.json");
    let output = duramen(&[published.to_str().unwrap(), "--range", "64M", "--operations", "20000", "--json"])
        .arg(&json)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run = Run::read(&json).unwrap();
    assert!(run.complete);
    assert_eq!(run.measurements.len(), 3);
    assert!(run.measurements.iter().all(|m| m.group == "hash_index_update" && m.metrics["rate"].value > 0.0));
    // More threads than cores run, with a note.
    let note = run.notes.iter().any(|note| note.contains("16 threads share"));
    assert!(note || std::thread::available_parallelism().unwrap().get() >= 16, "{:?}", run.notes);
}

#[test]
fn bad_input_is_refused_with_a_hint() {
    let directory = tempfile::tempdir().unwrap();
    let workload = file(directory.path(), "w.yaml", SMALL);
    failed(
        &duramen(&[&workload, "--range", "60T"]).output().unwrap(),
        3,
        "are available; lower memory_range or give --range",
    );
    failed(
        &duramen(&[&workload, "--range", "1000"]).output().unwrap(),
        2,
        "memory_range as set on the command line: 1000 is no multiple",
    );
    failed(&duramen(&["missing.yaml"]).output().unwrap(), 3, "cannot read workload file missing.yaml");
    failed(&duramen(&[&workload, "--medium", "floppy"]).output().unwrap(), 2, "devdax, fsdax, shm");
    failed(&duramen(&[&workload, "--medium", "devdax"]).output().unwrap(), 2, "needs a path");
    let broken = file(directory.path(), "b.yaml", "a:\n  args:\n    acess_size: 64\n");
    failed(
        &duramen(&[&broken]).output().unwrap(),
        2,
        "b.yaml:3: unknown knob `acess_size`; did you mean `access_size`?",
    );
    let far = file(directory.path(), "f.yaml", "a:\n  args: { memory_range: 4M, numa_pattern: far }\n");
    if duramen_bench_nodes() == 1 {
        failed(&duramen(&[&far]).output().unwrap(), 2, "this machine has one");
    }
}

fn duramen_bench_nodes() -> usize {
    std::fs::read_dir("/sys/devices/system/node").map_or(1, |nodes| {
        nodes.flatten().filter(|e| e.file_name().to_string_lossy().starts_with("node")).count()
    })
}

#[test]
fn a_users_file_is_safe_read_only_or_in_use() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let workload = file(directory.path(), "w.yaml", SMALL);
    let precious = directory.path().join("precious");
    std::fs::write(&precious, vec![7u8; 8 << 20]).unwrap();
    let path = precious.to_str().unwrap();
    failed(&duramen(&[&workload, "--path", path]).output().unwrap(), 2, "give --overwrite");
    assert!(std::fs::read(&precious).unwrap().iter().all(|byte| *byte == 7));
    std::fs::set_permissions(&precious, std::fs::Permissions::from_mode(0o444)).unwrap();
    // The superuser may write to it all the same.
    let is_root = std::fs::OpenOptions::new().write(true).open(&precious).is_ok();
    if !is_root {
        failed(
            &duramen(&[&workload, "--path", path, "--overwrite"]).output().unwrap(),
            3,
            "ermission denied",
        );
    }
    std::fs::set_permissions(&precious, std::fs::Permissions::from_mode(0o644)).unwrap();
    let slow = "a:\n  args: { memory_range: 4M, exec_mode: random, run_time: 60 }\n";
    let slow = file(directory.path(), "slow.yaml", slow);
    let hold = || duramen(&[&slow, "--path", path, "--overwrite"]).stdout(Stdio::null()).spawn().unwrap();
    let mut holder = hold();
    let start = Instant::now();
    let refused = loop {
        std::thread::sleep(Duration::from_millis(500));
        if holder.try_wait().unwrap().is_some() {
            // It came while the other had the file, and was refused itself.
            holder = hold();
            continue;
        }
        let output = duramen(&[&workload, "--path", path, "--overwrite"]).output().unwrap();
        if !output.status.success() || start.elapsed() > Duration::from_secs(30) {
            break output;
        }
    };
    holder.kill().unwrap();
    holder.wait().unwrap();
    failed(&refused, 3, &holder.id().to_string());
    assert_eq!(std::fs::metadata(&precious).unwrap().len(), 8 << 20);
}

#[test]
fn an_interrupt_keeps_the_measurements_and_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("run.json");
    let text = "short:\n  args: { memory_range: 4M, run_time: 0.01 }\nlong:\n  args: { memory_range: 4M, run_time: 300 }\n";
    let workload = file(directory.path(), "w.yaml", text);
    let scratch = directory.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let mut child = duramen(&[&workload, "--path", scratch.to_str().unwrap(), "--medium", "file", "--json"])
        .arg(&json)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0, "its file has no name while it runs");
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    let run = Run::read(&json).unwrap();
    assert!(!run.complete);
    let groups: Vec<&str> = run.measurements.iter().map(|m| m.group.as_str()).collect();
    assert_eq!(groups, ["short", "long"]);
    assert!(run.measurements[1].notes.iter().any(|note| note.contains("interrupted")));
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);
}
