//! The same measurement of redis-server with an append-only file that each write is flushed to (AOF always).

use super::content::{Command, Content, Versions, key_of, value_of};
use super::table::Row;
use super::{After, COMPARED, GROUP, Medium, PATIENCE, WRITTEN, answers, demand};
use crate::failure::{Failure, Result};
use crate::random::Random;
use crate::server::{Server, free_port};
use duramen_resp::{Reply, encode_command};
use std::path::Path;
use std::time::{Duration, Instant};

/// Loads `keys` strings through the server, and measures its starts after SIGKILL.
pub fn measure(
    program: &Path,
    place: &Path,
    medium: Medium,
    keys: u64,
    starts: usize,
    seed: u64,
) -> Result<Row> {
    let mut random = Random::new(seed ^ keys);
    let mut versions = Versions::default();
    let mut server = start(program, place)?;
    server.demand_ready(PATIENCE)?;
    load(&server, keys)?;
    server.kill()?;
    let mut row = Row::new("redis-server", medium.kind(), "", keys, 0, After::Kill, false);
    // The first start rewrites the file of the load, and is not measured.
    for at in 0..=starts.max(1) {
        let begun = Instant::now();
        server = start(program, place)?;
        let number = random.below(keys);
        row.wrong += wait_for(&mut server, &Content::Strings.read(number, versions.of(number)))?;
        let seconds = begun.elapsed().as_secs_f64();
        let mut connection = server.connect()?;
        let more: Vec<u64> = (0..COMPARED).map(|_| random.below(keys)).chain(versions.numbers()).collect();
        for number in more {
            let right = answers(&mut connection, &Content::Strings.read(number, versions.of(number)));
            row.wrong += u64::from(!right.is_ok_and(|right| right));
        }
        if at > 0 {
            row.keep_redis(&server, seconds)?;
        }
        for _ in 0..WRITTEN {
            let number = random.below(keys);
            demand(&mut connection, &Content::Strings.overwrite(number, versions.of(number) + 1))?;
            versions.next(number);
        }
        server.kill()?;
    }
    Ok(row)
}

fn start(program: &Path, place: &Path) -> Result<Server> {
    let port = free_port()?;
    let (port_text, directory) = (port.to_string(), place.display().to_string());
    let arguments = [
        ["--port", &port_text],
        ["--bind", "127.0.0.1"],
        ["--dir", &directory],
        ["--save", ""],
        ["--appendonly", "yes"],
        ["--appendfsync", "always"],
    ];
    let arguments: Vec<String> = arguments.concat().into_iter().map(str::to_owned).collect();
    Server::start("redis-server", program, &arguments, port, &place.join("redis.log"))
}

/// Repeats a read until the server has loaded its file; returns how many wrong values it returned, 0 or 1.
fn wait_for(server: &mut Server, read: &Command) -> Result<u64> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(status) = server.exited()? {
            let words = server.last_words();
            return Err(Failure::new(format!(
                "redis-server ended ({status}) at its start; its last words:\n{words}"
            )));
        }
        let reply = server
            .connect()
            .ok()
            .and_then(|mut connection| connection.call(&read.arguments, Duration::from_secs(1)).ok());
        match reply {
            // Not listening yet, or still loading.
            None | Some(Reply::Line { kind: b'-', .. }) => std::thread::sleep(Duration::from_millis(2)),
            Some(reply) => return Ok(u64::from(reply.text() != Some(&read.reply))),
        }
    }
    Err(Failure::new(format!("redis-server did not answer within {PATIENCE:?}")))
}

fn load(server: &Server, keys: u64) -> Result<()> {
    let mut connection = server.connect()?;
    for from in (0..keys).step_by(GROUP as usize) {
        let mut out = Vec::new();
        let numbers = from..(from + GROUP).min(keys);
        for number in numbers.clone() {
            encode_command(&mut out, &[b"SET", &key_of(number)[..], &value_of(number, 0)]);
        }
        connection.send(&out).map_err(|error| Failure::new(format!("cannot load redis-server: {error}")))?;
        for _ in numbers {
            let reply = connection.read(PATIENCE);
            if reply.as_ref().ok().and_then(Reply::text) != Some(b"OK") {
                return Err(Failure::new(format!("SET was answered {reply:?}, wanted OK")));
            }
        }
    }
    Ok(())
}
