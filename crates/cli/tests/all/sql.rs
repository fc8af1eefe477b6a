//! `duramen sql`, in builds that have it: `cargo test -p duramen-cli --features sql --test all sql`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const TABLES: &str = "
    CREATE TABLE o (id BIGINT, ts TIMESTAMP(3), price DECIMAL(10, 2), WATERMARK FOR ts AS ts)
      WITH ('connector' = 'filesystem', 'path' = 'orders.csv', 'format' = 'csv');
    CREATE TABLE s (id BIGINT, wend TIMESTAMP(3), total DECIMAL(38, 2)) WITH ('connector' = 'print');";

fn sql(script: &str, orders: Option<&str>) -> Output {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("job.sql"), format!("{TABLES}{script}")).unwrap();
    if let Some(orders) = orders {
        std::fs::write(directory.path().join("orders.csv"), orders).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_duramen"));
    command.args(["sql", "job.sql"]).current_dir(directory.path()).output().unwrap()
}

const JOB: &str = "INSERT INTO s SELECT id, window_end, SUM(price)
    FROM TABLE(TUMBLE(TABLE o, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY id, window_start, window_end;";

#[test]
fn a_script_runs_to_the_end_of_its_input() {
    let output = sql(JOB, Some("1,2020-01-01 00:00:01,12.50\n1,2020-01-01 00:00:02,1.00\n"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "+I[1, 2020-01-01 00:01:00.000, 13.50]\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("2 records"), "{output:?}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_wrong_script_and_a_missing_file_differ_in_their_codes() {
    let output = sql("INSERT INTO s SELECT id, ts, prise FROM o;", Some(""));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean `price`?"), "{output:?}");
    let output = sql(JOB, None);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("orders.csv"), "{output:?}");
}

/// Runs a script on a terminal that `script` makes, and gives what that shows.
fn on_a_terminal(directory: &Path) -> Option<String> {
    let program = format!("{} sql job.sql", env!("CARGO_BIN_EXE_duramen"));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &program, "shown"]).current_dir(directory);
    script.env("TERM", "xterm").stdin(Stdio::null()).stdout(Stdio::null());
    match script.status() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        status => {
            assert!(status.unwrap().success());
            Some(String::from_utf8_lossy(&std::fs::read(directory.join("shown")).unwrap()).into_owned())
        }
    }
}

/// A job lasts for two seconds, in which its progress is drawn several times: where rows go elsewhere, and only there.
#[test]
fn no_progress_is_drawn_between_rows_that_are_printed() {
    let directory = tempfile::tempdir().unwrap();
    for sink in ["'print'", "'filesystem', 'path' = 'out', 'format' = 'csv'"] {
        let job = format!(
            "CREATE TABLE i (k BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '8', 'rows-per-second' = '4',
               'fields.k.kind' = 'sequence', 'fields.k.start' = '1', 'fields.k.end' = '8');
             CREATE TABLE o (k BIGINT) WITH ('connector' = {sink});
             INSERT INTO o SELECT k FROM i;"
        );
        std::fs::write(directory.path().join("job.sql"), job).unwrap();
        let Some(shown) = on_a_terminal(directory.path()) else {
            eprintln!("there is no program `script` in PATH: not tested");
            return;
        };
        let lines: Vec<&str> = shown.split("\r\n").collect();
        let at = |what: &str| lines.iter().position(|line| line.contains(what));
        if sink == "'print'" {
            let (first, last) = (at("+I[1]").unwrap(), at("+I[8]").unwrap());
            let rows: Vec<String> = (1..=8).map(|row| format!("+I[{row}]")).collect();
            // The first of them shares its line with what `script` says of itself.
            assert_eq!(lines[first + 1..=last], rows[1..], "{shown}");
        } else {
            assert!(shown.matches("records in").count() > 1, "{shown}");
        }
    }
}

fn duramen(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duramen"));
    command.args(args).current_dir(directory);
    command
}

