//! Servers that do one thing wrong each, and one that does nothing wrong.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::prometheus::{Prometheus, TLS_JOB, Target};
use crate::certificates;
use crate::failure::{Attempt, Failure, Result};
use crate::server::{Server, free_port};
use duramen_resp::Connection;

/// Each alert, and the server at which it must fire.
pub const PROVOKED: &[(&str, &str)] = &[
    ("DuramenDown", "gone"),
    ("DuramenNotReady", "full"),
    ("DuramenRestarting", "gone"),
    ("DuramenStorePoisoned", "poisoned"),
    ("DuramenDamage", "damaged"),
    ("DuramenStoreDeleted", "deleted"),
    ("DuramenOutOfSpace", "full"),
    ("DuramenSpaceLow", "full"),
    ("DuramenFileSystemFullSoon", "filling"),
    ("DuramenMemoryHigh", "memory"),
    ("DuramenCommitsSlow", "slow"),
    ("DuramenConnectionsRejected", "limits"),
    ("DuramenClientsNearLimit", "limits"),
    ("DuramenClientsDisconnected", "limits"),
    ("DuramenWritesFail", "full"),
    ("DuramenLoginsFail", "limits"),
    ("DuramenSqlJobFailed", "jobs"),
    ("DuramenSqlWatermarkLag", "lagging"),
    ("DuramenSqlCheckpointOld", "slow"),
];

