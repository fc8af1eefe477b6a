//! The physical plan: pipelines of stateless steps, and the breakers between them. Breakers keep state and wait for
//! keys, windows or the other side of a join.
//!
//! A pipeline becomes one tight loop: it takes rows from a scan or a breaker and pushes each through its steps to its
//! ends. A breaker defines the keys by which threads exchange rows, its state, the layout of the records, and when
//! state is dropped.

use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::function::aggregate::Aggregate;
use crate::plan::{JoinKind, Node, NodeOp, RankKind, Sink, Window, WindowSource, explain, retention};
use crate::types::DataType;

/// The lifetime of state that nothing drops: there is no time to live.
const FOR_EVER: &str = "kept for ever";

/// A record: fields of fixed size by descending alignment, then a bit for each nullable field, then the fields of
/// variable size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Name, type, offset; `None` for a field in the tail.
    pub fields: Vec<(String, DataType, Option<usize>)>,
    /// Bytes before the tail.
    pub fixed_bytes: usize,
}

impl Layout {
    /// The layout of these fields; nullable ones have a bit.
    pub fn new(fields: Vec<(String, DataType, bool)>) -> Layout {
        let nullable = fields.iter().filter(|(_, _, nullable)| *nullable).count();
        let mut order: Vec<usize> =
            (0..fields.len()).filter(|field| fields[*field].1.fixed_bytes().is_some()).collect();
        let bytes = |field: usize| fields[field].1.fixed_bytes().unwrap_or(0);
        order.sort_by_key(|field| std::cmp::Reverse(bytes(*field)));
        let mut offsets = vec![None; fields.len()];
        let mut end = 0;
        // Sizes are descending powers of two, so every field is aligned to its size.
        for field in order {
            offsets[field] = Some(end);
            end += bytes(field);
        }
        let fields =
            fields.into_iter().zip(offsets).map(|((name, ty, _), offset)| (name, ty, offset)).collect();
        Layout { fields, fixed_bytes: end + nullable.div_ceil(8) }
    }

    /// Whether every record has the same length.
    pub fn is_fixed(&self) -> bool {
        self.fields.iter().all(|(_, _, offset)| offset.is_some())
    }

    fn of(node: &Node, columns: &[usize]) -> Layout {
        Layout::new(
            columns
                .iter()
                .map(|column| {
                    let field = &node.schema[*column];
                    (field.name.clone(), field.ty.data.clone(), field.ty.nullable)
                })
                .collect(),
        )
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<String> = self
            .fields
            .iter()
            .map(|(name, ty, offset)| match offset {
                Some(offset) => format!("{name} {ty} @{offset}"),
                None => format!("{name} {ty} in tail"),
            })
            .collect();
        let length = if self.is_fixed() { "" } else { " and tail" };
        write!(f, "{{{}}} {} B{length}", fields.join(", "), self.fixed_bytes)
    }
}

/// The state of a breaker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Its purpose.
    pub name: &'static str,
    /// The key of its records.
    pub key: Layout,
    /// The value of a record.
    pub value: Layout,
    /// Whether a key has a list of values.
    pub list: bool,
    /// How long it is kept.
    pub kept: &'static str,
}

/// Where pipelines end and begin.
#[derive(Debug, Clone)]
pub struct Breaker {
    /// The plan's node.
    pub node: Arc<Node>,
    /// Columns of each input that decide the thread.
    pub exchange: Vec<Vec<String>>,
    /// Its state.
    pub states: Vec<State>,
    /// The event that makes it emit.
    pub emits: &'static str,
}

/// The source of a pipeline's rows.
#[derive(Debug, Clone)]
pub enum Source {
    /// A scan or constants.
    Read(Arc<Node>),
    /// The breaker with this number.
    Breaker(usize),
}

/// The destination of a pipeline's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The input with this number of the breaker with this number.
    Breaker(usize, usize),
    /// A table.
    Sink(String),
}

/// Rows from one source through steps without state to one end.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// The source.
    pub source: Source,
    /// Filters, projections, lookups, copies into windows.
    pub steps: Vec<Arc<Node>>,
    /// The destination.
    pub end: End,
}

/// All pipelines and breakers of a job.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Pipelines; those with one source run in one loop over it.
    pub pipelines: Vec<Pipeline>,
    /// Breakers.
    pub breakers: Vec<Breaker>,
}

impl Graph {
    /// The graph of a job's plans.
    pub fn of(sinks: &[Sink]) -> Result<Graph> {
        let mut graph = Graph::default();
        for sink in sinks {
            graph.lead(&sink.input, Vec::new(), End::Sink(sink.table.name.clone()));
        }
        Ok(graph)
    }

