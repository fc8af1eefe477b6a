//! Accepts connections and hands them to the workers in turn.

use super::inbox::Message;
use super::listen::{Incoming, Listener};
use super::protocol::{Protocol, Refusal};
use super::stream::Stream;
use crate::clients::Origin;
use crate::config::Config;
use crate::observe::log;
use crate::server::Server;
use mio::{Events, Poll, Token};
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

/// The token that wakes the acceptor; listeners have those below.
pub const WAKE: Token = Token(usize::MAX);

// When no more files can be opened, the connection stays in the kernel's queue until some are closed.
const RETRY: Duration = Duration::from_millis(50);
// How often the rates of INFO are sampled.
const SAMPLE: Duration = Duration::from_secs(1);

/// Accepts until the server is asked to end.
///
/// # Errors
/// When the kernel's event queue fails.
pub fn accept<P: Protocol>(server: &Server, poll: &mut Poll, listeners: &[Listener]) -> io::Result<()> {
    let mut events = Events::with_capacity(64);
    let mut next = 0;
    let mut retry = false;
    let mut sampled = Instant::now();
    server.sample();
    while !server.stop.is_requested() {
        if sampled.elapsed() >= SAMPLE {
            sampled = Instant::now();
            server.sample();
        }
        match poll.poll(&mut events, Some(if retry { RETRY } else { SAMPLE })) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        }
        let all = std::mem::take(&mut retry);
        for (index, listener) in listeners.iter().enumerate() {
            if all || events.iter().any(|event| event.token() == Token(index)) {
                retry |= !accept_all::<P>(server, listener, &mut next);
            }
        }
    }
    Ok(())
}

/// Accepts the waiting connections of one listener; false when some of them must be retried later.
fn accept_all<P: Protocol>(server: &Server, listener: &Listener, next: &mut usize) -> bool {
    loop {
        match listener.accept(&server.tls) {
            Ok(incoming) => admit::<P>(server, incoming, next),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return true,
                // The client gave up before it was accepted.
                io::ErrorKind::Interrupted
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset => {}
                _ => return false,
            },
        }
        if server.stop.is_requested() {
            return true;
        }
    }
}

fn admit<P: Protocol>(server: &Server, mut incoming: Incoming, next: &mut usize) {
    let config = server.config();
    let refusal = if server.clients.count() >= config.maxclients as usize {
        Some(Refusal::TooMany)
    } else if config.protected_mode && server.users.is_open() && !incoming.is_local {
        Some(Refusal::Protected)
    } else {
        None
    };
    if let Some(refusal) = refusal.map(|why| P::refusal(why, incoming.mark)) {
        server.clients.reject();
        server.log_refused(&incoming.address, refusal);
        // A client that cannot take it in one write does not get it.
        let _ = incoming.stream.write(refusal);
        return;
    }
    keep_alive(&incoming.stream, &config);
    let worker = *next % server.inboxes.len();
    *next = worker + 1;
    let client = server.clients.enter(Origin {
        worker,
        address: incoming.address,
        address_local: incoming.address_local,
        unix: incoming.is_unix,
        descriptor: incoming.stream.descriptor(),
        mark: incoming.mark,
        trusted: false,
        user: None,
    });
    log::verbose(format_args!("accepted {} as client {}", client.address, client.id));
    server.inboxes[worker].send(Message::Connection(incoming.stream, client));
}

fn keep_alive(stream: &Stream, config: &Config) {
    let stream = match stream {
        Stream::Tcp(stream) => stream,
        Stream::Tls(stream) => &stream.stream.socket,
        Stream::Unix(_) => return,
    };
    if config.tcp_keepalive == 0 {
        return;
    }
    // As in Redis: probe after the interval, then three times within a third of it each.
    let seconds = u64::from(config.tcp_keepalive);
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(seconds))
        .with_interval(Duration::from_secs((seconds / 3).max(1)))
        .with_retries(3);
    // Without it a dead client is only noticed later.
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}
