//! Plans as text: one line for each node, its inputs indented below it. A node with several readers is written at its
//! first reader; the others refer to it by number.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{JoinKind, Node, NodeOp, RankKind, Scan, Sink, SortKey, Window, WindowSource, changelog};
use crate::expr::Expr;

/// A plan without sinks.
pub fn plan(node: &Arc<Node>) -> String {
    Printer::new(std::slice::from_ref(node)).tree(node, 0, false)
}

/// The plans of a job.
pub fn job(sinks: &[Sink]) -> String {
    let roots: Vec<Arc<Node>> = sinks.iter().map(|sink| sink.input.clone()).collect();
    let mut printer = Printer::new(&roots);
    let mut text = String::new();
    for sink in sinks {
        let before = changelog::check(sink).unwrap_or(false);
        let kinds = changelog::derive(&sink.input).map(|changes| changes.text(before)).unwrap_or_default();
        text.push_str(&format!(
            "Sink(table=[{}], connector=[{}], changelog=[{kinds}])\n",
            sink.table.name, sink.table.connector.name
        ));
        text.push_str(&printer.tree(&sink.input, 1, before));
    }
    text
}

struct Printer {
    /// Nodes with several readers, by address: the number of each, and whether it was written already.
    shared: HashMap<usize, (usize, bool)>,
}

impl Printer {
    fn new(roots: &[Arc<Node>]) -> Self {
        let (mut seen, mut shared) = (HashSet::new(), HashMap::new());
        fn walk(node: &Arc<Node>, seen: &mut HashSet<usize>, shared: &mut HashMap<usize, (usize, bool)>) {
            let address = Arc::as_ptr(node).addr();
            if !seen.insert(address) {
                let number = shared.len() + 1;
                shared.entry(address).or_insert((number, false));
                return;
            }
            for input in node.inputs() {
                walk(input, seen, shared);
            }
        }
        for root in roots {
            walk(root, &mut seen, &mut shared);
        }
        Printer { shared }
    }

    fn tree(&mut self, node: &Arc<Node>, depth: usize, before: bool) -> String {
        let indent = "  ".repeat(depth);
        let mut name = String::new();
        if let Some((number, is_written)) = self.shared.get_mut(&Arc::as_ptr(node).addr()) {
            if *is_written {
                return format!("{indent}Reused(id=[{number}])\n");
            }
            *is_written = true;
            name = format!(" id=[{number}]");
        }
        let changes = match changelog::derive(node) {
            Ok(changes) if !changes.is_append() => format!(" changelog=[{}]", changes.text(before)),
            _ => String::new(),
        };
        let mut text = format!("{indent}{}{changes}{name}\n", line(node));
        for input in node.inputs() {
            text.push_str(&self.tree(input, depth + 1, before));
        }
        text
    }
}

fn names(node: &Node, columns: &[usize]) -> String {
    columns.iter().map(|column| node.schema[*column].name.clone()).collect::<Vec<_>>().join(", ")
}

fn named(columns: impl Iterator<Item = (String, String)>) -> String {
    columns
        .map(|(name, text)| if name == text { name } else { format!("{name}={text}") })
        .collect::<Vec<_>>()
        .join(", ")
}

/// A length of time in the largest unit that divides it.
pub fn duration(micros: i64) -> String {
    let units =
        [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1000, "ms")];
    match units.iter().find(|(unit, _)| micros % unit == 0) {
        _ if micros == 0 => "0 s".to_owned(),
        Some((unit, name)) => format!("{} {name}", micros / unit),
        None => format!("{micros} us"),
    }
}

/// A kind of window as text.
pub fn window(window: &Window) -> String {
    let text = match window {
        Window::Tumble { size, .. } => format!("TUMBLE(size=[{}]", duration(*size)),
        Window::Hop { slide, size, .. } => {
            format!("HOP(slide=[{}], size=[{}]", duration(*slide), duration(*size))
        }
        Window::Cumulate { step, size, .. } => {
            format!("CUMULATE(step=[{}], size=[{}]", duration(*step), duration(*size))
        }
        Window::Session { gap } => format!("SESSION(gap=[{}]", duration(*gap)),
    };
    match window.offset() {
        0 => format!("{text})"),
        offset => format!("{text}, offset=[{}])", duration(offset)),
    }
}

fn order(node: &Node, keys: &[SortKey]) -> String {
    let key = |key: &SortKey| {
        let nulls = if key.nulls_first == key.descending {
            if key.nulls_first { " NULLS FIRST" } else { " NULLS LAST" }
        } else {
            ""
        };
        format!("{}{}{nulls}", node.schema[key.column].name, if key.descending { " DESC" } else { "" })
    };
    keys.iter().map(key).collect::<Vec<_>>().join(", ")
}

fn clock(proctime: bool) -> &'static str {
    if proctime { "proctime" } else { "rowtime" }
}

