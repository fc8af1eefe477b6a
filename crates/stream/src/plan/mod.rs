//! The logical plan: what a query computes, typed, but not how.
//!
//! A plan is a tree of immutable [`Node`]s; a rule makes new ones. If two parents point to one node (rule `share`), it
//! is computed once. [`bind`] makes plans. [`changelog`] derives the changes that each node emits. [`rules`] improve
//! plans in a fixed order. [`explain`] prints plans. [`partition`] decides how rows are routed to threads, and
//! [`retention`] how long joins keep them.

pub mod bind;
pub mod changelog;
pub mod explain;
pub mod partition;
pub mod physical;
pub mod reference;
pub mod retention;
pub mod rules;

use std::collections::HashSet;
use std::sync::Arc;

use crate::catalog::Table;
use crate::expr::Expr;
use crate::function::aggregate::Aggregate;
pub use crate::types::TimeAttribute;
use crate::types::time::MILLI_MICROS;
use crate::types::{DataType, Type, Value};

/// A column of a node's rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// Whether it is a time attribute.
    pub time: Option<TimeAttribute>,
}

/// Windows by time. All lengths in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Window {
    Tumble { size: i64, offset: i64 },
    Hop { slide: i64, size: i64, offset: i64 },
    Cumulate { step: i64, size: i64, offset: i64 },
    Session { gap: i64 },
}

impl Window {
    /// The windows [start, end) that contain a time, the earliest start first; for a session the window that a single
    /// row opens.
    pub fn assign(self, moment: i64) -> Vec<(i64, i64)> {
        // 2^60 us: 36,000 years. Times beyond that share the last window, and no sum below exceeds 64 bits.
        let moment = moment.clamp(-(1 << 60), 1 << 60);
        match self {
            Window::Tumble { size, offset } => {
                let start = (moment - offset).div_euclid(size) * size + offset;
                vec![(start, start + size)]
            }
            Window::Hop { slide, size, offset } => {
                let last = (moment - offset).div_euclid(slide) * slide + offset;
                let starts = (0..size / slide).rev().map(|back| last - back * slide);
                starts.filter(|start| start + size > moment).map(|start| (start, start + size)).collect()
            }
            Window::Cumulate { step, size, offset } => {
                let start = (moment - offset).div_euclid(size) * size + offset;
                let ends = (1..=size / step).map(|count| start + count * step);
                ends.filter(|end| *end > moment).map(|end| (start, end)).collect()
            }
            Window::Session { gap } => vec![(moment, moment + gap)],
        }
    }

    /// The greatest width of slices that divides every window of this kind; `None` for sessions.
    pub fn slice(self) -> Option<i64> {
        match self {
            Window::Tumble { size, .. } => Some(size),
            Window::Hop { slide, .. } => Some(slide),
            Window::Cumulate { step, .. } => Some(step),
            Window::Session { .. } => None,
        }
    }

    /// The offset of the slices' boundaries.
    pub fn offset(self) -> i64 {
        match self {
            Window::Tumble { offset, .. } | Window::Hop { offset, .. } | Window::Cumulate { offset, .. } => {
                offset
            }
            Window::Session { .. } => 0,
        }
    }
}

/// The columns of a node that say in which window a row is.
#[derive(Debug, Clone, PartialEq)]
pub struct Windowed {
    /// The windows.
    pub window: Window,
    /// Whether they use processing time.
    pub proctime: bool,
    /// The column of the window's start, if the node has it.
    pub start: Option<usize>,
    /// The column of the window's end.
    pub end: Option<usize>,
    /// The column of the window's last timestamp as a time attribute.
    pub time: Option<usize>,
}

/// A table as it is read: physical columns, computed columns, watermark and filter.
///
/// A row of the connector has the columns `reads`. First it advances the watermark, then `filter` keeps or drops it,
/// and then it becomes the row of `columns`. So a row that the filter drops also advances the watermark.
#[derive(Debug, Clone, PartialEq)]
pub struct Scan {
    /// The table.
    pub table: Arc<Table>,
    /// Indexes of the table's physical columns that are decoded.
    pub reads: Vec<usize>,
    /// Its output columns, over `reads`.
    pub columns: Vec<(Field, Expr)>,
    /// The watermark expression, over `reads`.
    pub watermark: Option<Expr>,
    /// The filter, over `reads`.
    pub filter: Option<Expr>,
}

