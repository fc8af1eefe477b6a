//! Jobs over sockets, with dead letters, lookups, and a real Redis server where there is one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use duramen::{Create, Durability, Options, Store};
use duramen_stream::run::{Existing, Keep, MemoryLimit, Progress, Running, Start};
use duramen_stream::{Error, Outcome, Session};

fn open(directory: &Path) -> Store {
    let options =
        Options { durability: Durability::Manual, create: Create::OpenOrCreate, ..Options::default() };
    options.open(directory.join("store")).unwrap()
}

fn keep(directory: &Path) -> Keep {
    Keep {
        store: open(directory),
        name: "job".to_owned(),
        every: Duration::from_millis(5),
        from_start: false,
        note: String::new(),
        room: MemoryLimit::default(),
    }
}

fn start(script: &str, directory: &Path, kept: bool) -> Result<Running, Error> {
    let Some(Outcome::Job(job)) = Session::default().run(script)?.pop() else { panic!("{script}") };
    let keep = kept.then(|| keep(directory));
    Running::start_in(&job.optimised, directory, keep.as_ref())
}

fn run(script: &str, directory: &Path, kept: bool) -> Result<Progress, Error> {
    start(script, directory, kept)?.run(&AtomicBool::new(false), |_| ())
}

/// Runs an endless job until `enough` returns true.
fn run_until(script: &str, directory: &Path, kept: bool, enough: impl Fn() -> bool + Sync) -> Progress {
    let mut running = start(script, directory, kept).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let began = Instant::now();
            while !enough() && began.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
        });
        running.run(&stop, |_| ()).unwrap()
    })
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn records_are_read_from_and_written_to_sockets() {
    let directory = tempfile::tempdir().unwrap();
    let (input, output) = (TcpListener::bind("127.0.0.1:0").unwrap(), directory.path().join("out.sock"));
    let port = input.local_addr().unwrap().port();
    let script = format!(
        "CREATE TABLE i (k BIGINT, s STRING) WITH ('connector' = 'socket', 'port' = '{port}', 'format' = 'csv');
         CREATE TABLE o (k BIGINT, s STRING) WITH ('connector' = 'socket', 'path' = 'out.sock', 'format' = 'json');
         INSERT INTO o SELECT k * 2, s FROM i"
    );
    let peer = UnixListener::bind(&output).unwrap();
    let lines = std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = input.accept().unwrap();
            // A record in two parts, one over two lines, and one whose end is that of the connection.
            for part in ["1,on", "e\r\n2,\"two\nlines\"\n", "3,three"] {
                stream.write_all(part.as_bytes()).unwrap();
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        let taken = scope.spawn(move || {
            let mut text = String::new();
            peer.accept().unwrap().0.read_to_string(&mut text).unwrap();
            text
        });
        assert_eq!(run(&script, directory.path(), false).unwrap().records, 3);
        taken.join().unwrap()
    });
    assert_eq!(
        lines,
        "{\"k\":2,\"s\":\"one\"}\n{\"k\":4,\"s\":\"two\\nlines\"}\n{\"k\":6,\"s\":\"three\"}\n"
    );
}