    /// Adds the pipelines that bring a node's rows through `steps` (the last first) to `end`.
    fn lead(&mut self, node: &Arc<Node>, mut steps: Vec<Arc<Node>>, end: End) {
        match &node.op {
            NodeOp::Scan(_) | NodeOp::Values(..) => {
                steps.reverse();
                self.pipelines.push(Pipeline { source: Source::Read(node.clone()), steps, end });
            }
            NodeOp::Union(inputs) => {
                for input in inputs {
                    self.lead(input, steps.clone(), end.clone());
                }
            }
            NodeOp::Project { input, .. } | NodeOp::Filter { input, .. } | NodeOp::Lookup { input, .. } => {
                steps.push(node.clone());
                self.lead(input, steps, end);
            }
            NodeOp::Window { input, window, .. } if window.slice().is_some() => {
                steps.push(node.clone());
                self.lead(input, steps, end);
            }
            _ => {
                let known = self.breakers.iter().position(|breaker| Arc::ptr_eq(&breaker.node, node));
                let number = known.unwrap_or_else(|| {
                    self.breakers.push(breaker(node));
                    let number = self.breakers.len() - 1;
                    for (place, input) in node.inputs().into_iter().enumerate() {
                        self.lead(input, Vec::new(), End::Breaker(number, place));
                    }
                    number
                });
                steps.reverse();
                self.pipelines.push(Pipeline { source: Source::Breaker(number), steps, end });
            }
        }
    }
}

fn breaker(node: &Arc<Node>) -> Breaker {
    let name = |input: &Node, columns: &[usize]| -> Vec<String> {
        columns.iter().map(|column| input.schema[*column].name.clone()).collect()
    };
    let all = |input: &Node| Layout::of(input, &(0..input.schema.len()).collect::<Vec<_>>());
    let bound = |name: &str| (name.to_owned(), DataType::Timestamp(6), false);
    let keyed = |input: &Node, columns: &[usize], more: Vec<(String, DataType, bool)>| {
        let own = columns.iter().map(|column| {
            let field = &input.schema[*column];
            (field.name.clone(), field.ty.data.clone(), field.ty.nullable)
        });
        Layout::new(own.chain(more).collect())
    };
    let (exchange, states, emits) = match &node.op {
        NodeOp::WindowAggregate { input, window, source, keys, aggregates, .. } => {
            let more = match (source, window) {
                (_, Window::Session { .. }) => vec![bound("start"), bound("end")],
                (WindowSource::Assigned { .. }, _) => vec![bound("slice_end")],
                (WindowSource::Attached { .. }, _) => vec![bound("start"), bound("end")],
            };
            let what = match source {
                WindowSource::Assigned { slice: Some(_), .. } => "slices",
                _ => "windows",
            };
            let states = aggregate_states(
                what,
                input,
                &keyed(input, keys, more),
                aggregates,
                "dropped whole, when its last window closes",
            );
            (vec![name(input, keys)], states, "when a window closes")
        }
        NodeOp::Aggregate { input, keys, aggregates } => {
            let states =
                aggregate_states("groups", input, &keyed(input, keys, Vec::new()), aggregates, FOR_EVER);
            (vec![name(input, keys)], states, "with each row")
        }
        NodeOp::Join { left, right, kind, keys, residual } => {
            const PAST: &str = "dropped when the other side's time is past its bound";
            let (kept, emits) = match kind {
                JoinKind::Regular => {
                    let needed = retention::of_join(left, right, residual.as_ref());
                    let kept = |needed: Option<_>| if needed.is_some() { PAST } else { FOR_EVER };
                    (needed.map(kept), "with each row")
                }
                JoinKind::Interval { proctime: true, .. } => ([FOR_EVER; 2], "with each row"),
                JoinKind::Interval { .. } => ([PAST; 2], "with each row"),
                JoinKind::Window { .. } => {
                    (["dropped whole, when its window closes"; 2], "when a window closes")
                }
            };
            let side = |input: &Arc<Node>, exprs: Vec<&crate::expr::Expr>| {
                let fields = exprs.iter().enumerate().map(|(index, expr)| {
                    let text = expr.sql(&|column| input.schema[column].name.clone());
                    let _ = index;
                    (text, expr.ty().data.clone(), expr.ty().nullable)
                });
                let fields: Vec<_> = fields.collect();
                let names = fields.iter().map(|(name, ..)| name.clone()).collect::<Vec<_>>();
                (names, Layout::new(fields))
            };
            let (left_names, left_key) = side(left, keys.iter().map(|(a, _)| a).collect());
            let (right_names, right_key) = side(right, keys.iter().map(|(_, b)| b).collect());
            let states = vec![
                State { name: "left", key: left_key, value: all(left), list: true, kept: kept[0] },
                State { name: "right", key: right_key, value: all(right), list: true, kept: kept[1] },
            ];
            (vec![left_names, right_names], states, emits)
        }
        NodeOp::Rank { input, kind, partition, limit, .. } => {
            let (kept, emits) = match kind {
                RankKind::Window { .. } => ("dropped whole, when its window closes", "when a window closes"),
                _ => (FOR_EVER, "with each row"),
            };
            let state = State {
                name: "first rows",
                key: keyed(input, partition, Vec::new()),
                value: all(input),
                list: *limit != Some(1),
                kept,
            };
            (vec![name(input, partition)], vec![state], emits)
        }
        NodeOp::Window { input, partition, .. } => {
            let state = State {
                name: "sessions",
                key: keyed(input, partition, vec![bound("start"), bound("end")]),
                value: all(input),
                list: true,
                kept: "dropped whole, when its session closes",
            };
            (vec![name(input, partition)], vec![state], "when a window closes")
        }
        _ => (Vec::new(), Vec::new(), "with each row"),
    };
    Breaker { node: node.clone(), exchange, states, emits }
}