/// How the rows of an aggregate get their windows.
#[derive(Debug, Clone, PartialEq)]
pub enum WindowSource {
    /// Each row has its window in columns.
    Attached {
        /// Columns of start and end in the input.
        start: usize,
        /// As above.
        end: usize,
    },
    /// Each row has its time; rows are aggregated into slices of this width, and windows are merged from slices.
    Assigned {
        /// The column of the time.
        time: usize,
        /// Width of a slice in microseconds; `None` for sessions.
        slice: Option<i64>,
    },
}

/// A column to sort by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortKey {
    /// The column.
    pub column: usize,
    /// Descending.
    pub descending: bool,
    /// NULLS FIRST.
    pub nulls_first: bool,
}

impl SortKey {
    /// Order of two rows by several keys.
    pub fn order(keys: &[SortKey], a: &[Value], b: &[Value]) -> std::cmp::Ordering {
        use std::cmp::Ordering;
        for key in keys {
            let (x, y) = (&a[key.column], &b[key.column]);
            let order = match (x.is_null(), y.is_null()) {
                (true, true) => Ordering::Equal,
                (true, false) => {
                    if key.nulls_first {
                        Ordering::Less
                    } else {
                        Ordering::Greater
                    }
                }
                (false, true) => {
                    if key.nulls_first {
                        Ordering::Greater
                    } else {
                        Ordering::Less
                    }
                }
                (false, false) => {
                    let order = x.order(y);
                    if key.descending { order.reverse() } else { order }
                }
            };
            if order != Ordering::Equal {
                return order;
            }
        }
        Ordering::Equal
    }
}

/// How the two sides of a join are matched.
#[derive(Debug, Clone, PartialEq)]
pub enum JoinKind {
    /// Every row of one side is kept for the rows of the other, without limit.
    Regular,
    /// right time + lower <= left time <= right time + upper.
    Interval {
        /// Columns of time in the left and the right input.
        left: usize,
        /// As above.
        right: usize,
        /// Microseconds.
        lower: i64,
        /// Microseconds.
        upper: i64,
        /// Whether the times are processing times.
        proctime: bool,
    },
    /// Rows of the same window.
    Window {
        /// Columns of start and end, left.
        left: (usize, usize),
        /// Columns of start and end, right.
        right: (usize, usize),
        /// Whether the windows use processing time.
        proctime: bool,
    },
}

/// How a rank is computed and emitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankKind {
    /// The first N rows by any order, updated as rows come.
    TopN,
    /// One row by time: the first or the last.
    Deduplicate {
        /// The last instead of the first.
        last: bool,
        /// Whether the time is processing time.
        proctime: bool,
    },
    /// The first N rows of each window, emitted once, when it closes.
    Window {
        /// The last row by time instead; of two rows with the same time the later one.
        last: bool,
        /// Columns of start and end.
        start: usize,
        /// As above.
        end: usize,
        /// Whether the windows use processing time.
        proctime: bool,
    },
}