/// Writes the records that arrive at a listening socket.
const FROM_A_SOCKET: &str = "CREATE TABLE i (k BIGINT)
      WITH ('connector' = 'socket', 'path' = 'in.sock', 'mode' = 'listen', 'format' = 'json');
    CREATE TABLE o (k BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out.csv', 'format' = 'csv');
    INSERT INTO o SELECT k FROM i";

/// Connects to a socket as soon as it listens.
fn connect_to(path: &Path) -> UnixStream {
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return stream,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

#[test]
fn a_bad_peer_of_a_listening_socket_ends_only_its_own_connection() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("in.sock");
    let out = directory.path().join("out.csv");
    let lines = |count: usize| {
        let began = Instant::now();
        while read(&out).lines().count() < count && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let progress = std::thread::scope(|scope| {
        scope.spawn(|| {
            let connect = || connect_to(&path);
            let (mut good, mut bad) = (connect(), connect());
            good.write_all(b"{\"k\": 1}\n").unwrap();
            lines(1);
            // Records before a bad one count; records after it do not.
            bad.write_all(b"{\"k\": 2}\nno record\n{\"k\": 9}\n").unwrap();
            lines(2);
            let mut end = [0];
            assert_eq!(bad.read(&mut end).unwrap(), 0, "it is closed");
            good.write_all(b"{\"k\": 3}\n").unwrap();
            connect().write_all(b"{\"k\": 4}\n").unwrap();
        });
        run_until(FROM_A_SOCKET, directory.path(), false, || read(&out).lines().count() == 4)
    });
    assert_eq!(progress.records, 4);
}

#[test]
fn several_peers_connect_to_a_listening_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("in.sock");
    let out = directory.path().join("out.csv");
    let progress = std::thread::scope(|scope| {
        scope.spawn(|| {
            let connect = || connect_to(&path);
            let (mut a, mut b) = (connect(), connect());
            a.write_all(b"{\"k\": 1}\n").unwrap();
            b.write_all(b"{\"k\": 2}\n{\"k\": 3}\n").unwrap();
        });
        run_until(FROM_A_SOCKET, directory.path(), false, || read(&out).lines().count() == 3)
    });
    assert_eq!(progress.records, 3);
    let mut lines: Vec<String> = read(&out).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["1", "2", "3"]);
}

#[test]
fn an_unreadable_record_goes_to_the_dead_letters_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("in.csv");
    std::fs::write(&path, "1\nx\n2\n").unwrap();
    let script =
        "CREATE TABLE i (k BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in.csv', 'format' = 'csv',
          'source.monitor-interval' = '1 ms', 'dead-letter' = 'dead');
        CREATE TABLE o (k BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'csv');
        INSERT INTO o SELECT k FROM i";
    let all = |name: &str| {
        let mut parts: Vec<_> = std::fs::read_dir(directory.path().join(name))
            .into_iter()
            .flatten()
            .map(|part| part.unwrap().path())
            .filter(|part| !part.file_name().unwrap().to_string_lossy().starts_with('.'))
            .collect();
        parts.sort();
        parts.iter().map(|part| read(part)).collect::<String>()
    };
    let progress = run_until(script, directory.path(), true, || all("out") == "1\n2\n");
    assert_eq!((progress.records, progress.skipped), (2, 1));
    std::fs::write(&path, "1\nx\n2\ny\n3\n").unwrap();
    let progress = run_until(script, directory.path(), true, || all("out") == "1\n2\n3\n");
    assert_eq!((progress.records, progress.skipped), (3, 2));
    let letters: Vec<serde_json::Value> =
        all("dead").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(letters.len(), 2, "{letters:?}");
    assert_eq!(letters[0]["record"], "x");
    assert_eq!(letters[1]["record"], "y");
    assert!(letters[1]["error"].as_str().unwrap().contains("wanted BIGINT"), "{letters:?}");
}

