//! MEMORY: the bytes that a key takes on the medium (USAGE), and those that the server takes in DRAM.

use crate::observe::process;
use crate::redis::command::{Call, Command, CommandError, errors};
use crate::redis::resp::Reply;

/// The subcommands.
pub const SUBCOMMANDS: &[Command] = &[
    Command::new("memory|doctor", doctor),
    Command::new("memory|malloc-stats", malloc_stats),
    Command::new("memory|purge", purge),
    Command::new("memory|stats", stats),
    Command::new("memory|usage", usage),
    Command::new("memory|help", help),
];

// As the reference.
const SAMPLES: u64 = 5;

const HELP: &[&str] = &[
    "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DOCTOR",
    "    Return memory problems reports.",
    "MALLOC-STATS",
    "    Return internal statistics report from the memory allocator.",
    "PURGE",
    "    Attempt to purge dirty pages for reclamation by the allocator.",
    "STATS",
    "    Return information about the memory usage of the server.",
    "USAGE <key> [SAMPLES <count>]",
    "    Return memory in bytes used by <key> and its value. Nested values are",
    "    sampled up to <count> times (default: 5, 0 means sample all).",
    "HELP",
    "    Prints this help.",
];

fn help(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.lines(HELP);
    Ok(())
}

// Redis's texts.
const LITTLE: &str = "Hi Sam, this instance is empty or is using very little memory, my issues detector can't be used in these conditions. \
Please, leave for your mission on Earth and fill it with some data. The new Sam and I will be back to our programming as soon as I \
finished rebooting.\n";
const NO_ISSUE: &str = "Hi Sam, I can't find any memory issue in your instance. I can only account for what occurs on this base.\n";
const ISSUES: &str = "Sam, I detected a few issues in this Redis instance memory implants:\n\n";
const PEAK: &str = " * Peak memory: In the past this instance used more than 150% the memory that is currently using. The allocator is \
normally not able to release memory after a peak, so you can expect to see a big fragmentation ratio, however this is actually harmless and \
is only due to the memory peak, and if the Redis instance Resident Set Size (RSS) is currently bigger than expected, the memory will be \
used as soon as you fill the Redis instance with more data. If the memory peak was only occasional and you want to try to reclaim memory, \
please try the MEMORY PURGE command, otherwise the only other option is to shutdown and restart the instance.\n\n";
const BUFFERS: &str = " * Big client buffers: The clients output buffers in this instance are greater than 200K per client (on average). \
This may result from different causes, like Pub/Sub clients subscribed to channels bot not receiving data fast enough, so that data piles \
on the Redis instance output buffer, or clients sending commands with large replies or very large sequences of commands in the same \
pipeline. Please use the CLIENT LIST command in order to investigate the issue if it causes problems in your instance, or to understand \
better why certain clients are using a big amount of memory.\n\n";
const LAST: &str = "I'm here to keep you safe, Sam. I want to help you.\n";

const LITTLE_BYTES: u64 = 5 << 20;
const CLIENT_BYTES: u64 = 200 << 10;

/// MEMORY DOCTOR.
fn doctor(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let process = process::read();
    let clients = call.server.clients.list();
    let buffered: u64 = clients.iter().map(|client| client.buffered()).sum();
    let text =
        report(process.anonymous_bytes, process.resident_bytes_max, buffered / clients.len().max(1) as u64);
    call.reply.verbatim(&text);
    Ok(())
}

fn report(bytes: u64, bytes_max: u64, client_bytes: u64) -> String {
    if bytes < LITTLE_BYTES {
        return LITTLE.to_owned();
    }
    let mut issues = String::new();
    for (is_so, text) in [(bytes_max > bytes / 2 * 3, PEAK), (client_bytes > CLIENT_BYTES, BUFFERS)] {
        issues.push_str(if is_so { text } else { "" });
    }
    if issues.is_empty() { NO_ISSUE.to_owned() } else { format!("{ISSUES}{issues}{LAST}") }
}

fn malloc_stats(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.bulk(b"Stats not supported for the current allocator");
    Ok(())
}

/// MEMORY PURGE: unused memory has been returned already.
fn purge(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.ok();
    Ok(())
}

/// MEMORY STATS: names and numbers; 0 for missing features.
fn stats(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (process, store) = (process::read(), call.server.keyspace.store().stats());
    let clients: u64 = call.server.clients.list().iter().map(|client| client.buffered()).sum();
    let (used, resident, peak) =
        (process.anonymous_bytes, process.resident_bytes, process.resident_bytes_max);
    let overhead = store.index_bytes + clients;
    let reply = &mut call.reply;
    reply.map(25);
    numbers(
        reply,
        &[
            ("peak.allocated", peak as i64),
            ("total.allocated", used as i64),
            ("startup.allocated", 0),
            ("replication.backlog", 0),
            ("clients.slaves", 0),
            ("clients.normal", clients as i64),
            ("cluster.links", 0),
            ("aof.buffer", 0),
            ("lua.caches", 0),
            ("functions.caches", 0),
            ("overhead.total", overhead as i64),
            ("keys.count", store.keys as i64),
            ("keys.bytes-per-key", (used / store.keys.max(1)) as i64),
            ("dataset.bytes", store.live_bytes as i64),
        ],
    );
    ratio(reply, "dataset.percentage", store.live_bytes as f64 * 100.0, store.used_bytes);
    ratio(reply, "peak.percentage", used as f64 * 100.0, peak);
    numbers(
        reply,
        &[
            ("allocator.allocated", used as i64),
            ("allocator.active", used as i64),
            ("allocator.resident", resident as i64),
        ],
    );
    ratio(reply, "allocator-fragmentation.ratio", used as f64, used);
    ratio(reply, "allocator-rss.ratio", resident as f64, used);
    numbers(reply, &[("allocator-rss.bytes", resident as i64 - used as i64)]);
    ratio(reply, "rss-overhead.ratio", 1.0, 1);
    ratio(reply, "fragmentation", resident as f64, used);
    numbers(reply, &[("fragmentation.bytes", resident as i64 - used as i64)]);
    Ok(())
}

fn numbers(reply: &mut Reply<'_>, numbers: &[(&str, i64)]) {
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.integer(*number);
    }
}

fn ratio(reply: &mut Reply<'_>, name: &str, part: f64, whole: u64) {
    reply.bulk(name.as_bytes());
    reply.double(&format!("{}", part / whole.max(1) as f64));
}

fn usage(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let samples = match call.args.len() {
        3 => SAMPLES,
        5 if call.args.is(3, "samples") => {
            u64::try_from(call.args.integer(4)?).map_err(|_| errors::SYNTAX)?
        }
        _ => return Err(errors::SYNTAX),
    };
    match call.txn.footprint(call.db(), call.args.at(2), samples)? {
        None => call.reply.null(),
        Some(bytes) => call.reply.integer(bytes as i64),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_doctor_reports_peaks_and_large_buffers() {
        assert_eq!(report(1 << 20, 9 << 20, 0), LITTLE);
        assert_eq!(report(10 << 20, 15 << 20, 0), NO_ISSUE);
        assert!(report(10 << 20, 16 << 20, 0).contains("Peak memory"));
        let buffers = report(10 << 20, 10 << 20, 1 << 20);
        assert!(buffers.contains("Big client buffers") && !buffers.contains("Peak memory"));
    }
}