/// The operation of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeOp {
    /// Reads a table.
    Scan(Scan),
    /// Constant rows.
    Values(Vec<Field>, Vec<Vec<Expr>>),
    /// Computes columns.
    Project {
        /// Rows.
        input: Arc<Node>,
        /// Names and expressions.
        columns: Vec<(String, Expr)>,
    },
    /// Keeps rows for which the predicate is TRUE.
    Filter {
        /// Rows.
        input: Arc<Node>,
        /// The predicate.
        predicate: Expr,
    },
    /// Copies each row into each of its windows; adds window_start, window_end, window_time.
    Window {
        /// Rows.
        input: Arc<Node>,
        /// Windows.
        window: Window,
        /// The column of the time.
        time: usize,
        /// For sessions: the columns that separate them.
        partition: Vec<usize>,
    },
    /// One row for each key and window, emitted when the window closes: keys, aggregates, start, end, time.
    WindowAggregate {
        /// Rows.
        input: Arc<Node>,
        /// Windows.
        window: Window,
        /// Whether they use processing time.
        proctime: bool,
        /// How rows get their windows.
        source: WindowSource,
        /// Columns of the key.
        keys: Vec<usize>,
        /// The aggregates.
        aggregates: Vec<Aggregate>,
    },
    /// One row for each key, updated with each row: keys, aggregates.
    Aggregate {
        /// Rows.
        input: Arc<Node>,
        /// Columns of the key.
        keys: Vec<usize>,
        /// The aggregates.
        aggregates: Vec<Aggregate>,
    },
    /// Inner join: columns of the left, then of the right.
    Join {
        /// Left rows.
        left: Arc<Node>,
        /// Right rows.
        right: Arc<Node>,
        /// How they are matched.
        kind: JoinKind,
        /// Pairs of expressions over a left and over a right row that must be equal.
        keys: Vec<(Expr, Expr)>,
        /// The remaining condition, over both rows.
        residual: Option<Expr>,
    },
    /// Looks rows up in the current version of a table: columns of the input, then of the table.
    Lookup {
        /// Rows.
        input: Arc<Node>,
        /// The table.
        table: Arc<Table>,
        /// Columns of the table in the output.
        columns: Vec<usize>,
        /// Column of the table, and expression over the input's row.
        keys: Vec<(usize, Expr)>,
        /// The remaining condition, over the input's row and all output columns.
        residual: Option<Expr>,
        /// Whether a row without a match is kept, with NULLs.
        outer: bool,
    },
    /// Numbers rows in each partition by an order, from 1, and keeps the first ones. The number becomes the last column
    /// if it is wanted.
    Rank {
        /// Rows.
        input: Arc<Node>,
        /// The kind of rank.
        kind: RankKind,
        /// Columns of the partition.
        partition: Vec<usize>,
        /// The order.
        order: Vec<SortKey>,
        /// Number of rows to keep; all if `None`.
        limit: Option<u64>,
        /// Whether the number is a column.
        number: bool,
    },
    /// All rows of all inputs.
    Union(Vec<Arc<Node>>),
}

/// A node of a plan, with its derived properties.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its operation.
    pub op: NodeOp,
    /// Its columns.
    pub schema: Vec<Field>,
    /// The windows of its rows, if they have any.
    pub windowed: Option<Windowed>,
}

/// The destination of a plan's rows.
#[derive(Debug, Clone)]
pub struct Sink {
    /// The table.
    pub table: Arc<Table>,
    /// The plan of its rows: the table's columns in order.
    pub input: Arc<Node>,
}

impl Field {
    /// The same field, but not a time attribute.
    fn plain(&self) -> Field {
        Field { time: None, ..self.clone() }
    }
}

impl Sink {
    /// The tables that it reads or looks up.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        fn walk(node: &Arc<Node>, seen: &mut HashSet<usize>, found: &mut Vec<Arc<Table>>) {
            if !seen.insert(Arc::as_ptr(node) as usize) {
                return;
            }
            match &node.op {
                NodeOp::Scan(scan) => found.push(scan.table.clone()),
                NodeOp::Lookup { table, .. } => found.push(table.clone()),
                _ => {}
            }
            node.inputs().into_iter().for_each(|input| walk(input, seen, found));
        }
        let mut found = Vec::new();
        walk(&self.input, &mut HashSet::new(), &mut found);
        found
    }
}

impl Node {
    /// A node; its columns are derived.
    pub fn new(op: NodeOp) -> Arc<Node> {
        let schema = schema(&op);
        let windowed = windowed(&op);
        Arc::new(Node { op, schema, windowed })
    }

    /// Its inputs.
    pub fn inputs(&self) -> Vec<&Arc<Node>> {
        match &self.op {
            NodeOp::Scan(_) | NodeOp::Values(..) => Vec::new(),
            NodeOp::Project { input, .. }
            | NodeOp::Filter { input, .. }
            | NodeOp::Window { input, .. }
            | NodeOp::WindowAggregate { input, .. }
            | NodeOp::Aggregate { input, .. }
            | NodeOp::Lookup { input, .. }
            | NodeOp::Rank { input, .. } => vec![input],
            NodeOp::Join { left, right, .. } => vec![left, right],
            NodeOp::Union(inputs) => inputs.iter().collect(),
        }
    }