/// A process that is killed when the test ends.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the program, without its output.
pub fn start(directory: &Path, args: &[&str]) -> Running {
    Running(duramen(directory, args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn said(directory: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = duramen(directory, args).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// The parts that a job has published in a directory, one after the other.
fn parts(directory: &Path) -> String {
    let mut parts: Vec<_> =
        std::fs::read_dir(directory).into_iter().flatten().map(|part| part.unwrap().path()).collect();
    parts.retain(|part| !part.file_name().unwrap().to_string_lossy().starts_with('.'));
    parts.sort();
    parts.iter().map(|part| std::fs::read_to_string(part).unwrap()).collect()
}

#[test]
fn stopping_a_job_says_that_it_worked() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    std::fs::write(
        dir.join("job.sql"),
        "CREATE TABLE i (k BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in.csv', 'format' = 'csv',
           'source.monitor-interval' = '5 ms');
         CREATE TABLE o (k BIGINT) WITH ('connector' = 'blackhole');
         INSERT INTO o SELECT k FROM i;",
    )
    .unwrap();
    std::fs::write(dir.join("in.csv"), "1\n").unwrap();
    // The store was released a moment after its file: six of thirteen tries hit that moment.
    for attempt in 0..8 {
        let mut running = start(dir, &["sql", "job.sql", "--store", "jobs", "--every", "20"]);
        until("the store is in use", || dir.join("jobs.runs").exists());
        let (code, text) = said(dir, &["jobs", "--store", "jobs", "--stop"]);
        assert_eq!(code, Some(0), "attempt {attempt}: {text}");
        assert!(running.0.wait().unwrap().success());
    }
}

#[test]
fn a_server_that_a_job_waits_for_is_named_at_once() {
    let directory = tempfile::tempdir().unwrap();
    // Nobody listens there any more.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    std::fs::write(
        directory.path().join("job.sql"),
        format!(
            "CREATE TABLE i (k BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
             CREATE TABLE o (k BIGINT, PRIMARY KEY (k) NOT ENFORCED)
               WITH ('connector' = 'redis', 'hostname' = '127.0.0.1', 'port' = '{port}');
             INSERT INTO o SELECT k FROM i;"
        ),
    )
    .unwrap();
    let mut command = duramen(directory.path(), &["sql", "job.sql"]);
    let mut running = Running(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let mut job_state = String::new();
    let began = Instant::now();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(running.0.stderr.take().unwrap()),
        &mut job_state,
    )
    .unwrap();
    assert!(job_state.contains(&format!("for the server at 127.0.0.1:{port}")), "{job_state}");
    assert!(began.elapsed() < Duration::from_secs(20), "only after {:?}", began.elapsed());
}

#[test]
fn a_long_script_of_a_job_in_the_server_does_not_end_it() {
    let directory = tempfile::tempdir().unwrap();
    let terms = |count: usize| (0..count).map(|v| format!("v = {v}")).collect::<Vec<_>>().join(" OR ");
    let tables = "CREATE TABLE i (v BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
                  CREATE TABLE o (v BIGINT) WITH ('connector' = 'blackhole');";
    let minus = vec!["v"; 150_000].join(" - ");
    for (name, query) in [
        ("long", format!("SELECT v FROM i WHERE {}", terms(2000))),
        ("deep", format!("SELECT {minus} FROM i")),
        ("longest", format!("SELECT v FROM i WHERE {}", terms(200_000))),
    ] {
        let script = format!("{tables} INSERT INTO o {query}");
        std::fs::write(directory.path().join(format!("{name}.sql")), script).unwrap();
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let port = port.to_string();
    let jobs = ["--duramen-sql", "long.sql", "deep.sql", "longest.sql"];
    let arguments = [&["serve", "--port", &port, "--duramen-path", "served"][..], &jobs].concat();
    let mut server = start(directory.path(), &arguments);
    let info = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port.parse::<u16>().unwrap())).ok()?;
        stream.write_all(b"INFO duramen\r\nQUIT\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    };
    let holds = |words: &[&str]| info().is_some_and(|text| words.iter().all(|word| text.contains(word)));
    until("all jobs have ended", || {
        holds(&[
            "duramen_job_long:state=finished",
            "duramen_job_deep:state=failed",
            "duramen_job_longest:state=failed",
        ])
    });
    assert!(server.0.try_wait().unwrap().is_none(), "the server has ended");
}

#[test]
fn jobs_are_listed_stopped_resumed_killed_and_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    std::fs::write(
        dir.join("job.sql"),
        "CREATE TABLE i (k BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in.csv', 'format' = 'csv',
           'source.monitor-interval' = '5 ms');
         CREATE TABLE o (k BIGINT, n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'csv');
         INSERT INTO o SELECT k, k * k FROM i;",
    )
    .unwrap();
    let append = |line: &str| {
        let mut file =
            std::fs::OpenOptions::new().create(true).append(true).open(dir.join("in.csv")).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    };
    append("1\n2\n");
    let mut first = start(dir, &["sql", "job.sql", "--store", "jobs", "--every", "20"]);
    until("the first two", || parts(&dir.join("out")) == "1,1\n2,4\n");
    let (code, text) = said(dir, &["jobs", "--store", "jobs"]);
    assert!(code == Some(0) && text.contains(&format!("process {}", first.0.id())), "{text}");
    let (code, text) = said(dir, &["jobs", "--store", "jobs", "--stop"]);
    assert!(code == Some(0) && text.contains("job: stopped after 2 records"), "{code:?} {text}");
    assert!(first.0.wait().unwrap().success());
    append("3\n");
    // Resumed from elsewhere, killed, and resumed again.
    let elsewhere = tempfile::tempdir().unwrap();
    let store = dir.join("jobs");
    let resume = ["jobs", "--store", store.to_str().unwrap(), "--resume", "job"];
    let second = start(elsewhere.path(), &resume);
    until("the third", || parts(&dir.join("out")) == "1,1\n2,4\n3,9\n");
    drop(second);
    append("4\n");
    let third = start(elsewhere.path(), &resume);
    until("the fourth", || parts(&dir.join("out")) == "1,1\n2,4\n3,9\n4,16\n");
    drop(third);
    let (code, text) = said(dir, &["jobs", "--store", "jobs", "--resume", "other"]);
    assert!(code == Some(3) && text.contains("it has: job"), "{text}");
    assert_eq!(said(dir, &["jobs", "--store", "jobs", "--forget", "job"]).0, Some(0));
    assert_eq!(said(dir, &["jobs", "--store", "jobs"]), (Some(1), String::new()));
}

