//! `cargo xtask millions --content memcached`: measures the memory of an item, in `duramen serve` on `/dev/shm` and in
//! Debian's memcached.
//!
//! Each server gets the same items by memcached's text protocol, with keys of 20 bytes and values of 100. Two sizes are
//! counted: the private memory of the process (`RssAnon`), and for duramen the blocks of its store's file. Each is
//! reduced by its size before the load, so memory that a server takes at its start is in neither. Up to 64 MiB of the
//! file are free for the next writes; `bytes` in its stats has the size used by items.

use crate::failure::{Attempt, Failure, Result};
use crate::server::{Server, find_program, free_port, release_program};
use duramen_resp::Connection;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const VALUE_BYTES: usize = 100;
/// Sets in flight at once.
const TOGETHER: u64 = 256;
const STORED: &[u8] = b"STORED\r\n";

/// Loads both servers and prints their memory.
pub fn run(repository: &Path, settings: &super::Settings) -> Result<bool> {
    let Some(memcached) = settings.memcached.clone().or_else(|| find_program("memcached")) else {
        return Err(Failure::new("cannot find memcached in PATH: install it, or name one with --memcached"));
    };
    let program = release_program(repository, settings.duramen.clone(), "")?;
    let directory =
        tempfile::tempdir_in("/dev/shm").attempt(|| "make a directory for the servers".to_owned())?;
    let store = directory.path().join("store");
    let (path, port) = (store.display().to_string(), free_port()?);
    let number = port.to_string();
    let mut arguments = vec!["--duramen-path", &path, "--memcached", &number];
    arguments.extend(settings.arguments.iter().map(String::as_str));
    let items = settings.elements;
    println!("{items} items of 20 + {VALUE_BYTES} bytes; bytes per item");
    {
        let mut server = Server::start_duramen(&program, &arguments, &directory.path().join("log"))?;
        server.demand_ready(PATIENCE)?;
        measure("duramen", &server, port, Some(store), items)?;
    }
    let port = free_port()?;
    // Enough for all items: with less it would evict some.
    let server = Server::start_memcached(&memcached, port, &["-m", "1048576"], directory.path())?;
    server.demand_connects(PATIENCE)?;
    measure("memcached", &server, port, None, items)?;
    Ok(true)
}

fn measure(name: &str, server: &Server, port: u16, store: Option<PathBuf>, items: u64) -> Result<()> {
    let mut connection = Connection::open(port).attempt(|| format!("connect to {name} on port {port}"))?;
    // The memory for the first connection does not count as an item's.
    set(&mut connection, 0..1, name)?;
    let medium = || store.as_deref().map_or(Ok(0), super::medium_bytes);
    let (dram_before, medium_before) = (server.resident_kib()? << 10, medium()?);
    let begun = Instant::now();
    for from in (1..=items).step_by(TOGETHER as usize) {
        set(&mut connection, from..(from + TOGETHER).min(items + 1), name)?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let stats = stats(&mut connection)?;
    let stat = |name: &str| {
        let value =
            stats.lines().find_map(|line| line.strip_prefix("STAT ")?.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    if stat("curr_items") != items + 1 {
        let found = stat("curr_items");
        return Err(Failure::new(format!("{name} has {found} items, wanted {}", items + 1)));
    }
    let each = |bytes: u64| bytes as f64 / items as f64;
    let dram = each((server.resident_kib()? << 10).saturating_sub(dram_before));
    let medium = each(medium()?.saturating_sub(medium_before));
    println!(
        "  {name}: DRAM {dram:.1}, medium {medium:.1}, together {:.1}; `bytes` of its stats {:.1}; {seconds:.1} s",
        dram + medium,
        each(stat("bytes")),
    );
    Ok(())
}

fn set(connection: &mut Connection, numbers: std::ops::Range<u64>, name: &str) -> Result<()> {
    let replies = (numbers.end - numbers.start) as usize * STORED.len();
    let mut bytes = Vec::new();
    for number in numbers {
        bytes.extend_from_slice(format!("set item{number:016} 0 0 {VALUE_BYTES}\r\n").as_bytes());
        bytes.extend(std::iter::repeat_n(b'a' + (number % 26) as u8, VALUE_BYTES));
        bytes.extend_from_slice(b"\r\n");
    }
    connection.send(&bytes).attempt(|| format!("send items to {name}"))?;
    let found = connection.read_all(PATIENCE, |found| found.len() >= replies);
    if found.bytes().len() != replies || found.bytes().chunks(STORED.len()).any(|reply| reply != STORED) {
        return Err(Failure::new(format!("{name} answered sets by {found:?}, wanted STORED to each")));
    }
    Ok(())
}

fn stats(connection: &mut Connection) -> Result<String> {
    connection.send(b"stats\r\n").attempt(|| "ask for stats".to_owned())?;
    let found = connection.read_all(PATIENCE, |found| found.ends_with(b"END\r\n"));
    Ok(String::from_utf8_lossy(found.bytes()).into_owned())
}
