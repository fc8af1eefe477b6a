//! `cargo xtask connections`: opens many clients at once on both protocols, most of them idle, some in the middle of a
//! line.
//!
//! Each client connects, then writes and reads a key of its own. Then one in ten sends a command without its end and
//! waits. Meanwhile another client works, and its latencies are printed. The others then finish their lines and must
//! get replies. At the end a key that is too long and a line without an end must be refused, without effect on other
//! clients.
//!
//! With `--strangers` the clients never log in: they stop within a command, within a handshake of TLS, or after one. Their
//! memory has a limit, those within a handshake must be closed, and another client is served.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::certificates;
use crate::failure::{Attempt, Failure, Result};
use crate::server::{Server, duramen_program, find_program, free_port};
use duramen_resp::tls;

#[derive(clap::Args)]
pub struct Settings {
    /// Number of clients
    #[arg(long, default_value_t = 10_000)]
    pub count: usize,
    /// The duramen program [default: built now]
    #[arg(long, value_name = "PATH")]
    pub duramen: Option<PathBuf>,
    /// Opens clients that never log in
    #[arg(long)]
    pub strangers: bool,
}

const PATIENCE: Duration = Duration::from_secs(20);
/// Connections allowed beyond the clients: memcached also counts internal ones.
const SPARE: usize = 200;
/// One client out of this many stops in the middle of a line.
const HALVES: usize = 10;
/// Commands of the working client.
const COMMANDS: usize = 10_000;
/// How long a server may continue to read a line without an end.
const ENDLESS: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Redis,
    Memcached,
}

impl Protocol {
    fn set(self, key: usize) -> (String, String) {
        match self {
            Self::Redis => (format!("SET key:{key} value:{key}\r\n"), "+OK\r\n".to_owned()),
            Self::Memcached => {
                let value = format!("value:{key}");
                (format!("set key:{key} 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n".to_owned())
            }
        }
    }

    fn get(self, key: usize) -> (String, String) {
        let value = format!("value:{key}");
        match self {
            Self::Redis => (format!("GET key:{key}\r\n"), format!("${}\r\n{value}\r\n", value.len())),
            Self::Memcached => (
                format!("get key:{key}\r\n"),
                format!("VALUE key:{key} 0 {}\r\n{value}\r\nEND\r\n", value.len()),
            ),
        }
    }

    /// A command with a key that memcached refuses, and the beginning of the reply.
    fn giant(self) -> (String, &'static str) {
        let key = "k".repeat(70_000);
        match self {
            Self::Redis => (format!("*2\r\n$3\r\nGET\r\n$70000\r\n{key}\r\n"), "$-1\r\n"),
            Self::Memcached => (format!("set {} 0 0 1\r\nx\r\n", &key[..251]), "CLIENT_ERROR"),
        }
    }
}

/// Runs all steps on both protocols, and fails if a server does.
///
/// # Errors
/// When a server cannot be run, or gives a wrong reply.
pub fn run(settings: &Settings) -> Result<bool> {
    let duramen = duramen_program(settings.duramen.clone())?;
    let count = settings.count;
    if settings.strangers {
        return strangers(&duramen, count);
    }
    println!("{count} clients at once, one in {HALVES} of them in the middle of a line\n");
    println!(
        "| server | protocol | connect, set and get, s | memory for a client, KiB | p50 of one more, µs | p99 | most |"
    );
    println!("|---|---|---|---|---|---|---|");
    for protocol in [Protocol::Redis, Protocol::Memcached] {
        let place = tempfile::tempdir_in("/dev/shm").attempt(|| "make a directory in /dev/shm".to_owned())?;
        let (mut server, port) = serve(&duramen, protocol, count, place.path())?;
        hold(&mut server, "duramen", protocol, port, count)?;
        let reference = find_program(match protocol {
            Protocol::Redis => "redis-server",
            Protocol::Memcached => "memcached",
        });
        let Some(program) = reference else { continue };
        let (mut server, port) = reference_server(&program, protocol, count, place.path())?;
        hold(&mut server, "the reference", protocol, port, count)?;
    }
    Ok(true)
}

/// Where clients that do not log in stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stops {
    WithinACommand,
    WithinAHandshake,
    AfterAHandshake,
}

impl Stops {
    /// KiB of a client: those of its socket and state; a greeting that is not whole; a session of TLS.
    const fn limit(self) -> f64 {
        match self {
            Self::WithinACommand => 16.0,
            Self::WithinAHandshake => 16.0,
            Self::AfterAHandshake => 48.0,
        }
    }
}

