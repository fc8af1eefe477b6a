//! What several places of a job compute alike is computed once: tables are read once, and equal parts of plans become
//! one node with several readers.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::expr::Expr;
use crate::plan::{Node, NodeOp, Scan};

/// The plans with shared scans and shared parts.
pub(super) fn apply(plans: &[Arc<Node>]) -> Vec<Arc<Node>> {
    let plans = share_scans(plans);
    let mut known: Vec<Arc<Node>> = Vec::new();
    plans.iter().map(|plan| intern(plan, &mut known)).collect()
}

/// The one node that is equal to this one.
fn intern(node: &Arc<Node>, known: &mut Vec<Arc<Node>>) -> Arc<Node> {
    let node = node.map_inputs(&mut |input| intern(input, known));
    // Processing time is read once for a row, so that equal scans may share it.
    match known.iter().find(|other| **other == node) {
        Some(other) => other.clone(),
        None => {
            known.push(node.clone());
            node
        }
    }
}

/// Scans of one table that differ become one scan of all that they read; what they differ in stays above it.
fn share_scans(plans: &[Arc<Node>]) -> Vec<Arc<Node>> {
    let mut scans: Vec<Scan> = Vec::new();
    for plan in plans {
        collect(plan, &mut scans);
    }
    let plans: Vec<Arc<Node>> = plans.to_vec();
    let tables: Vec<_> = scans.iter().map(|scan| scan.table.clone()).collect();
    let shared = |scan: &Scan| tables.iter().filter(|table| Arc::ptr_eq(table, &scan.table)).count() > 1;
    plans
        .iter()
        .map(|plan| {
            plan.rewrite(&|node| match &node.op {
                NodeOp::Scan(scan) if shared(scan) => widen(scan, &scans),
                _ => node,
            })
        })
        .collect()
}

fn collect(node: &Arc<Node>, scans: &mut Vec<Scan>) {
    if let NodeOp::Scan(scan) = &node.op
        && !scans.contains(scan)
    {
        scans.push(scan.clone());
    }
    for input in node.inputs() {
        collect(input, scans);
    }
}

/// A scan of what all scans of the table read, with the filter and the columns of this one above it.
fn widen(scan: &Scan, scans: &[Scan]) -> Arc<Node> {
    let table = &scan.table;
    let alike = || scans.iter().filter(|other| Arc::ptr_eq(&other.table, table));
    let reads: Vec<usize> =
        alike().flat_map(|scan| scan.reads.iter().copied()).collect::<BTreeSet<_>>().into_iter().collect();
    let over_all = |expr: &Expr| {
        expr.clone()
            .renumber(&|column| reads.iter().position(|read| *read == scan.reads[column]).unwrap_or(0))
    };
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
                let expr = expr
                    .clone()
                    .renumber(&|column| reads.iter().position(|read| *read == column).unwrap_or(0));
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