#[test]
fn a_lookup_join_reads_the_keys_of_another_job() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("names.csv"), "1,one\n2,two\n3,\n").unwrap();
    std::fs::write(directory.path().join("in.csv"), "1\n2\n1\n4\n3\n").unwrap();
    let names = "CREATE TABLE names (k BIGINT, name STRING, PRIMARY KEY (k) NOT ENFORCED)
        WITH ('connector' = 'duramen', 'database' = '3', 'value' = 'VALUE');";
    for value in ["hash", "json"] {
        let names = names.replace("VALUE", value);
        let first = format!(
            "{names} CREATE TABLE i (k BIGINT, name STRING) WITH ('connector' = 'filesystem', 'path' = 'names.csv', 'format' = 'csv');
             INSERT INTO names SELECT k, name FROM i"
        );
        let store = open(directory.path());
        let run = |script: &str, name: &str| {
            let keep = Keep {
                store: store.clone(),
                name: name.to_owned(),
                every: Duration::from_secs(1),
                from_start: true,
                note: String::new(),
                room: MemoryLimit::default(),
            };
            let Some(Outcome::Job(job)) = Session::default().run(script).unwrap().pop() else { panic!() };
            let mut running = Running::start_in(&job.optimised, directory.path(), Some(&keep)).unwrap();
            running.run(&AtomicBool::new(false), |_| ()).unwrap();
        };
        run(&first, "first");
        let second = format!(
            "{names} CREATE TABLE i (k BIGINT, p AS PROCTIME()) WITH ('connector' = 'filesystem', 'path' = 'in.csv', 'format' = 'csv');
             CREATE TABLE o (k BIGINT, name STRING) WITH ('connector' = 'filesystem', 'path' = 'out-{value}', 'format' = 'csv');
             INSERT INTO o SELECT i.k, n.name FROM i LEFT JOIN names FOR SYSTEM_TIME AS OF i.p AS n ON i.k = n.k"
        );
        run(&second, "second");
        let mut parts = std::fs::read_dir(directory.path().join(format!("out-{value}"))).unwrap();
        let part = parts.next().unwrap().unwrap().path();
        assert!(part.file_name().unwrap().to_string_lossy().starts_with("part-second-0-"), "{part:?}");
        assert_eq!(read(&part), "1,one\n2,two\n1,one\n4,\n3,\n");
        assert!(parts.next().is_none());
    }
}

/// A real server, if one is installed; it ends with this.
struct Server {
    child: Child,
    port: u16,
    directory: tempfile::TempDir,
}