#[test]
fn a_first_run_over_existing_keys_needs_an_option() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    std::fs::write(dir.join("in.csv"), "a,1\n").unwrap();
    std::fs::write(
        dir.join("job.sql"),
        "CREATE TABLE i (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = 'in.csv', 'format' = 'csv');
         CREATE TABLE total (k STRING, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'duramen');
         CREATE TABLE o (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'csv');
         EXECUTE STATEMENT SET BEGIN INSERT INTO total SELECT * FROM i; INSERT INTO o SELECT * FROM i; END;",
    )
    .unwrap();
    let run = |store: &str, more: &[&str]| {
        let args = [&["sql", "job.sql", "--store", store, "--medium", "file"], more].concat();
        said(dir, &args)
    };
    let keys = |store: &str| said(dir, &["scan", "--path", store, "--db", "0"]).1;
    assert_eq!(said(dir, &["put", "--path", "one", "--db", "0", "total:alice", "precious"]).0, Some(0));
    let (code, text) = run("one", &[]);
    assert!(
        code == Some(3) && text.contains("total:alice") && text.contains("--overwrite"),
        "{code:?} {text}"
    );
    assert!(keys("one").contains("total:alice"));
    let (code, text) = run("one", &["--adopt", "--overwrite"]);
    assert!(code == Some(2), "{code:?} {text}");
    assert_eq!(run("one", &["--adopt"]).0, Some(0));
    assert!(keys("one").contains("total:alice") && keys("one").contains("total:a"));
    // The same script with a second store: finished parts stay, unless an option says to delete them.
    let (code, text) = run("two", &[]);
    assert!(
        code == Some(3) && text.contains("out/part-job-1-") && text.contains("--adopt"),
        "{code:?} {text}"
    );
    assert_eq!(parts(&dir.join("out")), "a,1\n");
    assert_eq!(run("two", &["--adopt"]).0, Some(0));
    assert_eq!(parts(&dir.join("out")), "a,1\na,1\n");
    assert_eq!(run("two", &["--from-start"]).0, Some(0));
    assert_eq!(parts(&dir.join("out")), "a,1\n");
    assert_eq!(run("one", &["--from-start", "--overwrite"]).0, Some(0));
    assert_eq!(parts(&dir.join("out")), "a,1\n");
    assert!(!keys("one").contains("total:alice") && keys("one").contains("total:a"));
    let shm = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = shm.path().join("store");
    let memory = ["sql", "job.sql", "--memory", "1000000", "--store", store.to_str().unwrap()];
    let (code, text) = said(dir, &memory);
    assert!(
        code == Some(2) && text.contains("1000000 bytes") && text.contains("on a disk"),
        "{code:?} {text}"
    );
}

