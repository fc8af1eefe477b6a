//! The server's log, over a life with a kill, a limit that is reached, a file that is deleted, and a clean end.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Server {
    child: Child,
    directory: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Serves below `directory`, with files of at most so many blocks of the shell's `ulimit -f`.
    fn start(directory: &Path, limit: &str) -> Self {
        let _ = fs::remove_file(directory.join("socket"));
        let serve = format!(
            "ulimit -f {limit}; exec {} serve --port 0 --unixsocket socket --logfile log --enable-debug-command yes",
            env!("CARGO_BIN_EXE_duramen")
        );
        let child = Command::new("sh")
            .args(["-c", &serve])
            .current_dir(directory)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { child, directory: directory.to_owned() };
        server.await_line("ready; try");
        server
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// The first line of this process that says so.
    fn await_line(&self, wanted: &str) -> String {
        let end = Instant::now() + Duration::from_secs(20);
        let own = format!("{}:M ", self.child.id());
        loop {
            let log = self.log();
            if let Some(line) = log.lines().find(|line| line.starts_with(&own) && line.contains(wanted)) {
                return line.to_owned();
            }
            assert!(Instant::now() < end, "no line with {wanted:?}:\n{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn client(&self) -> BufReader<UnixStream> {
        BufReader::new(UnixStream::connect(self.directory.join("socket")).unwrap())
    }
}

fn ask(client: &mut BufReader<UnixStream>, command: &str) -> String {
    client.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    if let Some(bytes) = line.strip_prefix('$').and_then(|bytes| bytes.trim_end().parse::<usize>().ok()) {
        let mut text = vec![0; bytes + 2];
        client.read_exact(&mut text).unwrap();
        return String::from_utf8(text).unwrap();
    }
    line
}

fn check(directory: &Path, store: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_duramen"))
        .args(["check", "--path", store])
        .current_dir(directory)
        .output()
        .unwrap()
}

#[test]
fn log_lines_say_what_happened_and_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    {
        let server = Server::start(directory, "unlimited");
        let line = server.await_line("opened: the store is empty");
        // Redis's form.
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words.len() > 6 && words[4].len() == "10:00:00.123".len() && words[5] == "*", "{line}");
        server.await_line("listening: ");
        assert_eq!(ask(&mut server.client(), "SET kept 1"), "+OK\r\n");
        // Killed while idle.
    }
    let said = String::from_utf8(check(directory, "duramen-data").stdout).unwrap();
    assert!(said.contains("sound") && !said.contains("damage"), "{said}");

    // A limit that the system sets, in units of 512 bytes: 24 MiB.
    let mut server = Server::start(directory, "49152");
    let line = server.await_line("recovered in ");
    assert!(line.contains("; 1 key, "), "{line}");
    let mut client = server.client();
    // Not of zeros: a hole takes no space.
    let value = "v".repeat(1 << 20);
    let set = |key: usize| format!("*3\r\n$3\r\nSET\r\n$2\r\n{}\r\n${}\r\n{value}", key + 10, value.len());
    let mut sets = (0..64).map(|key| ask(&mut client, &set(key)));
    let refused = sets.find(|reply| reply != "+OK\r\n").unwrap();
    drop(sets);
    assert!(
        refused.starts_with("-OOM ") && refused.contains("ulimit -f") && !refused.contains("maxmemory"),
        "{refused}"
    );
    let line = server.await_line("out of space: rejecting writes");
    assert!(line.contains(" # ") && line.contains("24 MiB"), "{line}");
    assert_eq!(ask(&mut client, "DEL 10"), ":1\r\n");
    assert_eq!(ask(&mut client, "GET kept"), "1\r\n");

    let panicked = ask(&mut client, "DEBUG PANIC");
    assert!(panicked.starts_with("-ERR internal error"), "{panicked}");
    let line = server.await_line("panicked at");
    assert!(line.contains("thread duramen-worker-") && line.contains("debug.rs"), "{line}");
    assert!(server.log().contains("\n  ") && server.log().contains("duramen_server::"), "a backtrace");
    server.await_line("the panic above was in debug of client");

    // Another name of the file does not matter: a start would not find it here.
    fs::hard_link(directory.join("duramen-data"), directory.join("other-name")).unwrap();
    fs::remove_file(directory.join("duramen-data")).unwrap();
    let line = server.await_line("was deleted");
    assert!(line.contains(" # ") && line.contains("Do not stop the server"), "{line}");
    assert!(ask(&mut client, "INFO duramen").contains("duramen_store_deleted:1\r\n"));
    // As the line says.
    let pid = server.child.id();
    let copy = format!(
        "cp --sparse=always /proc/{pid}/fd/$(cd /proc/{pid}/fd && find . -lname '*(deleted)' | head -1) saved"
    );
    assert!(line.contains(copy.trim_end_matches("saved")), "{line}");
    assert!(Command::new("sh").args(["-c", &copy]).current_dir(directory).status().unwrap().success());
    let checked = check(directory, "saved");
    assert!(checked.status.success(), "{checked:?}");

    client.get_mut().write_all(b"SHUTDOWN\r\n").unwrap();
    assert!(server.child.wait().unwrap().success());
    server.await_line("SHUTDOWN from ");
    let log = server.log();
    assert!(
        log.trim_end().ends_with("* ended: the store is closed cleanly, with all that was acknowledged"),
        "{log}"
    );
}