/// The node's own line.
pub fn line(node: &Node) -> String {
    let over = |input: &Node, expr: &Expr| expr.sql(&|column| input.schema[column].name.clone());
    match &node.op {
        NodeOp::Scan(scan) => scan_line(scan),
        NodeOp::Values(_, rows) => {
            let rows = rows.iter().map(|row| {
                let values: Vec<String> = row.iter().map(|expr| expr.sql(&|_| String::new())).collect();
                format!("({})", values.join(", "))
            });
            format!("Values(rows=[{}])", rows.collect::<Vec<_>>().join(", "))
        }
        NodeOp::Project { input, columns } => {
            let columns = columns.iter().map(|(name, expr)| (name.clone(), over(input, expr)));
            format!("Project(columns=[{}])", named(columns))
        }
        NodeOp::Filter { input, predicate } => format!("Filter(where=[{}])", over(input, predicate)),
        NodeOp::Window { input, window: kind, time, partition } => {
            let mut text = format!("Window(window=[{}], time=[{}]", window(kind), input.schema[*time].name);
            if !partition.is_empty() {
                text.push_str(&format!(", partition=[{}]", names(input, partition)));
            }
            text + ")"
        }
        NodeOp::WindowAggregate { input, window: kind, source, keys, aggregates, .. } => {
            let name = |column: usize| input.schema[column].name.clone();
            let aggregates: Vec<String> = aggregates.iter().map(|aggregate| aggregate.text(&name)).collect();
            let source = match source {
                WindowSource::Attached { start, end } => {
                    format!("attached=[{}, {}]", name(*start), name(*end))
                }
                WindowSource::Assigned { slice: Some(slice), time } => {
                    format!("slice=[{}], time=[{}]", duration(*slice), name(*time))
                }
                WindowSource::Assigned { slice: None, time } => format!("time=[{}]", name(*time)),
            };
            format!(
                "WindowAggregate(keys=[{}], aggregates=[{}], window=[{}], {source})",
                names(input, keys),
                aggregates.join(", "),
                window(kind)
            )
        }
        NodeOp::Aggregate { input, keys, aggregates } => {
            let name = |column: usize| input.schema[column].name.clone();
            let aggregates: Vec<String> = aggregates.iter().map(|aggregate| aggregate.text(&name)).collect();
            format!("Aggregate(keys=[{}], aggregates=[{}])", names(input, keys), aggregates.join(", "))
        }
        NodeOp::Join { left, right, kind, keys, residual } => {
            let keys: Vec<String> =
                keys.iter().map(|(a, b)| format!("{} = {}", over(left, a), over(right, b))).collect();
            let (name, more) = match kind {
                JoinKind::Regular => ("Join", String::new()),
                JoinKind::Interval { left: a, right: b, lower, upper, proctime } => (
                    "IntervalJoin",
                    format!(
                        ", by=[{}], bounds=[{} - {} in {} to {}]",
                        clock(*proctime),
                        left.schema[*a].name,
                        right.schema[*b].name,
                        duration(*lower),
                        duration(*upper)
                    ),
                ),
                JoinKind::Window { proctime, .. } => ("WindowJoin", format!(", by=[{}]", clock(*proctime))),
            };
            let residual =
                residual.as_ref().map_or(String::new(), |expr| format!(", where=[{}]", over(node, expr)));
            format!("{name}(on=[{}]{more}{residual})", keys.join(" AND "))
        }
        NodeOp::Lookup { input, table, columns, keys, residual, outer } => {
            let keys: Vec<String> = keys
                .iter()
                .map(|(column, expr)| format!("{} = {}", table.columns[*column].name, over(input, expr)))
                .collect();
            let columns: Vec<&str> =
                columns.iter().map(|column| table.columns[*column].name.as_str()).collect();
            let residual =
                residual.as_ref().map_or(String::new(), |expr| format!(", where=[{}]", over(node, expr)));
            let kind = if *outer { "left" } else { "inner" };
            format!(
                "Lookup(table=[{}], kind=[{kind}], on=[{}], columns=[{}]{residual})",
                table.name,
                keys.join(" AND "),
                columns.join(", ")
            )
        }
        NodeOp::Rank { input, kind, partition, order: keys, limit, number } => {
            let mut text = match kind {
                RankKind::TopN => "TopN(".to_owned(),
                RankKind::Deduplicate { last, proctime } => {
                    format!(
                        "Deduplicate(keep=[{}], by=[{}], ",
                        if *last { "last" } else { "first" },
                        clock(*proctime)
                    )
                }
                RankKind::Window { proctime, .. } => format!("WindowTopN(by=[{}], ", clock(*proctime)),
            };
            text.push_str(&format!(
                "partition=[{}], order=[{}]",
                names(input, partition),
                order(input, keys)
            ));
            if let Some(limit) = limit {
                text.push_str(&format!(", limit=[{limit}]"));
            }
            if *number {
                text.push_str(", number=[row_number]");
            }
            text + ")"
        }
        NodeOp::Union(inputs) => format!("Union(inputs=[{}])", inputs.len()),
    }
}

fn scan_line(scan: &Scan) -> String {
    let read = |column: usize| scan.table.columns[scan.table.physical[scan.reads[column]]].name.clone();
    let reads: Vec<String> = (0..scan.reads.len()).map(read).collect();
    let columns = scan.columns.iter().map(|(field, expr)| (field.name.clone(), expr.sql(&read)));
    let mut text = format!(
        "Scan(table=[{}], reads=[{}], columns=[{}]",
        scan.table.name,
        reads.join(", "),
        named(columns)
    );
    if let Some(watermark) = &scan.watermark {
        text.push_str(&format!(", watermark=[{}]", watermark.sql(&read)));
    }
    if let Some(filter) = &scan.filter {
        text.push_str(&format!(", filter=[{}]", filter.sql(&read)));
    }
    text + ")"
}