impl Server {
    fn start() -> Option<Server> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let directory = tempfile::tempdir().unwrap();
        let child = Server::child(directory.path(), port)?;
        Some(Server { child, port, directory })
    }

    fn child(directory: &Path, port: u16) -> Option<Child> {
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--appendonly", "yes", "--dir"]).arg(directory);
        let child = command.stdout(Stdio::null()).spawn().ok()?;
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(child)
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// With what it had when it was killed.
    fn start_again(&mut self) {
        self.child = Server::child(self.directory.path(), self.port).unwrap();
        let began = Instant::now();
        while self.ask("PING") != "+PONG" {
            assert!(began.elapsed() < Duration::from_secs(20), "redis-server does not load what it had");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// One command that is answered by one line, or by a bulk string.
    fn ask(&self, command: &str) -> String {
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", self.port)).unwrap());
        stream.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        if line.starts_with('$') && line != "$-1\r\n" {
            line.clear();
            stream.read_line(&mut line).unwrap();
        }
        line.trim_end().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_job_reads_and_writes_streams_and_keys_of_a_redis_server() {
    let Some(server) = Server::start() else {
        eprintln!("there is no redis-server in PATH: not tested");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    for (id, name) in [(1, "one"), (2, "two"), (3, "three")] {
        assert_eq!(server.ask(&format!("HSET names:{id} name {name}")), ":1");
    }
    for (id, n) in [(1, 10), (2, 20), (1, 30)] {
        assert!(server.ask(&format!("XADD orders * id {id} n {n}")).contains('-'));
    }
    let port = server.port;
    let script = format!(
        "CREATE TABLE orders (id BIGINT, n BIGINT, p AS PROCTIME())
           WITH ('connector' = 'redis-stream', 'port' = '{port}');
         CREATE TABLE names (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
           WITH ('connector' = 'redis', 'port' = '{port}', 'lookup.refresh' = '1 ms');
         CREATE TABLE named (id BIGINT, name STRING, n BIGINT)
           WITH ('connector' = 'redis-stream', 'stream' = 'out', 'port' = '{port}');
         CREATE TABLE totals (id BIGINT, total BIGINT, most BIGINT, PRIMARY KEY (id) NOT ENFORCED)
           WITH ('connector' = 'redis', 'port' = '{port}', 'key' = 'total');
         EXECUTE STATEMENT SET BEGIN
         INSERT INTO named SELECT o.id, n.name, o.n FROM orders o
           JOIN names FOR SYSTEM_TIME AS OF o.p AS n ON o.id = n.id;
         INSERT INTO totals SELECT id, SUM(n), MAX(n) FROM orders GROUP BY id;
         END"
    );
    run_until(&script, directory.path(), true, || server.ask("HGET total:1 total") == "40");
    assert_eq!(server.ask("XLEN out"), ":3");
    assert_eq!(server.ask("HGET total:2 most"), "20");
    // The job resumes after the last entry, with its sums; lookups read the current rows.
    server.ask("HSET names:4 name four");
    server.ask("XADD orders * id 4 n 1");
    server.ask("XADD orders * id 1 n 2");
    run_until(&script, directory.path(), true, || server.ask("HGET total:1 total") == "42");
    assert_eq!(server.ask("XLEN out"), ":5");
    assert_eq!(server.ask("HGET total:4 total"), "1");
    assert_eq!(server.ask("HGET total:1 most"), "30");
}

#[test]
fn a_server_gets_the_results_of_each_checkpoint_once() {
    let Some(mut server) = Server::start() else {
        eprintln!("there is no redis-server in PATH: not tested");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("in.csv");
    std::fs::write(&path, "1,5\n2,6\n1,7\n").unwrap();
    let script = "CREATE TABLE i (k BIGINT, v BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in.csv',
           'format' = 'csv', 'source.monitor-interval' = '1 ms');
         CREATE TABLE totals (k BIGINT, total BIGINT, PRIMARY KEY (k) NOT ENFORCED)
           WITH ('connector' = 'duramen', 'key' = 'total');
         CREATE TABLE few (k BIGINT, total BIGINT, PRIMARY KEY (k) NOT ENFORCED)
           WITH ('connector' = 'duramen', 'value' = 'json', 'database' = '1');
         EXECUTE STATEMENT SET BEGIN
         INSERT INTO totals SELECT k, SUM(v) FROM i GROUP BY k;
         INSERT INTO few SELECT k, SUM(v) FROM i GROUP BY k HAVING SUM(v) < 10;
         END";
    let port = server.port;
    let run_until = |enough: &dyn Fn(&Progress) -> bool| {
        let mut session = Session::default();
        session.attach("127.0.0.1", port, true);
        let Some(Outcome::Job(job)) = session.run(script).unwrap().pop() else { panic!() };
        let keep = keep(directory.path());
        let mut running = Running::start_in(&job.optimised, directory.path(), Some(&keep)).unwrap();
        let stop = AtomicBool::new(false);
        running.run(&stop, |progress| {
            if enough(progress) || progress.elapsed > Duration::from_secs(20) {
                stop.store(true, Ordering::Relaxed);
            }
        })
    };
    let in_database_1 = |command: &str| {
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", port)).unwrap());
        stream.get_mut().write_all(format!("SELECT 1\r\n{command}\r\n").as_bytes()).unwrap();
        let mut lines = stream.lines().map(Result::unwrap);
        assert_eq!(lines.next().unwrap(), "+OK");
        lines.next().unwrap()
    };
    run_until(&|_| server.ask("HGET total:1 total") == "12").unwrap();
    let marker = server.ask("GET sql:job:0");
    assert!(marker.split_once(' ').unwrap().0.parse::<u64>().unwrap() > 0, "{marker}");
    // What does not pass any more has gone.
    assert_eq!(in_database_1("EXISTS few:1"), ":0");
    assert_eq!(in_database_1("EXISTS few:2"), ":1");
    // The store's commit is done, the server gone: said, and kept.
    server.kill();
    std::fs::write(&path, "1,5\n2,6\n1,7\n2,9\n").unwrap();
    let shown = std::sync::Mutex::new(String::new());
    let error = run_until(&|progress| {
        *shown.lock().unwrap() = progress.waits.join("; ");
        !progress.waits.is_empty()
    });
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("no client took the last results") && error.contains("when the job resumes"),
        "{error}"
    );
    assert!(shown.lock().unwrap().contains("s for 127.0.0.1"), "{shown:?}");
    server.start_again();
    assert_eq!(server.ask("HGET total:2 total"), "6");
    // It is sent before anything is read.
    run_until(&|_| true).unwrap();
    assert_eq!(server.ask("HGET total:2 total"), "15");
    assert_eq!(in_database_1("EXISTS few:2"), ":0");
    // A marker that is not this job's: nothing is written.
    assert_eq!(server.ask("SET sql:job:0 99.other"), "+OK");
    std::fs::write(&path, "1,5\n2,6\n1,7\n2,9\n3,1\n").unwrap();
    let error = run_until(&|_| false).unwrap_err().to_string();
    assert!(error.contains("which is no marker"), "{error}");
    let other = TcpStream::connect(("127.0.0.1", port)).and_then(|mut stream| {
        stream.write_all(b"*3\r\n$3\r\nSET\r\n$9\r\nsql:job:0\r\n$7\r\n9 other\r\n")?;
        stream.read_exact(&mut [0; 5])
    });
    other.unwrap();
    let error = run_until(&|_| false).unwrap_err().to_string();
    assert!(error.contains("cannot tell whether") && error.contains("--from-start"), "{error}");
    assert_eq!(server.ask("HGET total:3 total"), "$-1");
}

#[test]
fn a_restart_from_the_start_deletes_only_the_jobs_own_keys_of_a_server() {
    let Some(server) = Server::start() else {
        eprintln!("there is no redis-server in PATH: not tested");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("in.csv");
    let script = "CREATE TABLE i (k STRING, v BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in.csv',
           'format' = 'csv', 'source.monitor-interval' = '1 ms');
         CREATE TABLE total (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'duramen');
         INSERT INTO total SELECT k, SUM(v) FROM i GROUP BY k HAVING SUM(v) < 10;";
    let run = |from_start: bool, existing: Existing, enough: &dyn Fn(&Progress) -> bool| {
        let mut session = Session::default();
        session.attach("127.0.0.1", server.port, true);
        let Some(Outcome::Job(job)) = session.run(script).unwrap().pop() else { panic!() };
        let keep = Keep { from_start, ..keep(directory.path()) };
        let start = Start {
            directory: directory.path(),
            keep: Some(&keep),
            threads: Some(1),
            existing,
            own: &mut |_, _| Ok(None),
        };
        let mut running = Running::start_on(&job.optimised, start).unwrap();
        let stop = AtomicBool::new(false);
        running.run(&stop, |progress| {
            if enough(progress) || progress.elapsed > Duration::from_secs(20) {
                stop.store(true, Ordering::Relaxed);
            }
        })
    };
    let keys = || {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.write_all(b"KEYS *\r\nQUIT\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let mut keys: Vec<String> =
            text.lines().filter(|line| !line.starts_with(['*', '$', '+'])).map(str::to_owned).collect();
        keys.sort();
        keys
    };
    std::fs::write(&path, "a,1\nb,2\nc,9\nc,1\n").unwrap();
    for key in ["total:alice", "total", "totals:a", "sql:other:0"] {
        server.ask(&format!("SET {key} precious"));
    }
    let before = keys();
    let error = run(false, Existing::Refuse, &|_| false).unwrap_err().to_string();
    assert!(
        error.contains("total:alice") && error.contains("--overwrite") && !error.contains("totals:a"),
        "{error}"
    );
    assert_eq!(keys(), before);
    let has = |key: &str| server.ask(&format!("EXISTS {key}")) == ":1";
    run(false, Existing::Adopt, &|_| has("total:b")).unwrap();
    let with = |more: &[&str]| {
        let mut keys: Vec<String> =
            ["sql:job:0", "sql:other:0", "total", "totals:a"].map(str::to_owned).to_vec();
        keys.extend(more.iter().map(|key| (*key).to_owned()));
        keys.sort();
        keys
    };
    assert_eq!(keys(), with(&["total:a", "total:alice", "total:b"]));
    assert_eq!(server.ask("GET total:alice"), "precious");
    // What the job has not written it does not replace.
    server.ask("SET total:d precious");
    std::fs::write(&path, "a,1\nb,2\nc,9\nc,1\nd,1\n").unwrap();
    let error = run(false, Existing::Refuse, &|_| false).unwrap_err().to_string();
    assert!(error.contains("total:d") && error.contains("--adopt"), "{error}");
    assert_eq!(server.ask("GET total:d"), "precious");
    run(false, Existing::Overwrite, &|_| server.ask("HGET total:d n") == "1").unwrap();
    assert_eq!(keys(), with(&["total:a", "total:alice", "total:b", "total:d"]));
    // From the start over less: nothing of the job and of what it adopted is left.
    std::fs::write(&path, "b,3\ne,1\n").unwrap();
    run(true, Existing::Refuse, &|_| has("total:e")).unwrap();
    assert_eq!(keys(), with(&["total:b", "total:e"]));
    assert_eq!(server.ask("HGET total:b n"), "3");
    assert_eq!(server.ask("GET totals:a"), "precious");
    // And with another store, which knows nothing of it.
    let store = directory.path().join("store");
    if store.is_dir() { std::fs::remove_dir_all(store) } else { std::fs::remove_file(store) }.unwrap();
    let error = run(false, Existing::Refuse, &|_| false).unwrap_err().to_string();
    assert!(error.contains("total:b") && error.contains("total:e"), "{error}");
    std::fs::write(&path, "f,1\n").unwrap();
    run(false, Existing::Overwrite, &|_| has("total:f")).unwrap();
    assert_eq!(keys(), with(&["total:f"]));
}

/// A table that is silent holds up the windows of a union, unless it says after how long it is idle.
#[test]
fn an_idle_table_does_not_delay_the_watermark_of_others() {
    for threads in [1, 2] {
        for (set, option) in [
            ("", ", 'scan.watermark.idle-timeout' = '50 ms'"),
            ("SET 'table.exec.source.idle-timeout' = '50 ms';", ""),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
            write("silent", "1,2020-01-01 00:00:01\n");
            write("busy", "1,2020-01-01 00:00:02\n1,2020-01-01 00:00:30\n1,2020-01-01 00:01:30\n");
            let source = |name: &str, option: &str| {
                format!(
                    "CREATE TABLE {name} (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem',
                       'path' = '{name}', 'format' = 'csv', 'source.monitor-interval' = '5 ms' {option});"
                )
            };
            let script = format!(
                "{set}{}{}CREATE TABLE o (k BIGINT, n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'csv');
                 CREATE VIEW both AS SELECT * FROM silent UNION ALL SELECT * FROM busy;
                 INSERT INTO o SELECT k, COUNT(*) FROM TABLE(TUMBLE(TABLE both, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
                   GROUP BY k, window_start, window_end",
                source("silent", option),
                source("busy", ""),
            );
            let Some(Outcome::Job(job)) = Session::default().run(&script).unwrap().pop() else { panic!() };
            let mut running = Running::start_on(
                &job.optimised,
                Start {
                    directory: directory.path(),
                    keep: None,
                    threads: Some(threads),
                    existing: Existing::Refuse,
                    own: &mut |_, _| Ok(None),
                },
            )
            .unwrap();
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let began = Instant::now();
                    let out = directory.path().join("out");
                    while read(&out).is_empty() && began.elapsed() < Duration::from_secs(20) {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    stop.store(true, Ordering::Relaxed);
                });
                running.run(&stop, |_| ()).unwrap()
            });
            assert_eq!(read(&directory.path().join("out")), "1,3\n", "{threads} threads, {set}");
        }
    }
}

#[test]
fn a_key_of_another_type_is_named_when_it_is_looked_up() {
    let Some(server) = Server::start() else {
        eprintln!("there is no redis-server in PATH: not tested");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("in.csv"), "1\n").unwrap();
    assert_eq!(server.ask("HSET names:1 name one"), ":1");
    assert_eq!(server.ask("RPUSH names:2 two"), ":1");
    let script = format!(
        "CREATE TABLE i (id BIGINT, p AS PROCTIME()) WITH ('connector' = 'filesystem', 'path' = 'in.csv', 'format' = 'csv');
         CREATE TABLE names (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
           WITH ('connector' = 'redis', 'port' = '{}');
         CREATE TABLE o (name STRING) WITH ('connector' = 'filesystem', 'path' = 'out.csv', 'format' = 'csv');
         INSERT INTO o SELECT n.name FROM i JOIN names FOR SYSTEM_TIME AS OF i.p AS n ON i.id = n.id",
        server.port
    );
    let error = run(&script, directory.path(), false).unwrap_err().to_string();
    assert!(error.contains("cannot look up `names`: WRONGTYPE"), "{error}");
    assert!(error.contains("in reply to HGETALL names:2"), "{error}");
    assert_eq!(server.ask("DEL names:2"), ":1");
    run(&script, directory.path(), false).unwrap();
    assert_eq!(read(&directory.path().join("out.csv")), "one\n");
}

/// A stream only grows: entries of others stay before its own, whatever is said about existing keys.
#[test]
fn a_sink_adds_to_a_stream_that_exists_and_keeps_its_entries() {
    let Some(server) = Server::start() else {
        eprintln!("there is no redis-server in PATH: not tested");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("in.csv"), "1\n2\n").unwrap();
    let script = format!(
        "CREATE TABLE i (k BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in.csv', 'format' = 'csv');
         CREATE TABLE o (k BIGINT) WITH ('connector' = 'redis-stream', 'stream' = 'orders', 'port' = '{}');
         INSERT INTO o SELECT k FROM i",
        server.port
    );
    assert!(server.ask("XADD orders 1-1 k 7").contains("1-1"));
    let runs = [Existing::Refuse, Existing::Overwrite, Existing::Adopt];
    for (number, existing) in runs.into_iter().enumerate() {
        let keep = Keep { name: format!("job{number}"), ..keep(directory.path()) };
        let Some(Outcome::Job(job)) = Session::default().run(&script).unwrap().pop() else { panic!() };
        let own = &mut |_: &_, _: &_| Ok(None);
        let start = Start { directory: directory.path(), existing, ..Start::here(Some(&keep), Some(1), own) };
        Running::start_on(&job.optimised, start).unwrap().run(&AtomicBool::new(false), |_| ()).unwrap();
        assert_eq!(server.ask("XLEN orders"), format!(":{}", 1 + 2 * (number + 1)), "{existing:?}");
    }
    assert!(server.ask("XRANGE orders 1-1 1-1").starts_with("*1"));
    // A key of another type is not replaced either.
    assert_eq!(server.ask("SET text x"), "+OK");
    for existing in [Existing::Refuse, Existing::Overwrite, Existing::Adopt] {
        let script = script.replace("'orders'", "'text'");
        let keep = Keep { name: format!("text-{existing:?}"), ..keep(directory.path()) };
        let Some(Outcome::Job(job)) = Session::default().run(&script).unwrap().pop() else { panic!() };
        let own = &mut |_: &_, _: &_| Ok(None);
        let start = Start { directory: directory.path(), existing, ..Start::here(Some(&keep), Some(1), own) };
        let mut running = Running::start_on(&job.optimised, start).unwrap();
        let error = running.run(&AtomicBool::new(false), |_| ()).unwrap_err().to_string();
        assert!(error.contains("cannot write `o`: WRONGTYPE") && error.contains("XADD text"), "{error}");
        assert_eq!(server.ask("GET text"), "x");
    }
}