/// What the planner cannot see is one path: it knows of no directory and of no links.
#[test]
fn two_tables_of_a_script_do_not_write_to_one_file_however_its_path_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().canonicalize().unwrap();
    std::fs::write(dir.join("in.csv"), "a,1\nb,2\n").unwrap();
    std::fs::create_dir(dir.join("real")).unwrap();
    std::os::unix::fs::symlink("real", dir.join("link")).unwrap();
    std::os::unix::fs::symlink("real/out", dir.join("to a file")).unwrap();
    let table = |name: &str, path: &str| {
        format!(
            "CREATE TABLE {name} (k STRING, v INT)
               WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv');"
        )
    };
    for other in ["link/out", "to a file", &format!("{}/real/out", dir.display())] {
        let script = format!(
            "{}{}{}INSERT INTO o SELECT * FROM i WHERE v = 1; INSERT INTO p SELECT * FROM i WHERE v = 2;",
            table("i", "in.csv"),
            table("o", "real/out"),
            table("p", other)
        );
        std::fs::write(dir.join("job.sql"), script).unwrap();
        for more in ["--overwrite", "--adopt"] {
            let (code, text) = said(&dir, &["sql", "job.sql", more]);
            assert!(code == Some(2) && text.contains("`o` and `p`, which both write to"), "{code:?} {text}");
            assert!(!dir.join("real/out").exists());
        }
    }
    // One table alone goes where its link leads, whether or not a file is there.
    for round in 0..2 {
        std::fs::write(
            dir.join("job.sql"),
            format!("{}{}INSERT INTO p SELECT * FROM i;", table("i", "in.csv"), table("p", "to a file")),
        )
        .unwrap();
        let (code, text) = said(&dir, &["sql", "job.sql", "--overwrite"]);
        assert!(code == Some(0), "round {round}: {text}");
        assert_eq!(std::fs::read_to_string(dir.join("real/out")).unwrap(), "a,1\nb,2\n");
        assert!(dir.join("to a file").is_symlink());
    }
}