    /// The same with each input replaced. The new inputs have the same columns.
    pub fn map_inputs(self: &Arc<Node>, map: &mut dyn FnMut(&Arc<Node>) -> Arc<Node>) -> Arc<Node> {
        let mut op = self.op.clone();
        match &mut op {
            NodeOp::Scan(_) | NodeOp::Values(..) => return self.clone(),
            NodeOp::Project { input, .. }
            | NodeOp::Filter { input, .. }
            | NodeOp::Window { input, .. }
            | NodeOp::WindowAggregate { input, .. }
            | NodeOp::Aggregate { input, .. }
            | NodeOp::Lookup { input, .. }
            | NodeOp::Rank { input, .. } => *input = map(input),
            NodeOp::Join { left, right, .. } => {
                *left = map(left);
                *right = map(right);
            }
            NodeOp::Union(inputs) => {
                for input in inputs {
                    *input = map(input);
                }
            }
        }
        Node::new(op)
    }

    /// The same plan with `map` applied to every node, inputs first.
    pub fn rewrite(self: &Arc<Node>, map: &dyn Fn(Arc<Node>) -> Arc<Node>) -> Arc<Node> {
        map(self.map_inputs(&mut |input| input.rewrite(map)))
    }

    /// A column as an expression.
    pub fn column(&self, index: usize) -> Expr {
        Expr::Column(index, self.schema[index].ty.clone())
    }

    /// All columns, unchanged.
    pub fn columns(&self) -> Vec<(String, Expr)> {
        (0..self.schema.len()).map(|index| (self.schema[index].name.clone(), self.column(index))).collect()
    }
}

fn schema(op: &NodeOp) -> Vec<Field> {
    match op {
        NodeOp::Scan(scan) => scan.columns.iter().map(|(field, _)| field.clone()).collect(),
        NodeOp::Values(fields, _) => fields.clone(),
        NodeOp::Filter { input, .. } => input.schema.clone(),
        NodeOp::Project { input, columns } => columns
            .iter()
            .map(|(name, expr)| {
                let time = match expr {
                    Expr::Column(index, _) => input.schema[*index].time,
                    Expr::Call(function, ..) if function.name == "PROCTIME" => Some(TimeAttribute::Proctime),
                    _ => None,
                };
                Field { name: name.clone(), ty: expr.ty().clone(), time }
            })
            .collect(),
        NodeOp::Window { input, time, .. } => {
            input.schema.iter().cloned().chain(window_fields(&input.schema[*time])).collect()
        }
        NodeOp::WindowAggregate { input, proctime, source, keys, aggregates, .. } => {
            let time = match source {
                // The type of the time that made the windows is not among the attached columns; the zone is UTC in any
                // case.
                WindowSource::Attached { .. } => Field {
                    name: String::new(),
                    ty: Type::not_null(DataType::Timestamp(3)),
                    time: Some(if *proctime { TimeAttribute::Proctime } else { TimeAttribute::Rowtime }),
                },
                WindowSource::Assigned { time, .. } => {
                    Field { ty: Type::not_null(DataType::Timestamp(3)), ..input.schema[*time].clone() }
                }
            };
            aggregated(input, keys, aggregates).chain(window_fields(&time)).collect()
        }
        NodeOp::Aggregate { input, keys, aggregates } => aggregated(input, keys, aggregates).collect(),
        NodeOp::Join { left, right, kind, .. } => {
            let both = left.schema.iter().chain(&right.schema);
            match kind {
                // A row may come arbitrarily late, so its times are not time attributes.
                JoinKind::Regular => both.map(Field::plain).collect(),
                JoinKind::Interval { .. } | JoinKind::Window { .. } => both.cloned().collect(),
            }
        }
        NodeOp::Lookup { input, table, columns, outer, .. } => {
            let looked_up = columns.iter().map(|index| {
                let column = &table.columns[*index];
                Field { name: column.name.clone(), ty: column.ty.clone().or_null(*outer), time: None }
            });
            input.schema.iter().cloned().chain(looked_up).collect()
        }
        NodeOp::Rank { input, kind, number, .. } => {
            let keeps = matches!(
                kind,
                RankKind::Window { .. } | RankKind::Deduplicate { proctime: true, last: false }
            );
            let fields = input.schema.iter().map(|field| if keeps { field.clone() } else { field.plain() });
            let number = number.then(|| Field {
                name: "row_number".to_owned(),
                ty: Type::not_null(DataType::BigInt),
                time: None,
            });
            fields.chain(number).collect()
        }
        NodeOp::Union(inputs) => {
            let first = inputs.first().map(|input| input.schema.clone()).unwrap_or_default();
            first
                .into_iter()
                .enumerate()
                .map(|(index, field)| {
                    let all = inputs.iter().all(|input| input.schema[index].time == field.time);
                    let nullable = inputs.iter().any(|input| input.schema[index].ty.nullable);
                    Field {
                        time: if all { field.time } else { None },
                        ty: Type { nullable, ..field.ty },
                        ..field
                    }
                })
                .collect()
        }
    }
}

