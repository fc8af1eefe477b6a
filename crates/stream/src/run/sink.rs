//! Opens sinks.
//!
//! | sink | in a job with checkpoints |
//! |---|---|
//! | `filesystem` | exactly once: parts of a directory, each renamed when the checkpoint that names it is committed |
//! | `duramen` | exactly once: keys of the job's store are written in the checkpoint |
//! | `redis` with `'sink.delivery-guarantee' = 'exactly-once'` | exactly once: a transaction after each checkpoint |
//! | `redis` | at least once; writing the same rows again under the same keys gives the same result |
//! | `redis-stream`, `socket` | at least once: written at once, and again for rows read since the last checkpoint |
//! | `kafka`, `upsert-kafka` | exactly once: a transaction after each checkpoint, whose rows are in the checkpoint |
//! | `print`, `blackhole` | at least once: written at once, and again for rows read since the last checkpoint |

use std::io::Write;

use serde_json::Value;

use super::claim::{Claim, Strangers};
use super::file::OneFile;
use super::format::{Format, Writing, path};
use super::keyed_sink::{Own, Remote};
use super::outbox::{Outage, Outbox, guarantee};
use super::parts::Parts;
use super::records::Place;
use super::redis_stream::RedisStreamSink;
use super::row_sink::{CommitParticipant, JobStore, RowSink};
use super::server_sink::{Newest, Server};
use super::socket::Sender;
use crate::compile::{Output, Rows};
use crate::error::{Error, Result};
use crate::plan::Sink;

/// Opens the sink of a table; `number` is that of the sink in its job.
pub fn open(sink: &Sink, number: usize, place: Place<'_>) -> Result<Box<dyn RowSink>> {
    let table = &sink.table;
    let name = table.name.clone();
    match table.connector.name {
        "blackhole" => Ok(Box::new(Blackhole)),
        "print" => {
            let prefix = table.options.get("print-identifier");
            Ok(Box::new(Print { prefix: prefix.map_or(String::new(), |prefix| format!("{prefix}> ")) }))
        }
        "filesystem" => {
            let writing = Writing::new(Format::of(table)?, table);
            let mut path = path(table, place.directory)?;
            if let Some(job) = place.job {
                let parts = Parts::open(path, &name, (job, &number.to_string()), writing.extension())?;
                return Ok(Box::new(Files { parts, writing }));
            }
            // A directory has a single file.
            if path.is_dir() || table.options.get("path").is_some_and(|path| path.ends_with('/')) {
                std::fs::create_dir_all(&path).map_err(|error| {
                    Error::connector(format!("cannot make {path:?} for `{name}`: {error}"))
                })?;
                path = path.join("part-0");
            }
            Ok(Box::new(OneFile::open(&path, writing, &name, place.existing)?))
        }
        "duramen" => match place.job {
            Some(job) => Ok(Box::new(Own::open(table, job, place.existing)?)),
            None => Err(Error::invalid(
            format!("`{name}` of connector 'duramen' in a job without a store"),
            "a store for the job: --store PATH",
        )),
        },
        "redis" => match (guarantee(table, place)?.unwrap_or(false), place.job) {
            (true, Some(job)) => {
                let server = Server::of(table, job, number, place.existing)?;
                let newest = Box::new(Newest::of(table)?);
                Ok(Box::new(Outbox::new(server, newest, Outage::default(), number, place)))
            }
            _ => Ok(Box::new(Remote::open(table)?)),
        },
        "redis-stream" => Ok(Box::new(RedisStreamSink::open(table)?)),
        "socket" => Ok(Box::new(Sender::open(table, place)?)),
        #[cfg(feature = "kafka")]
        "kafka" | "upsert-kafka" => super::kafka::sink(table, number, place),
        #[cfg(not(feature = "kafka"))]
        "kafka" | "upsert-kafka" => Err(super::source::without_kafka(table)),
        other => Err(Error::unsupported(format!("writing to the connector '{other}'"))
            .hint("supported connectors: print, blackhole, filesystem, duramen, redis, redis-stream, socket, kafka, upsert-kafka")),
    }
}

struct Blackhole;

impl Output for Blackhole {
    fn take(&mut self, _: &Rows<'_>) -> Result<()> {
        Ok(())
    }
}

impl RowSink for Blackhole {}

/// Rows as Flink's `print` shows them: `+I[a, b]`.
struct Print {
    prefix: String,
}

impl Output for Print {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        let mut out = std::io::stdout().lock();
        for (kind, row) in rows.iter() {
            let texts: Vec<String> = row.iter().zip(rows.types()).map(|(value, ty)| value.text(ty)).collect();
            writeln!(out, "{}{kind}[{}]", self.prefix, texts.join(", "))
                .map_err(|error| Error::connector(format!("cannot print: {error}")))?;
        }
        Ok(())
    }
}

impl RowSink for Print {}

/// Files of a directory.
struct Files {
    parts: Parts,
    writing: Writing,
}

impl Output for Files {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.parts.write(self.writing.text(rows)?.as_bytes())
    }
}

impl RowSink for Files {
    fn end_part(&mut self) -> Result<(Value, Option<Box<dyn CommitParticipant>>)> {
        self.parts.end_part()
    }

    fn look(&mut self, _: &mut JobStore, claim: &Claim, strangers: &mut Strangers) -> Result<()> {
        self.parts.look(claim, strangers)
    }

    fn recover(&mut self, part: Option<&Value>, epoch: u64, _: &mut JobStore, claim: &Claim) -> Result<()> {
        self.parts.recover(part, epoch, claim)
    }
}
