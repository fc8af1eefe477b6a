//! `nexmark`: the events of the Nexmark benchmark.

pub mod generator;

use self::generator::Generator;
use crate::batch::Batch;
use crate::catalog::options::Kind::Number;
use crate::catalog::options::{IDLE, option};
use crate::catalog::{Connector, Table};
use crate::compile::Source;
use crate::connectors::datagen::number;
use crate::connectors::registration::Registration;
use crate::error::{Error, Result};
use crate::run::row_source::{RowSource, place};
use crate::types::Row;

/// What it declares.
const CONNECTOR: Connector = Connector {
    name: "nexmark",
    purpose: "Generates the events of the Nexmark benchmark. The table's name says which: `person`, `auction` or \
        `bid`.",
    example: "CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT) WITH (
  'connector' = 'nexmark',
  'events' = '1000000')",
    options: &[
        option("events", Number, "(no end)", "the number of events of the whole stream"),
        option("seed", Number, "1", "the seed of random values"),
        IDLE,
    ],
    source: true,
    sink: None,
    lookup: false,
    format: false,
    written: None,
};

/// Its place in the registry.
pub const REGISTRATION: Registration = Registration::new(
    &CONNECTOR,
    Some(|table, source, _| Ok(Box::new(Nexmark::new(table, source)?))),
    None,
    None,
);

/// One of Nexmark's tables. `events` is the number of events of the whole stream, of which only this table's are taken.
pub struct Nexmark {
    generator: Generator,
    table: String,
    reads: Vec<usize>,
    next: u64,
    events: u64,
}

impl Nexmark {
    /// The columns that `source` wants.
    pub fn new(table: &Table, source: &Source) -> Result<Nexmark> {
        let Some(columns) = generator::columns(&table.name) else {
            return Err(Error::invalid(
                format!("the table `{}` of connector 'nexmark'", table.name),
                "person, auction or bid",
            ));
        };
        let place = |read: &usize| {
            let name = &table.columns[table.physical[*read]].name;
            columns.iter().position(|column| column == name).ok_or_else(|| {
                Error::invalid(format!("column `{name}` of `{}`", table.name), columns.join(", "))
            })
        };
        let reads: Result<Vec<usize>> = source.reads.iter().map(place).collect();
        Ok(Nexmark {
            generator: Generator::new(number(table, "seed")?.unwrap_or(1)),
            table: table.name.clone(),
            reads: reads?,
            next: 0,
            events: number(table, "events")?.unwrap_or(u64::MAX),
        })
    }
}

impl RowSource for Nexmark {
    fn ends(&self) -> bool {
        self.events < u64::MAX
    }

    fn read_rows(&mut self, batch: &mut Batch, rows: usize) -> Result<bool> {
        // Counts events, not rows, so that the times of all tables advance together.
        let end = self.events.min(self.next + rows as u64);
        for number in self.next..end {
            let event = self.generator.event(number);
            if event.table == self.table {
                let row: Row = self.reads.iter().map(|read| event.row[*read].clone()).collect();
                batch.push(&row)?;
            }
        }
        self.next = end;
        Ok(self.next < self.events)
    }

    fn position(&self) -> serde_json::Value {
        serde_json::json!({ "events": self.next })
    }

    fn seek(&mut self, position: &serde_json::Value) -> Result<()> {
        self.next = place(position, "events")?;
        Ok(())
    }
}
