//! The changes that each node emits: only new rows, or also updates and deletes of earlier rows. They are derived from
//! the inputs upward, and checked at each consumer: an operator or sink that cannot take updates refuses them by name.

use std::fmt;

use super::{Node, NodeOp, RankKind, Sink};
use crate::catalog::SinkKind;
use crate::error::{Error, Result};
use crate::expr::Expr;

/// The kinds of changes of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changelog {
    /// Whether emitted rows are updated later.
    pub update: bool,
    /// Whether emitted rows are deleted later.
    pub delete: bool,
    /// Columns by which an update finds the row that it replaces; `None` if rows have no key.
    pub key: Option<Vec<usize>>,
}

/// One change of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKind {
    /// A new row.
    Insert,
    /// The row as it was before an update.
    UpdateBefore,
    /// The row as it is after an update.
    UpdateAfter,
    /// A deleted row.
    Delete,
}

impl RowKind {
    /// Whether the row counts after the change.
    pub fn adds(self) -> bool {
        matches!(self, RowKind::Insert | RowKind::UpdateAfter)
    }
}

impl fmt::Display for RowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RowKind::Insert => "+I",
            RowKind::UpdateBefore => "-U",
            RowKind::UpdateAfter => "+U",
            RowKind::Delete => "-D",
        })
    }
}

impl Changelog {
    const APPEND: Changelog = Changelog { update: false, delete: false, key: None };

    /// Whether no row changes.
    pub fn is_append(&self) -> bool {
        !self.update && !self.delete
    }

    /// Its text in EXPLAIN. `before` says whether the row before an update is emitted as well.
    pub fn text(&self, before: bool) -> String {
        let kinds = [(true, "I"), (self.update && before, "UB"), (self.update, "UA"), (self.delete, "D")];
        let kinds: Vec<&str> = kinds.iter().filter(|(there, _)| *there).map(|(_, name)| *name).collect();
        kinds.join(",")
    }
}

/// The changes that a node emits, or an error if a part of it cannot take its input's changes.
pub fn derive(node: &Node) -> Result<Changelog> {
    let append = |input: &Node, consumer: &str| {
        if derive(input)?.is_append() {
            return Ok(());
        }
        Err(Error::unsupported(format!("{consumer} over a changing stream (it would consume retractions)"))
            .hint("its input has updates, as from GROUP BY without windows or top-N; only streams of new rows are supported"))
    };
    Ok(match &node.op {
        NodeOp::Scan(_) | NodeOp::Values(..) => Changelog::APPEND,
        NodeOp::Project { input, columns } => {
            let Changelog { update, delete, key } = derive(input)?;
            let place = |column: &usize| {
                columns.iter().position(|(_, expr)| matches!(expr, Expr::Column(index, _) if index == column))
            };
            let key = key.and_then(|key| key.iter().map(place).collect());
            Changelog { update, delete, key }
        }
        NodeOp::Filter { input, .. } => {
            let changes = derive(input)?;
            // A row that no longer passes is deleted.
            Changelog { delete: changes.delete || changes.update, ..changes }
        }
        NodeOp::Window { input, .. } => {
            append(input, "a window")?;
            Changelog::APPEND
        }
        NodeOp::WindowAggregate { input, .. } => {
            append(input, "a window aggregate")?;
            Changelog::APPEND
        }
        NodeOp::Aggregate { input, keys, aggregates } => {
            append(input, "GROUP BY")?;
            // Without aggregates a group never changes after its first row.
            Changelog { update: !aggregates.is_empty(), delete: false, key: Some((0..keys.len()).collect()) }
        }
        NodeOp::Join { left, right, .. } => {
            append(left, "a join")?;
            append(right, "a join")?;
            Changelog::APPEND
        }
        NodeOp::Lookup { input, .. } => {
            append(input, "a lookup join")?;
            Changelog::APPEND
        }
        NodeOp::Rank { input, kind, partition, limit, number, .. } => {
            append(input, "ROW_NUMBER")?;
            let width = input.schema.len();
            match (kind, limit) {
                (RankKind::Window { .. }, _) | (RankKind::Deduplicate { last: false, proctime: true }, _) => {
                    Changelog::APPEND
                }
                (RankKind::Deduplicate { .. }, _) | (RankKind::TopN, Some(1)) => {
                    Changelog { update: true, delete: false, key: Some(partition.clone()) }
                }
                (RankKind::TopN, _) if *number => {
                    let key = partition.iter().copied().chain([width]).collect();
                    Changelog { update: true, delete: false, key: Some(key) }
                }
                (RankKind::TopN, None) => Changelog::APPEND,
                (RankKind::TopN, Some(_)) => Changelog { update: false, delete: true, key: None },
            }
        }
        NodeOp::Union(inputs) => {
            let mut all = Changelog::APPEND;
            for input in inputs {
                let changes = derive(input)?;
                all.update |= changes.update;
                all.delete |= changes.delete;
            }
            all
        }
    })
}

/// Checks that a sink can take its input's changes. Returns whether it is also given the row before each update.
pub fn check(sink: &Sink) -> Result<bool> {
    let changes = derive(&sink.input)?;
    let table = &sink.table;
    match table.connector.sink {
        _ if changes.is_append() => Ok(false),
        Some(SinkKind::Retract) => Ok(changes.update),
        Some(SinkKind::Upsert) if !table.primary_key.is_empty() => {
            // The input has the physical columns in order.
            let place = |column: &usize| table.physical.iter().position(|physical| physical == column);
            let mut wanted: Vec<usize> = table.primary_key.iter().filter_map(place).collect();
            wanted.sort_unstable();
            let mut key = changes.key.clone();
            if let Some(key) = &mut key {
                key.sort_unstable();
                key.dedup();
            }
            if key.as_ref() == Some(&wanted) {
                return Ok(false);
            }
            let names = |columns: &[usize]| {
                let names: Vec<&str> =
                    columns.iter().map(|column| sink.input.schema[*column].name.as_str()).collect();
                names.join(", ")
            };
            let found =
                key.map_or("rows without a key".to_owned(), |key| format!("updates by ({})", names(&key)));
            Err(Error::invalid(
                found,
                format!("updates by the primary key of `{}`: ({})", table.name, names(&wanted)),
            ))
        }
        Some(SinkKind::Upsert) => Err(Error::invalid(
            format!("updates for `{}`, which has no primary key", table.name),
            "PRIMARY KEY (...) NOT ENFORCED in its definition",
        )),
        Some(SinkKind::Append) | None => Err(Error::invalid(
            format!("updates ({}) for `{}`", changes.text(true), table.name),
            format!("only new rows, for connector '{}'", table.connector.name),
        )
        .hint("aggregate by windows, or use a sink with a primary key")),
    }
}
