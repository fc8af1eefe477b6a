//! A server in this process, and clients that speak in exact bytes.
#![allow(dead_code)] // Each test file uses its part.
#![allow(clippy::unwrap_used, clippy::panic)] // A test that cannot continue has failed.

use duramen::MediumKind;
use duramen_server::{Config, Started};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Names the limit of packed values in the process that runs all tests with another one.
pub const PACKED: &str = "DURAMEN_TEST_SMALL_COLLECTION_BYTES_MAX";

/// A running server; dropping it ends it.
pub struct Server {
    pub port: u16,
    metrics: Option<std::net::SocketAddr>,
    in_process: duramen_server::InProcessClient,
    stop: Arc<duramen_server::server::Stop>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Server {
    /// On memory that survives nothing, with two workers.
    pub fn start() -> Self {
        Self::with(|_| {})
    }

    /// The same with changes to the configuration.
    pub fn with(change: impl Fn(&mut Config)) -> Self {
        // Another process may take the port between our look and our bind: then try another.
        for _ in 0..10 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut config = Config {
                port,
                bind: vec!["127.0.0.1".to_owned()],
                medium: MediumKind::Volatile,
                path: "volatile".into(),
                threads: 2,
                loglevel: duramen_server::log::Level::Nothing,
                ..Config::default()
            };
            if let Some(bytes) = std::env::var_os(PACKED) {
                config.small_collection_bytes_max = bytes.to_str().unwrap().parse().unwrap();
            }
            change(&mut config);
            match Started::start(config) {
                Ok(started) => {
                    let (stop, metrics) = (started.stop(), started.metrics_address());
                    let in_process = started.in_process();
                    let run = move || started.run().map_err(|error| error.to_string());
                    let thread = Some(std::thread::spawn(run));
                    return Self { port, metrics, in_process, stop, thread };
                }
                Err(error) if error.kind() == duramen_server::ErrorKind::Address => {}
                Err(error) => panic!("{error}"),
            }
        }
        panic!("no free port");
    }

    /// The address of its metrics, if they are served.
    pub fn metrics(&self) -> std::net::SocketAddr {
        self.metrics.unwrap()
    }

    pub fn in_process(&self) -> &duramen_server::InProcessClient {
        &self.in_process
    }

    pub fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// Ends the server and returns the result.
    pub fn stop(mut self) -> Result<(), String> {
        self.stop.request();
        self.thread.take().unwrap().join().unwrap()
    }

    /// Waits for a server that was asked to end.
    pub fn wait(mut self) -> Result<(), String> {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

/// A connection.
pub struct Client(pub TcpStream);

impl Client {
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        // Longer than anything here takes; a test that waits longer has failed.
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(stream)
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    /// Reads as many bytes as `wanted` has, and wants them to be the same.
    #[track_caller]
    pub fn expect(&mut self, wanted: impl AsRef<[u8]>) {
        let wanted = wanted.as_ref();
        let mut got = vec![0; wanted.len()];
        let mut at = 0;
        while at < got.len() {
            match self.0.read(&mut got[at..]) {
                Ok(0) => break,
                Ok(bytes) => at += bytes,
                // A read with a time-out is interrupted when the process was stopped and continues.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&got[..at])),
            }
            if got[..at] != wanted[..at] {
                break;
            }
        }
        let show = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned();
        assert_eq!(show(&got[..at]), show(wanted));
    }

    /// Speaks RESP3 from now on.
    pub fn hello_3(&mut self) {
        self.send("hello 3\r\n");
        // A map of seven pairs; the last is an empty array.
        while self.line() != "*0" {}
    }

    /// Sends an inline command, or several, and wants this reply.
    #[track_caller]
    pub fn says(&mut self, line: &str, wanted: &str) {
        self.send(format!("{line}\r\n"));
        self.expect(wanted);
    }

    /// Wants the connection to end without another byte.
    #[track_caller]
    pub fn expect_end(&mut self) {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => assert_eq!(String::from_utf8_lossy(&rest), ""),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
    }

    /// Sends a command and reads a bulk or verbatim reply.
    pub fn text(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n"));
        let head = self.line();
        let bytes: usize = head[1..].parse().unwrap();
        let mut text = vec![0; bytes + 2];
        self.0.read_exact(&mut text).unwrap();
        text.truncate(bytes);
        String::from_utf8(text).unwrap()
    }

    /// A number of INFO.
    #[track_caller]
    pub fn field(&mut self, section: &str, name: &str) -> u64 {
        let info = self.text(&format!("info {section}"));
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap().trim().parse().unwrap()
    }

    /// Reads a line of the reply.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") {
            self.0.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        line.truncate(line.len() - 2);
        String::from_utf8(line).unwrap()
    }
}

/// Waits until `happened`, for at most ten seconds.
#[track_caller]
pub fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !happened() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
