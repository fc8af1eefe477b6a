//! What a burst of clients took goes back to the system. By itself, since memory belongs to the process.

#![allow(clippy::unwrap_used)] // A panic here is a failed test.

mod support;

use std::io::Read;
use std::time::{Duration, Instant};
use support::{Client, Server};

fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn memory_of_a_burst_of_pipelines_is_returned_to_the_system() {
    const CLIENTS: usize = 400;
    const REQUESTS: usize = 20;
    let server = Server::start();
    let mut client = server.client();
    client.says("setrange k 199999 v", ":200000\r\n");
    client.says("setrange long 29999999 v", ":30000000\r\n");
    let before = anonymous_bytes();
    let mut most = 0;
    for _ in 0..2 {
        let mut burst: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        for client in &mut burst {
            client.send("GET k\r\n".repeat(REQUESTS));
        }
        // Values that a command generates, too.
        for client in &mut burst[..8] {
            client.send("GET long\r\n");
        }
        std::thread::sleep(Duration::from_millis(200));
        most = most.max(anonymous_bytes() - before);
        let mut got = vec![0; 1 << 20];
        for (index, client) in burst.iter_mut().enumerate() {
            let long = if index < 8 { "$30000000\r\n".len() + 30_000_002 } else { 0 };
            let mut left = REQUESTS * ("$200000\r\n".len() + 200_002) + long;
            while left > 0 {
                let piece = left.min(got.len());
                client.0.read_exact(&mut got[..piece]).unwrap();
                left -= piece;
            }
        }
    }
    let end = Instant::now() + Duration::from_secs(10);
    let mut stays = anonymous_bytes().saturating_sub(before);
    while stays > 32 << 20 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
        stays = anonymous_bytes().saturating_sub(before);
    }
    println!("at most {} MiB, {} MiB stay", most >> 20, stays >> 20);
    assert!(stays <= 32 << 20, "{} of {} MiB stay", stays >> 20, most >> 20);
}