fn aggregate_states(
    name: &'static str,
    input: &Node,
    key: &Layout,
    aggregates: &[Aggregate],
    kept: &'static str,
) -> Vec<State> {
    let mut value = Vec::new();
    let mut states = Vec::new();
    for (index, aggregate) in aggregates.iter().enumerate() {
        let argument = aggregate.argument.map(|column| &input.schema[column].ty);
        // Aggregates over the same column share its values.
        let before = &aggregates[..index];
        if aggregate.distinct
            && before.iter().any(|other| other.distinct && other.argument == aggregate.argument)
        {
            continue;
        }
        let fields = if aggregate.distinct { None } else { aggregate.kind.state(argument, &aggregate.ty) };
        match (fields, argument) {
            (Some(fields), _) => {
                // Without a value yet the result is NULL; a count is zero.
                value.extend(
                    fields.into_iter().map(|(name, ty)| (format!("{name}{index}"), ty, name != "count")),
                );
            }
            (None, Some(argument)) => states.push(State {
                name: if aggregate.distinct { "distinct values" } else { "values" },
                key: key.clone(),
                value: Layout::new(vec![("value".to_owned(), argument.data.clone(), argument.nullable)]),
                list: true,
                kept,
            }),
            (None, None) => {}
        }
    }
    states.insert(0, State { name, key: key.clone(), value: Layout::new(value), list: false, kept });
    states
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, pipeline) in self.pipelines.iter().enumerate() {
            let source = match &pipeline.source {
                Source::Read(node) => match &node.op {
                    NodeOp::Scan(scan) => format!("scan of {}", scan.table.name),
                    _ => "constants".to_owned(),
                },
                Source::Breaker(breaker) => format!("breaker {breaker}"),
            };
            let end = match &pipeline.end {
                End::Sink(table) => format!("sink {table}"),
                End::Breaker(breaker, input) if self.breakers[*breaker].exchange.len() > 1 => {
                    format!("breaker {breaker}, side {input}")
                }
                End::Breaker(breaker, _) => format!("breaker {breaker}"),
            };
            writeln!(f, "pipeline {number}: {source} -> {end}")?;
            for step in &pipeline.steps {
                writeln!(f, "  {}", explain::line(step))?;
            }
        }
        for (number, breaker) in self.breakers.iter().enumerate() {
            writeln!(f, "breaker {number}: {}", explain::line(&breaker.node))?;
            let exchange: Vec<String> =
                breaker.exchange.iter().map(|names| format!("({})", names.join(", "))).collect();
            writeln!(f, "  exchange by {}; emits {}", exchange.join(" and "), breaker.emits)?;
            for state in &breaker.states {
                let list = if state.list { "list of " } else { "" };
                writeln!(
                    f,
                    "  state {}: {} -> {list}{}; {}",
                    state.name, state.key, state.value, state.kept
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_fields_are_aligned_and_nulls_have_bits() {
        let field = |name: &str, ty: DataType, nullable: bool| (name.to_owned(), ty, nullable);
        let layout = Layout::new(vec![
            field("a", DataType::Int, true),
            field("b", DataType::BigInt, false),
            field("c", DataType::STRING, true),
            field("d", DataType::Boolean, false),
        ]);
        assert_eq!(
            layout.to_string(),
            "{a INT @8, b BIGINT @0, c STRING in tail, d BOOLEAN @12} 14 B and tail"
        );
    }
}
