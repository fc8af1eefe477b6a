//! The address, and the thread that serves it.

use super::background::Background;
use super::connection::{Connection, Next};
use super::handler::Site;
use super::response::{Response, Status};
use crate::error::{Error, ErrorKind};
use crate::net::Stream;
use crate::net::tls::Settings;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections at a time. A monitoring system needs one; each takes a file of the process.
const CONNECTIONS_MAX: usize = 128;
/// A connection keeps its place this long, in which a client on a network sends its request. When all places are taken,
/// further connections wait in the kernel's queue: 1,000 that send nothing are gone after two seconds.
const PLACE_TIME_MIN: Duration = Duration::from_millis(200);
const LISTENER: Token = Token(usize::MAX);
const WAKE: Token = Token(usize::MAX - 1);
/// How long the thread sleeps at most, and at least when a deadline is near.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_MIN: Duration = Duration::from_millis(1);
/// When no place is free, or after an error of accept such as too many open files.
const RETRY: Duration = Duration::from_millis(100);

/// The addresses that `text` names: `IP:PORT`, `[IP]:PORT`, `localhost:PORT`, `*:PORT` for all, or a port on loopback.
///
/// # Errors
/// What is wrong with it.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("127.0.0.1", text));
    let ip: Option<IpAddr> = match host.trim_matches(['[', ']']) {
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        "*" => Some(Ipv4Addr::UNSPECIFIED.into()),
        "::*" => Some(Ipv6Addr::UNSPECIFIED.into()),
        host => host.parse().ok(),
    };
    match (ip, port.parse()) {
        (Some(ip), Ok(port)) => Ok(SocketAddr::new(ip, port)),
        _ => Err(format!("{text:?} is no address; write IP:PORT, such as 127.0.0.1:9121, or a port alone")),
    }
}

/// A served address. Dropping it ends the thread and closes all connections.
pub struct Listening {
    address: SocketAddr,
    waker: Arc<Waker>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    /// Listens at the address and serves `site` there, on a thread of its own; by TLS, if there are settings.
    ///
    /// # Errors
    /// `Address`, naming the address and what to do.
    pub fn start(
        address: SocketAddr,
        site: Box<dyn Site>,
        tls: Option<Arc<Settings>>,
    ) -> Result<Self, Error> {
        let refused = |error: io::Error| {
            let todo = "choose another one with --metrics, or leave it out";
            Error::new(ErrorKind::Address, format!("cannot serve metrics at {address}: {error}; {todo}"))
        };
        let mut listener = TcpListener::bind(address).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let poll = Poll::new().map_err(refused)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE).map_err(refused)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE).map_err(refused)?);
        let ends = Arc::new(AtomicBool::new(false));
        let background = Background::start(site.threads(), &waker).map_err(refused)?;
        let thread = Thread {
            poll,
            listener,
            site,
            tls,
            background,
            ends: Arc::clone(&ends),
            connections: HashMap::new(),
            going: Vec::new(),
            next: 0,
        };
        let thread =
            std::thread::Builder::new().name("duramen-metrics".to_owned()).spawn(move || thread.run());
        Ok(Self { address, waker, ends, thread: Some(thread.map_err(refused)?) })
    }

    /// The address, with the port that the system chose if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        // Without it the thread ends a second later.
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of it has been logged.
            let _ = thread.join();
        }
    }
}

struct Thread {
    poll: Poll,
    listener: TcpListener,
    site: Box<dyn Site>,
    tls: Option<Arc<Settings>>,
    background: Background,
    ends: Arc<AtomicBool>,
    connections: HashMap<usize, Connection>,
    /// Those that go on without an event.
    going: Vec<usize>,
    next: usize,
}