/// What the server says until it is silent for a moment.
fn ask(port: u16, command: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn the_view_of_the_readme_follows_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/stream/readme");
    let copy = dir.join("testdata/stream/readme");
    std::fs::create_dir_all(&copy).unwrap();
    std::fs::copy(data.join("orders.csv"), copy.join("orders.csv")).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = std::fs::read_to_string(data.join("totals.sql")).unwrap();
    assert!(script.contains("'6379'"));
    std::fs::write(copy.join("totals.sql"), script.replace("6379", &port.to_string())).unwrap();
    let _server = start(dir, &["serve", "--bind", "127.0.0.1", "--port", &port.to_string()]);
    until("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let _job = start(dir, &["sql", "testdata/stream/readme/totals.sql", "--store", "totals"]);
    let orders = std::fs::read_to_string(copy.join("orders.csv")).unwrap();
    let cheese = |text: &str| text.lines().filter(|line| line.starts_with("cheese,")).count();
    let is = |count: usize| {
        let reply = ask(port, "HGET total:cheese orders");
        reply == format!("${}\r\n{count}\r\n", count.to_string().len())
    };
    until("all orders count", || is(cheese(&orders)));
    std::fs::write(copy.join("orders.csv"), format!("{orders}cheese,2026-01-05 10:00:00,1,9.90\n")).unwrap();
    until("the new one counts", || is(cheese(&orders) + 1));
    assert!(ask(port, "HGETALL total:cheese").contains("revenue"));
}

#[test]
fn an_attached_job_writes_its_view_to_the_server_across_kills() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    std::fs::write(
        dir.join("job.sql"),
        "CREATE TABLE i (k BIGINT, v BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in.csv', 'format' = 'csv',
           'source.monitor-interval' = '5 ms');
         CREATE TABLE total (k BIGINT, n BIGINT, sum_v BIGINT, PRIMARY KEY (k) NOT ENFORCED)
           WITH ('connector' = 'duramen');
         INSERT INTO total SELECT k, COUNT(*), SUM(v) FROM i GROUP BY k;",
    )
    .unwrap();
    let append = |lines: std::ops::Range<u64>| {
        let text: String = lines.map(|line| format!("{},{line}\n", line % 7)).collect();
        let mut file =
            std::fs::OpenOptions::new().create(true).append(true).open(dir.join("in.csv")).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    let serve = || {
        let server = start(dir, &["serve", "--bind", "127.0.0.1", "--port", &port.to_string()]);
        until("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        server
    };
    let address = format!("127.0.0.1:{port}");
    let attach = ["sql", "job.sql", "--store", "jobs", "--every", "20", "--attach", &address];
    let has = |k: u64, upto: u64| {
        let of_key: Vec<u64> = (0..upto).filter(|line| line % 7 == k).collect();
        let wanted = |value: u64| format!("${}\r\n{value}\r\n", value.to_string().len());
        ask(port, &format!("HGET total:{k} n")) == wanted(of_key.len() as u64)
            && ask(port, &format!("HGET total:{k} sum_v")) == wanted(of_key.iter().sum())
    };
    append(0..100);
    let (mut server, mut job) = (serve(), start(dir, &attach));
    until("the first hundred", || (0..7).all(|k| has(k, 100)));
    for round in 1..=4 {
        if round % 2 == 1 {
            drop(server);
            append(round * 100..round * 100 + 100);
            // It continues while nobody takes its output, and is killed there.
            std::thread::sleep(Duration::from_millis(200));
            drop(job);
            server = serve();
            job = start(dir, &attach);
        } else {
            append(round * 100..round * 100 + 100);
            drop(job);
            job = start(dir, &attach);
        }
        until("all until now", || (0..7).all(|k| has(k, round * 100 + 100)));
    }
    drop((server, job));
    let server = serve();
    let marker = ask(port, "GET sql:job:0");
    assert!(marker.split("\r\n").nth(1).is_some_and(|name| name.split_once(' ').is_some()), "{marker}");
    assert!((0..7).all(|k| has(k, 500)));
    drop(server);
    let (code, text) = said(dir, &["sql", "job.sql", "--attach", "nowhere"]);
    assert!(code != Some(0) && text.contains("HOST:PORT"), "{code:?} {text}");
}

/// A server of this directory with its jobs. `more` are directives.
fn serve_jobs(dir: &Path, port: u16, more: &[&str]) -> Running {
    let number = port.to_string();
    let mut args = vec!["serve", "--bind", "127.0.0.1", "--port", &number];
    args.extend_from_slice(more);
    let server = start(dir, &args);
    until("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    server
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// What INFO says of a job; nothing while the server starts or ends.
fn job_state(port: u16, password: &str, job: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return String::new() };
    let login = if password.is_empty() { String::new() } else { format!("AUTH {password}\r\n") };
    let mut text = String::new();
    let asked = stream
        .write_all(format!("{login}INFO duramen\r\n").as_bytes())
        .and_then(|()| stream.shutdown(std::net::Shutdown::Write))
        .and_then(|()| stream.read_to_string(&mut text));
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("duramen_job_{job}:")));
    if asked.is_ok() { line.unwrap_or_default().to_owned() } else { String::new() }
}

