//! Numbers of the process, as `/metrics` has them, and jobs of SQL. Rates are the page's work.

use super::Seen;
use crate::clients::unix_millis;
use crate::hosted_jobs::JobReport;
use crate::metrics::facts::Facts;
use crate::metrics::family::values;
use crate::metrics::table::families;
use serde_json::{Value, json};

/// The families that the page shows.
const SHOWN: [&str; 44] = [
    "access_bytes",
    "blocks",
    "clients",
    "clients_waiting",
    "command_calls",
    "command_duration_seconds",
    "command_failures",
    "commands",
    "commit_sync_seconds",
    "commits",
    "compaction_copied_bytes",
    "compaction_freed_bytes",
    "compaction_rounds",
    "connections",
    "connections_rejected",
    "damaged_blocks",
    "database_expiring_keys",
    "database_keys",
    "dead_bytes",
    "error_replies",
    "evicted_keys",
    "expired_keys",
    "file_system_available_bytes",
    "free_bytes",
    "index_bytes",
    "index_checkpoints",
    "index_pages_left",
    "keyspace_hits",
    "keyspace_misses",
    "live_bytes",
    "machine_memory_bytes",
    "medium_bytes",
    "medium_given_back_bytes",
    "medium_limit_bytes",
    "network_received_bytes",
    "network_sent_bytes",
    "process_cpu_seconds",
    "process_private_bytes",
    "process_resident_bytes",
    "store_keys",
    "unverified_bytes",
    "used_bytes",
    "worker_threads",
    "written_bytes",
];

/// `/api/overview`: the present numbers, and when that is.
pub fn numbers(seen: &Seen<'_>) -> Value {
    let facts = Facts::now(Some((seen.server, seen.blocks)), seen.why_not_ready.is_none(), Vec::new());
    let store = seen.server.keyspace.store();
    json!({
        "at": unix_millis(),
        "run": seen.server.run_id,
        "version": env!("CARGO_PKG_VERSION"),
        "uptime": seen.server.started.elapsed().as_secs(),
        "medium": store.describe().to_string(),
        "policy": seen.server.config().policy().name(),
        "databases": seen.server.keyspace.databases(),
        "not_ready": seen.why_not_ready,
        "numbers": values(families().filter(|family| SHOWN.contains(&family.name)), &facts),
    })
}

/// `/api/jobs`: all jobs of SQL in this process.
pub fn jobs(seen: &Seen<'_>) -> Value {
    let reports = seen.server.hosted_jobs.reports();
    let jobs: Vec<Value> = reports.iter().map(|(name, report)| job(name, report)).collect();
    json!({"at": unix_millis(), "jobs": jobs})
}

fn job(name: &str, report: &JobReport) -> Value {
    let progress = report.progress.as_ref().map(|progress| {
        let checkpoints = progress.checkpoints.as_ref().map(|kept| {
            json!({
                "count": kept.count,
                "at": kept.at,
                "took": kept.took,
                "commit": kept.commit,
                "bytes": kept.bytes,
                "pause_max": kept.pause_max,
                "every": kept.every,
            })
        });
        json!({
            "records_read": progress.records_read,
            "records_written": progress.records_written,
            "records_skipped": progress.records_skipped,
            "records_late": progress.records_late,
            "records_timeless": progress.records_timeless,
            "watermark": progress.watermark,
            "state_bytes": progress.state_bytes,
            "state_keys": progress.state_keys,
            "checkpoints": checkpoints,
        })
    });
    json!({
        "name": name,
        "state": report.state.word(),
        "text": report.text,
        "plan": &*report.plan,
        "progress": progress,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_that_is_shown_exists_and_has_at_most_one_label() {
        for name in SHOWN {
            let family = families().find(|family| family.name == name);
            assert!(family.is_some_and(|family| family.labels.len() <= 1), "{name}");
        }
    }
}