impl Thread {
    fn run(mut self) {
        let mut events = Events::with_capacity(CONNECTIONS_MAX + 2);
        let mut retry = false;
        while !self.ends.load(Ordering::Acquire) {
            let due = self.connections.values().map(Connection::deadline).min();
            let left = due.map_or(LOOK, |due| due.saturating_duration_since(Instant::now()));
            let pause = match (self.going.is_empty(), retry) {
                (false, _) => Duration::ZERO,
                (true, true) => RETRY,
                // Not shorter, as the kernel counts in milliseconds.
                (true, false) => left.clamp(LOOK_MIN, LOOK),
            };
            let polled = self.poll.poll(&mut events, Some(pause));
            match polled {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // Without events every connection is looked at once a second.
                Err(_) => std::thread::sleep(LOOK),
                Ok(()) => {}
            }
            let now = Instant::now();
            let mut accepts = std::mem::take(&mut retry);
            std::mem::take(&mut self.going).into_iter().for_each(|number| self.ready(number, now));
            for event in &events {
                match event.token() {
                    LISTENER => accepts = true,
                    WAKE => {}
                    Token(number) => self.ready(number, now),
                }
            }
            while let Some((number, response)) = self.background.done() {
                self.worked(number, &response, now);
            }
            if accepts {
                retry = !self.accept(now);
            }
            self.expire(now);
        }
    }

    /// Accepts all that wait; false when that must be tried again.
    fn accept(&mut self, now: Instant) -> bool {
        loop {
            if !self.make_place(now) {
                return false;
            }
            let (stream, client) = match self.listener.accept() {
                Ok((stream, address)) => (stream, address.ip()),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return true,
                    io::ErrorKind::Interrupted
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::ConnectionReset => continue,
                    _ => return false,
                },
            };
            let stream = match &self.tls {
                None => Ok(Stream::Tcp(stream)),
                Some(tls) => tls.accept(stream).map(|stream| Stream::Tls(Box::new(stream))),
            };
            let Ok(mut stream) = stream else { continue };
            let number = self.next;
            // Below the tokens of the listener and the waker.
            self.next = (self.next + 1) % WAKE.0;
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut stream, Token(number), interest).is_ok() {
                self.connections.insert(number, Connection::new(stream, client, now));
                // Bytes may have come before it was registered.
                self.ready(number, now);
            }
        }
    }

    /// Closes the connection that has been in its phase longest, if there is no place; false when all are new.
    fn make_place(&mut self, now: Instant) -> bool {
        if self.connections.len() < CONNECTIONS_MAX {
            return true;
        }
        let idle = self.connections.iter().filter(|(_, connection)| !connection.is_working());
        let oldest = idle.min_by_key(|(_, connection)| connection.since);
        let oldest = oldest.filter(|(_, it)| now.duration_since(it.since) >= PLACE_TIME_MIN);
        oldest.map(|(number, _)| *number).is_some_and(|number| self.connections.remove(&number).is_some())
    }

    fn ready(&mut self, number: usize, now: Instant) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let next = connection.ready(&*self.site, now);
        self.go_on(number, next, now);
    }

    fn worked(&mut self, number: usize, response: &Response, now: Instant) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let next = connection.worked(response, &*self.site, now);
        self.go_on(number, next, now);
    }

    fn go_on(&mut self, number: usize, next: Next, now: Instant) {
        match next {
            Next::Waits => {}
            Next::GoesOn if self.going.contains(&number) => {}
            Next::GoesOn => self.going.push(number),
            Next::Works(work) => {
                if !self.background.begin(number, work) {
                    let busy = "Too much is asked for at once; try again.";
                    self.worked(number, &Response::sentence(Status::Unavailable, busy), now);
                }
            }
            Next::Closes => drop(self.connections.remove(&number)),
        }
    }

    fn expire(&mut self, now: Instant) {
        let due = self.connections.iter().filter(|(_, it)| it.deadline() <= now);
        for number in due.map(|(number, _)| *number).collect::<Vec<_>>() {
            let Some(connection) = self.connections.get_mut(&number) else { continue };
            let next = connection.expire(&*self.site, now);
            self.go_on(number, next, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_ip_and_a_port_or_a_port_on_loopback() {
        for (text, wanted) in [
            ("127.0.0.1:9121", "127.0.0.1:9121"),
            ("9121", "127.0.0.1:9121"),
            ("localhost:0", "127.0.0.1:0"),
            ("[::1]:9121", "[::1]:9121"),
            ("*:9121", "0.0.0.0:9121"),
            ("0.0.0.0:9121", "0.0.0.0:9121"),
        ] {
            assert_eq!(address(text).map(|address| address.to_string()).as_deref(), Ok(wanted), "{text}");
        }
        for text in ["", "host:9121", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", "::1"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