/// Whether clients that never log in take no more memory than they may, and hold up no other.
fn strangers(program: &Path, count: usize) -> Result<bool> {
    let place = tempfile::tempdir_in("/dev/shm").attempt(|| "make a directory in /dev/shm".to_owned())?;
    let files = place.path().join("tls");
    certificates::make(&files)?;
    let file = |name: &str| files.join(name).display().to_string();
    let tls = tls::Settings { authorities: Some(file("ca.crt")), certificate: None };
    println!("{count} clients that never log in\n");
    println!(
        "| they stop | connect, s | memory for a client, KiB | at most | p50 of one more, µs | p99 | most |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut is_good = true;
    for stops in [Stops::WithinACommand, Stops::WithinAHandshake, Stops::AfterAHandshake] {
        let store = place.path().join(format!("{stops:?}")).display().to_string();
        let (clients, tls_port) = ((count + SPARE).to_string(), free_port()?);
        let number = tls_port.to_string();
        let (cert, key, ca) = (file("server.crt"), file("server.key"), file("ca.crt"));
        let mut settings =
            vec!["--duramen-path", &store, "--maxclients", &clients, "--requirepass", "secret"];
        settings.extend(["--tls-port", &number, "--tls-cert-file", &cert, "--tls-key-file", &key]);
        settings.extend(["--tls-ca-cert-file", &ca, "--tls-auth-clients", "no"]);
        let server = Server::start_duramen(program, &settings, &place.path().join("log"))?;
        server.demand_connects(PATIENCE)?;
        let before = server.resident_kib()?;
        let began = Instant::now();
        let (mut plain, mut secured) = (Vec::new(), Vec::new());
        for key in 0..count {
            match stops {
                Stops::WithinACommand => {
                    let mut client = connect(server.port(), key)?;
                    send(&mut client, key, b"*2\r\n$4\r\nECHO\r\n$10\r\nabc")?;
                    plain.push(client);
                }
                Stops::WithinAHandshake => {
                    let mut client = connect(tls_port, key)?;
                    // The head of a record of 512 bytes, and one of them.
                    send(&mut client, key, b"\x16\x03\x01\x02\x00\x01")?;
                    plain.push(client);
                }
                Stops::AfterAHandshake => {
                    let client = tls.connect("localhost", connect(tls_port, key)?);
                    secured.push(client.attempt(|| format!("shake hands as client {key}"))?);
                }
            }
        }
        let connected = began.elapsed();
        let memory = server.resident_kib()?.saturating_sub(before) as f64 / count as f64;
        let mut one = connect(server.port(), count)?;
        send(&mut one, count, b"AUTH secret\r\n")?;
        expect(&mut one, count, "+OK\r\n")?;
        let mut latencies = work_as(&mut one, Protocol::Redis, count)?;
        latencies.sort_unstable();
        let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
        println!(
            "| {stops:?} | {:.2} | {memory:.1} | {:.0} | {:.0} | {:.0} | {:.0} |",
            connected.as_secs_f64(),
            stops.limit(),
            at(0.5),
            at(0.99),
            at(1.0)
        );
        if memory > stops.limit() {
            println!("\n{stops:?}: {memory:.1} KiB for a client, wanted at most {:.0}\n", stops.limit());
            is_good = false;
        }
        if stops == Stops::WithinAHandshake {
            for (key, client) in plain.iter_mut().enumerate() {
                // An alert, or nothing, and the end.
                let mut rest = Vec::new();
                client.read_to_end(&mut rest).attempt(|| format!("wait for the end of client {key}"))?;
            }
        }
    }
    Ok(is_good)
}

fn serve(program: &Path, protocol: Protocol, count: usize, place: &Path) -> Result<(Server, u16)> {
    let memcached = free_port()?;
    let (store, clients) = (place.join("store").display().to_string(), (count + SPARE).to_string());
    let number = memcached.to_string();
    let settings = ["--duramen-path", &store, "--maxclients", &clients, "--memcached", &number];
    let mut server = Server::start_duramen(program, &settings, &place.join("log"))?;
    server.demand_ready(PATIENCE)?;
    let port = if protocol == Protocol::Redis { server.port() } else { memcached };
    Ok((server, port))
}

fn reference_server(program: &Path, protocol: Protocol, count: usize, place: &Path) -> Result<(Server, u16)> {
    if protocol == Protocol::Redis {
        let mut server = Server::start_redis(program, place)?;
        server.demand_ready(PATIENCE)?;
        let limit = (count + SPARE).to_string();
        let mut connection = server.connect()?;
        connection
            .call(&["CONFIG", "SET", "maxclients", &limit], PATIENCE)
            .map_err(|_| Failure::new("redis-server does not take its limit of clients"))?;
        let port = server.port();
        return Ok((server, port));
    }
    let port = free_port()?;
    let limit = (count + SPARE).to_string();
    let server = Server::start_memcached(program, port, &["-c", &limit], place)?;
    server.demand_connects(PATIENCE)?;
    Ok((server, port))
}

fn hold(server: &mut Server, name: &str, protocol: Protocol, port: u16, count: usize) -> Result<()> {
    let before = server.resident_kib()?;
    let began = Instant::now();
    let mut clients = Vec::with_capacity(count);
    for key in 0..count {
        let mut client = connect(port, key)?;
        for (sent, wanted) in [protocol.set(key), protocol.get(key)] {
            send(&mut client, key, sent.as_bytes())?;
            expect(&mut client, key, &wanted)?;
        }
        clients.push(client);
    }
    let connected = began.elapsed();
    let memory = (server.resident_kib()?.saturating_sub(before)) as f64 / count as f64;
    for (key, client) in clients.iter_mut().enumerate().step_by(HALVES) {
        let (sent, _) = protocol.get(key);
        send(client, key, &sent.as_bytes()[..sent.len() - 2])?;
    }
    let mut latencies = work(protocol, port, count)?;
    for (key, client) in clients.iter_mut().enumerate().step_by(HALVES) {
        send(client, key, b"\r\n")?;
        expect(client, key, &protocol.get(key).1)?;
    }
    refuse(protocol, port, name)?;
    // All clients still get replies.
    for (key, client) in clients.iter_mut().enumerate() {
        let (sent, wanted) = protocol.get(key);
        send(client, key, sent.as_bytes())?;
        expect(client, key, &wanted)?;
    }
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    println!(
        "| {name} | {protocol:?} | {:.2} | {memory:.1} | {:.0} | {:.0} | {:.0} |",
        connected.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    Ok(())
}

/// The latencies of one more client.
fn work(protocol: Protocol, port: u16, key: usize) -> Result<Vec<Duration>> {
    work_as(&mut connect(port, key)?, protocol, key)
}

fn work_as(client: &mut TcpStream, protocol: Protocol, key: usize) -> Result<Vec<Duration>> {
    let mut latencies = Vec::with_capacity(COMMANDS);
    for at in 0..COMMANDS {
        let (sent, wanted) = if at % 2 == 0 { protocol.set(key) } else { protocol.get(key) };
        let began = Instant::now();
        send(client, key, sent.as_bytes())?;
        expect(client, key, &wanted)?;
        latencies.push(began.elapsed());
    }
    Ok(latencies)
}

/// Sends commands that must be refused.
fn refuse(protocol: Protocol, port: u16, name: &str) -> Result<()> {
    let (sent, wanted) = protocol.giant();
    let mut client = connect(port, 0)?;
    send(&mut client, 0, sent.as_bytes())?;
    let mut found = vec![0; wanted.len()];
    client.read_exact(&mut found).attempt(|| format!("read {name}'s reply to a key of 70,000 bytes"))?;
    if found != wanted.as_bytes() {
        let found = String::from_utf8_lossy(&found).into_owned();
        return Err(Failure::new(format!("a giant key: {name} says {found:?}, wanted {wanted:?}")));
    }
    let mut client = connect(port, 0)?;
    let chunk = vec![b'x'; 1 << 16];
    let began = Instant::now();
    while began.elapsed() < ENDLESS {
        if client.write(&chunk).is_err() {
            return Ok(());
        }
    }
    Err(Failure::new(format!(
        "{name} reads a line without an end on {protocol:?}; wanted the connection closed"
    )))
}

fn connect(port: u16, key: usize) -> Result<TcpStream> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream =
        TcpStream::connect_timeout(&address, PATIENCE).attempt(|| format!("connect client {key}"))?;
    stream.set_nodelay(true).attempt(|| "set TCP_NODELAY".to_owned())?;
    stream.set_read_timeout(Some(PATIENCE)).attempt(|| "set a time-out".to_owned())?;
    stream.set_write_timeout(Some(PATIENCE)).attempt(|| "set a time-out".to_owned())?;
    Ok(stream)
}

fn send(client: &mut TcpStream, key: usize, bytes: &[u8]) -> Result<()> {
    client.write_all(bytes).attempt(|| format!("send to the server as client {key}"))
}

fn expect(client: &mut TcpStream, key: usize, wanted: &str) -> Result<()> {
    let mut found = vec![0; wanted.len()];
    client.read_exact(&mut found).attempt(|| format!("read the reply to client {key}"))?;
    if found == wanted.as_bytes() {
        return Ok(());
    }
    let found = String::from_utf8_lossy(&found).into_owned();
    Err(Failure::new(format!("client {key} got {found:?}, wanted {wanted:?}")))
}
