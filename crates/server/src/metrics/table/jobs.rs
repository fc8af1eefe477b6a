//! Jobs of continuous SQL, of the server (duramen-sql) and of `duramen sql`.

use super::{Family, Kind, Number, Samples, Source, job};
use crate::clients::unix_millis;
use crate::hosted_jobs::{JobCheckpoints, JobProgress, JobReport, JobState};

fn number(report: &JobReport, of: fn(JobProgress) -> Number) -> Option<Number> {
    report.progress.map(of)
}

fn checkpoint(report: &JobReport, of: fn(JobCheckpoints) -> Number) -> Option<Number> {
    report.progress.and_then(|progress| progress.checkpoints).map(of)
}

/// For how long this moment, in Unix seconds, is past.
fn since(at: f64) -> Number {
    Number::Real((unix_millis() as f64 / 1e3 - at).max(0.0))
}

fn states(report: &JobReport, samples: &mut Samples) {
    for state in JobState::ALL {
        samples.labelled([state.word()], report.state == state);
    }
}

pub const FAMILIES: &[Family] = &[
    Family {
        name: "sql_job_state",
        kind: Kind::Gauge,
        labels: &["sql_job", "state"],
        help: "1 for the state that the job is in: starting, running, finished, stopped, failed.",
        info: &["duramen_job_*"],
        source: Source::JobSamples(states),
    },
    job("sql_job_records_read", Kind::Counter, "Records read, with those of earlier runs.", |report| {
        number(report, |progress| progress.records_read.into())
    }),
    job("sql_job_records_written", Kind::Counter, "Rows given to sinks by this run.", |report| {
        number(report, |progress| progress.records_written.into())
    }),
    job(
        "sql_job_records_skipped",
        Kind::Counter,
        "Records that could not be read, and were skipped.",
        |report| number(report, |progress| progress.records_skipped.into()),
    ),
    job("sql_job_records_late", Kind::Counter, "Rows that came after their window had closed.", |report| {
        number(report, |progress| progress.records_late.into())
    }),
    job("sql_job_records_timeless", Kind::Counter, "Rows without an event time.", |report| {
        number(report, |progress| progress.records_timeless.into())
    }),
    job(
        "sql_job_watermark_timestamp_seconds",
        Kind::Gauge,
        "The watermark: the Unix time up to which all events are expected to be read.",
        |report| report.progress.and_then(|progress| progress.watermark).map(Number::Real),
    ),
    job(
        "sql_job_watermark_lag_seconds",
        Kind::Gauge,
        "How far the watermark of a running job is behind the clock.",
        |report| match report.state {
            JobState::Running => report.progress.and_then(|progress| progress.watermark).map(since),
            _ => None,
        },
    ),
    job("sql_job_state_bytes", Kind::Gauge, "Bytes of the job's state.", |report| {
        number(report, |progress| progress.state_bytes.into())
    }),
    job("sql_job_state_keys", Kind::Gauge, "Keys of the job's state, in all open windows.", |report| {
        number(report, |progress| progress.state_keys.into())
    }),
    job("sql_job_checkpoints", Kind::Counter, "Complete checkpoints of this run.", |report| {
        checkpoint(report, |kept| kept.count.into())
    }),
    job(
        "sql_job_checkpoint_age_seconds",
        Kind::Gauge,
        "Time since the last complete checkpoint of a running job, or since it started.",
        |report| match report.state {
            JobState::Running => checkpoint(report, |kept| since(kept.at)),
            _ => None,
        },
    ),
    job("sql_job_checkpoint_interval_seconds", Kind::Gauge, "Time between two checkpoints.", |report| {
        checkpoint(report, |kept| kept.every.into())
    }),
    job(
        "sql_job_checkpoint_duration_seconds",
        Kind::Gauge,
        "Time that the last checkpoint took.",
        |report| checkpoint(report, |kept| kept.took.into()),
    ),
    job("sql_job_checkpoint_commit_seconds", Kind::Gauge, "The part of that for its commit.", |report| {
        checkpoint(report, |kept| kept.commit.into())
    }),
    job("sql_job_checkpoint_written_bytes", Kind::Gauge, "Bytes that the last checkpoint wrote.", |report| {
        checkpoint(report, |kept| kept.bytes.into())
    }),
    job(
        "sql_job_checkpoint_pause_max_seconds",
        Kind::Gauge,
        "The longest time for which a checkpoint kept rows waiting.",
        |report| checkpoint(report, |kept| kept.pause_max.into()),
    ),
];