/// All keys of a view and their values.
fn view(port: u16, pattern: &str) -> Vec<String> {
    let keys = ask(port, &format!("KEYS {pattern}"));
    let mut keys: Vec<&str> = keys.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
    keys.sort_unstable();
    let values = ask(port, &keys.iter().map(|key| format!("GET {key}\r\n")).collect::<String>());
    let values: Vec<&str> = values.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!(keys.len(), values.len());
    keys.iter().zip(values).map(|(key, value)| format!("{key} {value}")).collect()
}

#[test]
fn a_job_in_the_server_has_the_same_result_across_kills() {
    let script = "CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT)
           WITH ('connector' = 'nexmark', 'events' = '400000');
         CREATE TABLE total (bidder BIGINT, n BIGINT, sum_price BIGINT, PRIMARY KEY (bidder) NOT ENFORCED)
           WITH ('connector' = 'duramen', 'value' = 'json');
         INSERT INTO total SELECT bidder, COUNT(*), SUM(price) FROM bid GROUP BY bidder;";
    let run = |kills: u64| {
        let directory = tempfile::tempdir().unwrap();
        let (dir, port) = (directory.path(), free_port());
        std::fs::write(dir.join("job.sql"), script).unwrap();
        let directives = ["--duramen-sql", "job.sql", "--duramen-sql-every", "20"];
        let mut killed = 0;
        loop {
            let server = serve_jobs(dir, port, &directives);
            let ends = Instant::now() + Duration::from_millis(60 + killed * 37 % 200);
            let is_finished = || job_state(port, "", "job").starts_with("state=finished");
            if killed < kills {
                while Instant::now() < ends && !is_finished() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                if !is_finished() {
                    killed += 1;
                    drop(server);
                    continue;
                }
            }
            until("the job ends", is_finished);
            break (view(port, "total:*"), killed);
        }
    };
    let (wanted, _) = run(0);
    assert!(wanted.len() > 5000, "{} keys", wanted.len());
    let (found, killed) = run(12);
    assert!(killed >= 3, "it was killed {killed} times");
    assert!(found == wanted, "{} keys, wanted {}", found.len(), wanted.len());
}

#[test]
fn a_server_makes_a_last_checkpoint_of_its_job_and_outlives_those_that_fail() {
    let directory = tempfile::tempdir().unwrap();
    let (dir, port) = (directory.path(), free_port());
    let input = "CREATE TABLE i (k BIGINT, v BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in.csv',
           'format' = 'csv', 'source.monitor-interval' = '5 ms');
         CREATE TABLE total (k BIGINT, v BIGINT, PRIMARY KEY (k) NOT ENFORCED)
           WITH ('connector' = 'duramen', 'key' = 'VIEW', 'value' = 'json');";
    let write = |name: &str, query: &str| {
        let text = format!("{}\nINSERT INTO total {query};", input.replace("VIEW", name));
        std::fs::write(dir.join(format!("{name}.sql")), text).unwrap();
    };
    write("sum", "SELECT k, SUM(v) FROM i GROUP BY k");
    write("zero", "SELECT k, SUM(10 / v) FROM i GROUP BY k");
    write("wrong", "SELECT k, SUM(w) FROM i GROUP BY k");
    std::fs::write(dir.join("in.csv"), "1,5\n2,0\n1,7\n").unwrap();
    let jobs = ["--duramen-sql", "sum.sql", "zero.sql", "wrong.sql", "none.sql"];
    let directives = [&["--requirepass", "secret", "--duramen-sql-every", "3600000"][..], &jobs].concat();
    let mut server = serve_jobs(dir, port, &directives);
    until("the sum has read all", || job_state(port, "secret", "sum").contains("3 records"));
    until("the division fails", || job_state(port, "secret", "zero").contains("division by zero"));
    assert!(
        job_state(port, "secret", "wrong").starts_with("state=failed"),
        "{}",
        job_state(port, "secret", "wrong")
    );
    assert!(job_state(port, "secret", "none").contains("cannot read none.sql"));
    // Nobody else needs no password.
    assert!(ask(port, "GET sum:1").contains("NOAUTH"));
    let pid = rustix::process::Pid::from_raw(server.0.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(server.0.wait().unwrap().success());
    let server = serve_jobs(dir, port, &[]);
    assert_eq!(view(port, "sum:*"), ["sum:1 {\"k\":1,\"v\":12}", "sum:2 {\"k\":2,\"v\":0}"]);
    drop(server);
    let manual = ["serve", "--duramen-sql", "sum.sql", "--duramen-durability", "manual"];
    let (code, text) = said(dir, &manual);
    assert!(code == Some(2) && text.contains("every-write"), "{code:?} {text}");
}

