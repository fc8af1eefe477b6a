//! Computes common parts of a job once: each table is read once, and equal parts of plans become one node with several
//! readers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::expr::Expr;
use crate::plan::{Node, NodeOp, Scan, explain};

/// The nodes made so far, by their line in EXPLAIN and their inputs, which are nodes made so far too: equal nodes have
/// the same key.
type Known = HashMap<(String, Vec<usize>), Vec<Arc<Node>>>;

/// The plans with shared scans and shared parts.
pub(super) fn apply(plans: &[Arc<Node>]) -> Vec<Arc<Node>> {
    let plans = share_scans(plans);
    let mut known = Known::new();
    plans.iter().map(|plan| intern(plan, &mut known)).collect()
}

/// The single node that equals this one.
fn intern(node: &Arc<Node>, known: &mut Known) -> Arc<Node> {
    let node = node.map_inputs(&mut |input| intern(input, known));
    let inputs = node.inputs().into_iter().map(|input| Arc::as_ptr(input).addr()).collect();
    let alike = known.entry((explain::line(&node), inputs)).or_default();
    // Processing time is read once for each row, so equal scans may share it.
    match alike.iter().find(|other| **other == node) {
        Some(other) => other.clone(),
        None => {
            alike.push(node.clone());
            node
        }
    }
}

/// All scans of one table.
struct Scans {
    first: Scan,
    /// Whether any of them differs from the first.
    differ: bool,
    /// The columns that they read.
    reads: BTreeSet<usize>,
}

/// Replaces different scans of a table by one scan of all their columns; their differences move above it.
fn share_scans(plans: &[Arc<Node>]) -> Vec<Arc<Node>> {
    let mut tables: HashMap<usize, Scans> = HashMap::new();
    for plan in plans {
        collect(plan, &mut tables);
    }
    let widened = |node: Arc<Node>| match &node.op {
        NodeOp::Scan(scan) => match tables.get(&Arc::as_ptr(&scan.table).addr()) {
            Some(scans) if scans.differ => widen(scan, &scans.reads),
            _ => node,
        },
        _ => node,
    };
    plans.iter().map(|plan| plan.rewrite(&widened)).collect()
}

fn collect(node: &Arc<Node>, tables: &mut HashMap<usize, Scans>) {
    if let NodeOp::Scan(scan) = &node.op {
        let scans = tables.entry(Arc::as_ptr(&scan.table).addr()).or_insert_with(|| Scans {
            first: scan.clone(),
            differ: false,
            reads: BTreeSet::new(),
        });
        scans.differ |= scans.first != *scan;
        scans.reads.extend(&scan.reads);
    }
    for input in node.inputs() {
        collect(input, tables);
    }
}

/// A scan of the columns of all scans of the table, with this scan's filter and columns above it.
fn widen(scan: &Scan, reads: &BTreeSet<usize>) -> Arc<Node> {
    let table = &scan.table;
    let reads: Vec<usize> = reads.iter().copied().collect();
    // In order of their numbers.
    let place = |read: usize| reads.binary_search(&read).unwrap_or(0);
    let over_all = |expr: &Expr| expr.clone().renumber(&|column| place(scan.reads[column]));
    let physical = |read: usize| &table.columns[table.physical[read]];
    let mut columns: Vec<_> = reads
        .iter()
        .enumerate()
        .map(|(place, read)| {
            let column = physical(*read);
            let field =
                crate::plan::Field { name: column.name.clone(), ty: column.ty.clone(), time: column.time };
            (field, Expr::Column(place, column.ty.clone()))
        })
        .collect();
    // Computed time attributes are such only in the scan; other computed columns are left to each reader.
    for column in table.columns.iter().filter(|column| column.time.is_some()) {
        if let Some(expr) = &column.computed {
            let needed = expr.columns();
            if needed.iter().all(|column| reads.contains(column)) {
                let expr = expr.clone().renumber(&place);
                let field = crate::plan::Field {
                    name: column.name.clone(),
                    ty: column.ty.clone(),
                    time: column.time,
                };
                columns.push((field, expr));
            }
        }
    }
    let wide = Node::new(NodeOp::Scan(Scan {
        table: table.clone(),
        watermark: scan.watermark.as_ref().map(over_all),
        columns: columns.clone(),
        filter: None,
        reads: reads.clone(),
    }));
    let mut node = wide;
    if let Some(filter) = &scan.filter {
        node = Node::new(NodeOp::Filter { input: node, predicate: over_all(filter) });
    }
    let own = scan
        .columns
        .iter()
        .map(|(field, expr)| {
            let expr = over_all(expr);
            let attribute =
                columns.iter().position(|(other, computed)| other.time == field.time && *computed == expr);
            let expr = match attribute {
                Some(index) if field.time.is_some() => Expr::Column(index, field.ty.clone()),
                _ => expr,
            };
            (field.name.clone(), expr)
        })
        .collect();
    Node::new(NodeOp::Project { input: node, columns: own })
}

#[cfg(test)]
mod tests {
    use crate::Session;

    #[test]
    fn inserts_of_one_job_read_a_table_once() {
        let mut session = Session::default();
        session
            .run("CREATE TABLE b (k INT, v STRING, x INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
                  CREATE TABLE p (k INT) WITH ('connector' = 'print');
                  CREATE TABLE q (v STRING) WITH ('connector' = 'print');")
            .unwrap();
        let text = session
            .explain("EXPLAIN EXECUTE STATEMENT SET BEGIN INSERT INTO p SELECT k FROM b WHERE k > 1; INSERT INTO q SELECT v FROM b; END")
            .unwrap();
        assert!(text.contains("reads=[k, v, ts]"), "{text}");
        assert_eq!(text.matches("reads=").count(), 1, "the second reader points to the first\n{text}");
    }
}