#[test]
fn two_stop_signals_at_once_end_cleanly_and_small_faults_of_a_start_are_logged() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("dump.rdb"), b"REDIS0010").unwrap();
    fs::write(
        dir.path().join("some.conf"),
        "port 0\nunixsocket socket\nlogfile log\nhz 10\nio-threads 2\nactivedefrag no\npidfile no/such/place\n",
    )
    .unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_duramen"))
        .args(["serve", "some.conf"])
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut server = Server { child, directory: dir.path().to_owned() };
    server.await_line("ready; try");
    server.await_line("cannot write pidfile no/such/place");
    server.await_line("without effect here: hz, io-threads, activedefrag");
    server.await_line("dump.rdb is not read at a start");
    let pid = server.child.id().to_string();
    // To the process, and to the group that it is in.
    Command::new("sh").args(["-c", &format!("kill -TERM {pid}; kill -TERM {pid}")]).status().unwrap();
    assert!(server.child.wait().unwrap().success(), "{}", server.log());
    assert!(server.log().contains("the store is closed cleanly"));
    let refused = Command::new(env!("CARGO_BIN_EXE_duramen"))
        .args(["serve", "--port", "0", "--unixsocket", "socket", "--path", "other", "--maxmemory", "100kb"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("the smallest store on this medium"), "{said}");
}

/// A server with these options, in the directory.
fn start(directory: &Path, options: &[&str], stdout: Stdio, environment: &[(&str, String)]) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duramen"));
    command.args(["serve", "--port", "0", "--unixsocket", "socket"]).args(options);
    let child =
        command.envs(environment.iter().cloned()).current_dir(directory).stdout(stdout).spawn().unwrap();
    Server { child, directory: directory.to_owned() }
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(server: &Server, name: &str) {
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
}

#[test]
fn a_rotated_log_goes_on_in_a_new_file_and_json_lines_are_objects() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let mut server = start(dir, &["--logfile", "log", "--log-format", "json"], Stdio::null(), &[]);
    let has = |file: &str, text: &str| fs::read_to_string(dir.join(file)).is_ok_and(|log| log.contains(text));
    until("it is ready", || has("log", "ready; try"));
    fs::rename(dir.join("log"), dir.join("log.1")).unwrap();
    signal(&server, "HUP");
    let mut client = server.client();
    assert!(ask(&mut client, "AUTH nobody wrong").starts_with("-WRONGPASS"));
    until("a new file", || has("log", "failed to log in as 'nobody'"));
    assert!(!has("log.1", "nobody"));
    // A text of several lines stays one line.
    assert_eq!(ask(&mut client, "CONFIG SET duramen-log-format lines"), "+OK\r\n");
    assert_eq!(ask(&mut client, "CONFIG SET log-format json").split(' ').next(), Some("-ERR"));
    signal(&server, "TERM");
    assert!(server.child.wait().unwrap().success());
    let log = fs::read_to_string(dir.join("log.1")).unwrap()
        + fs::read_to_string(dir.join("log")).unwrap().lines().next().unwrap();
    for line in log.lines() {
        let object: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let members: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(members, ["time", "level", "pid", "message"], "{line}");
        let time = object["time"].as_str().unwrap();
        assert!(time.len() == "2026-11-24T10:00:00.123Z".len() && time.ends_with('Z'), "{line}");
        assert!(["notice", "warning"].contains(&object["level"].as_str().unwrap()), "{line}");
        assert_eq!(object["pid"], server.child.id(), "{line}");
    }
    assert!(log.lines().count() > 5, "{log}");
    server.await_line("ended: the store is closed cleanly");
}

#[test]
fn lines_for_the_journal_have_priorities_and_other_streams_have_none() {
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::MetadataExt;
    for is_named in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        let (mut journal, theirs) = UnixStream::pair().unwrap();
        let theirs = OwnedFd::from(theirs);
        let found = fs::File::from(theirs.try_clone().unwrap()).metadata().unwrap();
        let inode = found.ino() + u64::from(!is_named);
        let named = [("JOURNAL_STREAM", format!("{}:{inode}", found.dev()))];
        let mut server = start(dir, &["--enable-debug-command", "yes"], Stdio::from(theirs), &named);
        until("it listens", || UnixStream::connect(dir.join("socket")).is_ok());
        let mut client = server.client();
        assert!(ask(&mut client, "DEBUG PANIC").starts_with("-ERR internal error"));
        signal(&server, "TERM");
        server.child.wait().unwrap();
        let mut log = String::new();
        journal.read_to_string(&mut log).unwrap();
        assert!(log.contains("ended: the store is closed cleanly") && log.contains("panicked"), "{log}");
        for line in log.lines() {
            let is_further = line.trim_start_matches(['<', '4', '5', '>']).starts_with("  ");
            let wanted = match is_named {
                true if is_further || line.contains(" # ") => "<4>",
                true => "<5>",
                false => "",
            };
            assert!(line.starts_with(wanted) && line.starts_with('<') == is_named, "{line}");
        }
    }
}