/// The store of the jobs lies in memory, so that state beyond a bound cannot go to files.
#[test]
fn a_server_outlives_a_job_that_is_refused_memory() {
    let directory = tempfile::tempdir().unwrap();
    let in_memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let (dir, port) = (directory.path(), free_port());
    let input = "CREATE TABLE i (n BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
           WITH ('connector' = 'filesystem', 'path' = 'in.csv', 'format' = 'csv', 'source.monitor-interval' = '5 ms');
         CREATE TABLE o (n BIGINT) WITH ('connector' = 'blackhole');
         CREATE TABLE total (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED)
           WITH ('connector' = 'duramen', 'value' = 'json');";
    // 20 KB of text for each of 100,000 keys, until the window closes: more than the limit below.
    let large = "INSERT INTO o SELECT COUNT(*) FROM (
           SELECT REPEAT(CAST(n AS STRING), 4000) AS k, window_start, window_end
           FROM TABLE(TUMBLE(TABLE i, DESCRIPTOR(ts), INTERVAL '1' MINUTE))) GROUP BY k, window_start, window_end;";
    std::fs::write(dir.join("large.sql"), format!("{input}{large}")).unwrap();
    let small = "INSERT INTO total SELECT n / 50000, COUNT(*) FROM i GROUP BY n / 50000;";
    std::fs::write(dir.join("small.sql"), format!("{input}{small}")).unwrap();
    let lines = |numbers: std::ops::Range<u32>| -> String {
        numbers.map(|number| format!("{number},2020-01-01 00:00:01\n")).collect()
    };
    std::fs::write(dir.join("in.csv"), lines(100_000..200_000)).unwrap();
    let server = Command::new("sh")
        .args(["-c", "ulimit -d 1200000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_duramen")])
        .args(["serve", "--bind", "127.0.0.1", "--port", &port.to_string(), "--duramen-sql-every", "100"])
        .args(["--duramen-sql", "large.sql", "small.sql", "--duramen-sql-directory"])
        .arg(in_memory.path())
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let server = Running(server);
    until("the large job fails", || job_state(port, "", "large").starts_with("state=failed"));
    let state = job_state(port, "", "large");
    assert!(state.contains("out of memory: found ") && state.contains("RLIMIT_DATA allows"), "{state}");
    assert_eq!(ask(port, "PING"), "+PONG\r\n");
    // The other job goes on.
    let mut more = std::fs::OpenOptions::new().append(true).open(dir.join("in.csv")).unwrap();
    more.write_all(lines(200_000..200_001).as_bytes()).unwrap();
    until("the small job has read all", || view(port, "total:*").len() == 3);
    assert!(job_state(port, "", "small").starts_with("state=running"), "{}", job_state(port, "", "small"));
    drop(server);
}