fn aggregated<'a>(
    input: &'a Node,
    keys: &'a [usize],
    aggregates: &'a [Aggregate],
) -> impl Iterator<Item = Field> + 'a {
    let name = |column: usize| input.schema[column].name.clone();
    let keys = keys.iter().map(|key| input.schema[*key].plain());
    let results = aggregates.iter().map(move |aggregate| Field {
        name: aggregate.text(&name),
        ty: aggregate.ty.clone(),
        time: None,
    });
    keys.chain(results)
}

fn window_fields(time: &Field) -> [Field; 3] {
    let bound =
        |name: &str| Field { name: name.to_owned(), ty: Type::not_null(DataType::Timestamp(3)), time: None };
    let last = Field {
        name: "window_time".to_owned(),
        ty: Type::not_null(match time.ty.data {
            DataType::TimestampLtz(_) => DataType::TimestampLtz(3),
            _ => DataType::Timestamp(3),
        }),
        time: time.time,
    };
    [bound("window_start"), bound("window_end"), last]
}

/// The last timestamp of a window as its time attribute: a millisecond before its end.
pub fn window_time(end: i64) -> i64 {
    end - MILLI_MICROS
}

fn windowed(op: &NodeOp) -> Option<Windowed> {
    match op {
        NodeOp::Window { input, window, time, .. } => {
            let first = input.schema.len();
            Some(Windowed {
                window: *window,
                proctime: input.schema[*time].time == Some(TimeAttribute::Proctime),
                start: Some(first),
                end: Some(first + 1),
                time: Some(first + 2),
            })
        }
        NodeOp::WindowAggregate { window, proctime, keys, aggregates, .. } => {
            let first = keys.len() + aggregates.len();
            Some(Windowed {
                window: *window,
                proctime: *proctime,
                start: Some(first),
                end: Some(first + 1),
                time: Some(first + 2),
            })
        }
        NodeOp::Filter { input, .. } => input.windowed.clone(),
        NodeOp::Rank { input, kind: RankKind::Window { .. }, .. } => input.windowed.clone(),
        NodeOp::Lookup { input, .. } => input.windowed.clone(),
        NodeOp::Join { left, kind: JoinKind::Window { .. }, .. } => left.windowed.clone(),
        NodeOp::Project { input, columns } => {
            let windowed = input.windowed.as_ref()?;
            let place = |column: Option<usize>| {
                let column = column?;
                columns
                    .iter()
                    .position(|(_, expr)| matches!(expr, Expr::Column(index, _) if *index == column))
            };
            let mapped = Windowed {
                start: place(windowed.start),
                end: place(windowed.end),
                time: place(windowed.time),
                ..windowed.clone()
            };
            Some(mapped)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_within_its_windows_and_windows_consist_of_slices() {
        let windows = [
            Window::Tumble { size: 10, offset: 3 },
            Window::Hop { slide: 2, size: 10, offset: 1 },
            Window::Cumulate { step: 5, size: 20, offset: 0 },
        ];
        for window in windows {
            let slice = window.slice().unwrap();
            for moment in -50..50 {
                let assigned = window.assign(moment);
                assert!(!assigned.is_empty());
                for (start, end) in assigned {
                    assert!(start <= moment && moment < end, "{window:?} {moment}");
                    assert_eq!((start - window.offset()).rem_euclid(slice), 0);
                    assert_eq!((end - window.offset()).rem_euclid(slice), 0);
                }
            }
        }
        assert_eq!(windows[1].assign(0).len(), 5);
        assert_eq!(windows[2].assign(7), [(0, 10), (0, 15), (0, 20)]);
    }
}