/// Rows that come later are counted by minute.
const JOB: &str = "
    CREATE TABLE i (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem',
      'path' = 'INPUT', 'format' = 'csv', 'source.monitor-interval' = '5 ms');
    CREATE TABLE o (k BIGINT, wend TIMESTAMP(3), n BIGINT) WITH ('connector' = 'blackhole');
    INSERT INTO o SELECT k, window_end, COUNT(*)
      FROM TABLE(TUMBLE(TABLE i, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY k, window_start, window_end;";

const REPLY: Duration = Duration::from_secs(30);
const CLIENTS_MAX: usize = 20;
/// Bytes of a request that does not end: a power of two, so that the buffer that holds it is full.
const REQUEST_BYTES: usize = 64 << 20;
const REQUESTS: usize = 7;

/// A server and the port of its metrics.
struct Scene {
    name: &'static str,
    job: &'static str,
    metrics: u16,
    server: Server,
}

/// All of them. Clients and their threads end with it.
pub struct Scenes {
    program: PathBuf,
    directory: PathBuf,
    /// In memory, for stores that must not wait for a disk.
    memory: tempfile::TempDir,
    scenes: Vec<Scene>,
    tracer: Option<Server>,
    open: Vec<TcpStream>,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Scenes {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Scenes {
    /// Starts the servers; nothing is wrong yet, except with the jobs.
    pub fn start(program: &Path, strace: &Path, directory: &Path) -> Result<Scenes> {
        let memory =
            tempfile::tempdir_in("/dev/shm").attempt(|| "make a directory in /dev/shm".to_owned())?;
        let mut scenes = Scenes {
            program: program.to_owned(),
            directory: directory.to_owned(),
            memory,
            scenes: Vec::new(),
            tracer: None,
            open: Vec::new(),
            ends: Arc::default(),
            threads: Vec::new(),
        };
        for (name, input) in
            [("calm", "calm.csv"), ("slow", "slow.csv"), ("lagging", "lagging.csv"), ("bad", "no/where.csv")]
        {
            scenes.write(&format!("{name}.sql"), &JOB.replace("INPUT", &scenes.path(input)))?;
        }
        for (input, rows) in [("calm.csv", ""), ("slow.csv", ""), ("lagging.csv", "1,2020-01-01 00:00:00\n")]
        {
            scenes.write(input, rows)?;
        }
        let socket = scenes.path("calm.memcached");
        let job = |name: &str| scenes.path(&format!("{name}.sql"));
        let (calm, slow, bad, lagging) = (job("calm"), job("slow"), job("bad"), job("lagging"));
        let in_memory = scenes.memory.path().display().to_string();
        let shm = |name: &str| format!("{in_memory}/{name}");
        let disk = |name: &str| format!("{}/{name}", directory.display());
        let sql = |job: &str, every: &str| {
            ["--duramen-sql", job, "--duramen-sql-every", every].map(str::to_owned).to_vec()
        };
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let calm_options = [words(&["--memcached-socket", &socket]), sql(&calm, "1000")].concat();
        scenes.serve("calm", &shm("calm"), &calm_options)?;
        scenes.serve("full", &shm("full"), &words(&["--maxmemory", "4mb"]))?;
        scenes.serve("filling", &shm("filling"), &[])?;
        scenes.serve("poisoned", &shm("poisoned"), &words(&["--enable-debug-command", "yes"]))?;
        scenes.serve("deleted", &shm("deleted"), &[])?;
        scenes.serve("memory", &shm("memory"), &words(&["--duramen-threads", "1"]))?;
        let limits = ["--maxclients", "20", "--client-query-buffer-limit", "1mb"];
        scenes.serve("limits", &shm("limits"), &words(&limits))?;
        scenes.serve("jobs", &shm("jobs"), &sql(&bad, "1000"))?;
        scenes.serve("slow", &disk("slow"), &sql(&slow, "20"))?;
        scenes.serve("gone", &shm("gone"), &[])?;
        scenes.damaged(&shm("damaged"))?;
        scenes.serve_tls()?;
        let metrics = free_port()?;
        let arguments = words(&["sql", &lagging, "--metrics", &metrics.to_string()]);
        let log = directory.join("lagging.log");
        let server = Server::start("duramen sql", program, &arguments, metrics, &log)?;
        scenes.scenes.push(Scene { name: "lagging", job: "duramen-sql", metrics, server });
        let traced = scenes.find("slow").pid().to_string();
        let arguments = words(&[
            "-f",
            "-q",
            "-p",
            &traced,
            "-e",
            "trace=fdatasync",
            "-e",
            "inject=fdatasync:delay_exit=400000",
        ]);
        let log = directory.join("strace.log");
        scenes.tracer = Some(Server::start("strace", strace, &arguments, 0, &log)?);
        Ok(scenes)
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        std::fs::write(self.path(name), text).attempt(|| format!("write {name}"))
    }

    fn serve(&mut self, name: &'static str, store: &str, more: &[String]) -> Result<()> {
        let metrics = free_port()?;
        let server = self.server(name, store, metrics, more)?;
        self.scenes.push(Scene { name, job: "duramen", metrics, server });
        Ok(())
    }

    /// A server whose address of metrics speaks TLS and asks for a certificate of the authority.
    fn serve_tls(&mut self) -> Result<()> {
        let files = self.certificates();
        certificates::make(&files)?;
        let file = |name: &str| files.join(name).display().to_string();
        let (certificate, key, authority) = (file("server.crt"), file("server.key"), file("ca.crt"));
        let options = ["--duramen-metrics-tls", "yes", "--tls-cert-file", &certificate];
        let options = [&options[..], &["--tls-key-file", &key, "--tls-ca-cert-file", &authority]].concat();
        let (metrics, store) = (free_port()?, self.memory.path().join("tls").display().to_string());
        let options: Vec<String> = options.into_iter().map(str::to_owned).collect();
        let server = self.server("tls", &store, metrics, &options)?;
        self.scenes.push(Scene { name: "tls", job: TLS_JOB, metrics, server });
        Ok(())
    }

    /// Where the certificates are.
    pub fn certificates(&self) -> PathBuf {
        self.directory.join("certificates")
    }

    fn server(&self, name: &str, store: &str, metrics: u16, more: &[String]) -> Result<Server> {
        let metrics = metrics.to_string();
        let mut options = vec!["--path", store, "--metrics", &metrics];
        options.extend(more.iter().map(String::as_str));
        let mut server =
            Server::start_duramen(&self.program, &options, &self.directory.join(format!("{name}.log")))?;
        server.demand_ready(Duration::from_secs(20))?;
        Ok(server)
    }

    /// A server whose store has a changed byte in the value of a record.
    fn damaged(&mut self, store: &str) -> Result<()> {
        const VALUE: &[u8] = b"this value is damaged on the medium";
        let mut server = self.server("damaged", store, free_port()?, &[])?;
        call(&mut server.connect()?, &["SET", "key", "this value is damaged on the medium"])?;
        server.terminate(Duration::from_secs(20))?;
        let mut bytes = std::fs::read(store).attempt(|| format!("read {store}"))?;
        let at = bytes.windows(VALUE.len()).position(|window| window == VALUE);
        let at = at.ok_or_else(|| Failure::new(format!("{store} has no value of the key")))?;
        bytes[at] ^= 1;
        std::fs::write(store, bytes).attempt(|| format!("write {store}"))?;
        self.serve("damaged", store, &["--on-corruption".to_owned(), "serve".to_owned()])
    }

    fn scene(&self, name: &str) -> &Scene {
        let found = self.scenes.iter().find(|scene| scene.name == name);
        // Every name in this file was given to `serve`.
        found.unwrap_or(&self.scenes[0])
    }

    fn find(&self, name: &str) -> &Server {
        &self.scene(name).server
    }

    /// What Prometheus scrapes.
    pub fn targets(&self) -> Vec<Target> {
        let target = |scene: &Scene| Target { job: scene.job, instance: scene.name, port: scene.metrics };
        self.scenes.iter().map(target).collect()
    }

    /// The port of the calm server.
    pub fn calm_port(&self) -> u16 {
        self.find("calm").port()
    }

    /// The port of its metrics.
    pub fn calm_metrics(&self) -> u16 {
        self.scene("calm").metrics
    }

    /// Does the wrong things.
    pub fn provoke(&mut self, prometheus: &Prometheus) -> Result<()> {
        for scene in &self.scenes {
            prometheus.demand(&format!("up{{instance=\"{}\"}} == 1", scene.name))?;
        }
        prometheus.demand(&format!("duramen_ready{{job=\"{TLS_JOB}\"}} == 1"))?;
        println!("prometheus: all {} targets are up, one of them by https", self.scenes.len());
        self.work();
        fill(&mut self.find("full").connect()?)?;
        let mut limits = self.find("limits").connect()?;
        for _ in 0..20 {
            call(&mut limits, &["AUTH", "nobody", "wrong"])?;
        }
        drop(limits);
        self.crowd()?;
        // The reply is an error, or the connection ends.
        let _ = self.find("poisoned").connect()?.call(&["DEBUG", "PANIC", "WRITE"], REPLY);
        let store = self.memory.path().join("deleted");
        std::fs::remove_file(&store).attempt(|| format!("remove {}", store.display()))?;
        self.bloat()?;
        self.restart(prometheus)
    }

    /// Clients that do what clients do, until the end.
    fn work(&mut self) {
        let input = self.path("calm.csv");
        let (calm, slow, filling) = (self.calm_port(), self.find("slow").port(), self.find("filling").port());
        let slow_input = self.path("slow.csv");
        let memcached = self.path("calm.memcached");
        self.repeat(Duration::from_millis(100), move |round| {
            let mut client = Connection::open(calm).ok()?;
            let (key, round) = (format!("key:{}", round % 500), round.to_string());
            let hash = format!("hash:{round}");
            for command in [
                &["SET", &key, &round][..],
                &["GET", &key],
                &["GET", "absent"],
                &["SET", &format!("short:{round}"), "value", "PX", "500"],
                &["HSET", &hash, "field", "1", "other", "2"],
                &["HPEXPIRE", &hash, "300", "FIELDS", "1", "field"],
                // An error.
                &["INCR", &hash],
                &["UNLINK", &hash],
            ] {
                client.call(command, REPLY).ok()?;
            }
            let mut items = std::os::unix::net::UnixStream::connect(&memcached).ok()?;
            items.write_all(b"set item 0 0 5\r\nvalue\r\nget item\r\n").ok()?;
            append_now(&input)
        });
        self.repeat(Duration::from_millis(200), move |round| {
            append_now(&slow_input)?;
            Connection::open(slow).ok()?.call(&["SET", "key", &round.to_string()], REPLY).ok().map(drop)
        });
        self.repeat(Duration::from_millis(100), move |round| {
            let value = "v".repeat(1 << 20);
            Connection::open(filling).ok()?.call(&["SET", &round.to_string(), &value], REPLY).ok().map(drop)
        });
    }

    fn repeat(&mut self, pause: Duration, mut round: impl FnMut(u64) -> Option<()> + Send + 'static) {
        let ends = Arc::clone(&self.ends);
        self.threads.push(thread::spawn(move || {
            for number in 0.. {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                // A round that fails has no effect, which Prometheus sees.
                let _ = round(number);
                thread::sleep(pause);
            }
        }));
    }

    /// More clients than may connect, and a request that is too large.
    fn crowd(&mut self) -> Result<()> {
        let port = self.find("limits").port();
        let open = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).attempt(|| "connect".to_owned());
        let mut large = open()?;
        // It is disconnected meanwhile.
        let _ = large.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4000000\r\n");
        let _ = large.write_all(&[b'v'; 3_000_000]);
        // The second round takes the places of clients that left during the first.
        for _ in 0..2 {
            for _ in 0..CLIENTS_MAX + 5 {
                self.open.push(open()?);
            }
            thread::sleep(Duration::from_secs(1));
        }
        Ok(())
    }

    /// Requests that do not end, and then a limit that leaves little more than they took.
    fn bloat(&mut self) -> Result<()> {
        let server = self.find("memory");
        let (port, pid) = (server.port(), server.pid());
        let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", 256 << 20);
        for _ in 0..REQUESTS {
            let mut stream =
                TcpStream::connect((Ipv4Addr::LOCALHOST, port)).attempt(|| "connect".to_owned())?;
            let mut bytes = head.clone().into_bytes();
            bytes.resize(REQUEST_BYTES - 1024, b'v');
            stream.write_all(&bytes).attempt(|| "send a long request".to_owned())?;
            self.open.push(stream);
        }
        thread::sleep(Duration::from_secs(1));
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
            .attempt(|| "read its status".to_owned())?;
        let data = status.lines().find_map(|line| line.strip_prefix("VmData:")?.trim().strip_suffix(" kB"));
        let data: u64 = data.and_then(|kib| kib.trim().parse().ok()).unwrap_or(0) * 1024;
        let limit = format!("--data={}", data + (8 << 20));
        let status = Command::new("prlimit").args(["--pid", &pid.to_string(), &limit]).status();
        match status.attempt(|| "run prlimit".to_owned())?.success() {
            true => Ok(()),
            false => Err(Failure::new("prlimit refused the limit")),
        }
    }

    /// Starts a server three times more, and ends it.
    fn restart(&mut self, prometheus: &Prometheus) -> Result<()> {
        let store = self.memory.path().join("gone").display().to_string();
        let metrics = self.scene("gone").metrics;
        let at = self.scenes.iter().position(|scene| scene.name == "gone").unwrap_or(0);
        for runs in 1..=4 {
            prometheus.demand(&format!(
                "count_over_time(duramen_ready{{instance=\"gone\"}}[5m]) > 0 and \
                 changes(duramen_process_start_timestamp_seconds{{instance=\"gone\"}}[5m]) >= {}",
                runs - 1
            ))?;
            self.scenes[at].server.kill()?;
            if runs < 4 {
                self.scenes[at].server = self.server("gone", &store, metrics, &[])?;
            }
        }
        Ok(())
    }
}

/// The reply, which may be an error.
fn call(client: &mut Connection, command: &[&str]) -> Result<()> {
    let ended = |ended| Failure::new(format!("{} got no reply: {ended:?}", command[0]));
    client.call(command, REPLY).map(drop).map_err(ended)
}

/// Sets keys until none fits.
fn fill(client: &mut Connection) -> Result<()> {
    let mut key = 0;
    for bytes in [1 << 16, 1 << 10, 16] {
        let value = "v".repeat(bytes);
        loop {
            key += 1;
            let reply = client.call(&["SET", &key.to_string(), &value], REPLY);
            if reply.map_err(|ended| Failure::new(format!("SET got no reply: {ended:?}")))?.kind() == b'-' {
                break;
            }
        }
    }
    Ok(())
}

/// Appends a row of this second to the input of a job.
fn append_now(input: &str) -> Option<()> {
    let now = Command::new("date").args(["-u", "+1,%F %T"]).output().ok()?;
    std::fs::File::options().append(true).open(input).ok()?.write_all(&now.stdout).ok()
}
