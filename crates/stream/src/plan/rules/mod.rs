//! Rules that improve a plan. Each is a function from plan to plan that does not change the plan's results. One
//! exception: an expression that fails on rows that are not needed is no longer computed for them. The rules run once,
//! in a fixed order.

mod fold;
mod merge;
mod prune;
mod push_filter;
mod rank;
mod share;
mod slices;

use std::sync::Arc;

use super::{Node, Sink};

/// A rule's name and its function from plan to plan.
pub type Rule = (&'static str, fn(&Arc<Node>) -> Arc<Node>);

/// The rules for one plan in their order.
pub const RULES: &[Rule] = &[
    // Constants first: they make conditions simple, and limits of ROW_NUMBER literals.
    ("fold constants", fold::apply),
    // Moves filters to their scans and row numbers.
    ("push filters down", push_filter::apply),
    // Merges nested projections, so that the next two rules find their patterns.
    ("merge projections", merge::apply),
    ("recognise top-N and deduplication", rank::apply),
    ("aggregate by slices", slices::apply),
    // Removes unused columns, down to the columns of sources.
    ("prune columns", prune::apply),
    // Pruning left projections that do nothing.
    ("merge projections", merge::apply),
];

/// The plan after all rules for one plan.
pub fn optimise(node: &Arc<Node>) -> Arc<Node> {
    RULES.iter().fold(node.clone(), |node, (_, rule)| rule(&node))
}

/// The plans of one job after all rules; common parts are computed once.
pub fn optimise_job(sinks: &[Sink]) -> Vec<Sink> {
    let plans: Vec<Arc<Node>> = sinks.iter().map(|sink| optimise(&sink.input)).collect();
    let plans = slices::unify(share::apply(&plans));
    sinks.iter().zip(plans).map(|(sink, input)| Sink { table: sink.table.clone(), input }).collect()
}

#[cfg(test)]
mod testing {
    use super::*;
    use crate::Session;

    const TABLES: &str = "
        CREATE TABLE bid (auction BIGINT NOT NULL, bidder BIGINT, price BIGINT, url STRING, ts TIMESTAMP(3),
            twice AS price * 2, pt AS PROCTIME(),
            WATERMARK FOR ts AS ts - INTERVAL '4' SECOND) WITH ('connector' = 'datagen');
        CREATE TABLE person (id BIGINT, name STRING, ts TIMESTAMP(3),
            WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
        CREATE TABLE side (id BIGINT, v STRING, w STRING, PRIMARY KEY (id) NOT ENFORCED)
            WITH ('connector' = 'duramen');";

    /// The plan of a query as bound.
    pub(super) fn plan(query: &str) -> Arc<Node> {
        let mut session = Session::default();
        session.run(TABLES).unwrap();
        session.plan(query).unwrap()
    }

    /// The plan after the first rules, as text.
    pub(super) fn after(query: &str, rules: usize) -> String {
        let node = RULES[..rules].iter().fold(plan(query), |node, (_, rule)| rule(&node));
        super::super::explain::plan(&node)
    }
}
