//! A job's plan as the code generator sees it: the readers of each node, and what each breaker keeps.

use std::collections::HashMap;
use std::sync::Arc;

use super::aggregate::Group;
use super::machine::{Breaker, Kind, Machine, Needed, RowLayout, ScanSlot, SinkSlot};
use super::table::Entries;
use crate::batch::Shape;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::plan::{self, JoinKind, Node, NodeOp, RankKind, WindowSource, retention};
use crate::state::{Layout, Memory, Sessions};
use crate::types::{DataType, Type};

/// A reader of a node's rows.
#[derive(Debug, Clone)]
pub enum Reader {
    /// A node, at one of its inputs.
    Node(Arc<Node>, usize),
    /// The sink with this number.
    Sink(usize),
}

/// Rows that are kept in lists by key.
#[derive(Debug)]
pub struct Lists {
    /// Their layout in the table: the value is the list's first and last row.
    pub entries: Entries,
    /// The layout of its rows.
    pub row: RowLayout,
}

impl Lists {
    /// Lists of rows with these columns by these keys. The key of a join is never NULL, because NULL equals nothing.
    fn new<'t>(keys: &[&Type], nullable: bool, columns: impl Iterator<Item = &'t Type>) -> Result<Lists> {
        let key: Result<Vec<(Shape, bool)>> =
            keys.iter().map(|ty| Ok((Shape::of(&ty.data)?, nullable && ty.nullable))).collect();
        let mut entries = Entries::new(&key?, 0, 2)?;
        let fields: Result<Vec<(Shape, bool)>> =
            columns.map(|ty| Ok((Shape::of(&ty.data)?, ty.nullable))).collect();
        let row = RowLayout::new(0, &fields?);
        let texts = entries.key.iter().filter(|(shape, ..)| *shape == Shape::Text);
        entries.layout.key_texts = texts.map(|(.., word)| *word).collect();
        entries.layout.list = entries.value;
        entries.layout.row = row.words;
        entries.layout.row_texts = row.texts();
        Ok(Lists { entries, row })
    }
}

/// What a breaker keeps, as the code generator sees it.
#[derive(Debug)]
pub enum Kept {
    /// Aggregates, with or without windows.
    Group(Group),
    /// Rows of each side.
    Sides([Lists; 2]),
    /// The first rows of each partition.
    Rows(Lists),
    /// Rows of a lookup table: all its physical columns.
    Lookup(Lists),
}

impl Kept {
    /// Makes this code mark its changes for checkpoints.
    fn track(&mut self) {
        match self {
            Kept::Group(group) => group.track(),
            Kept::Sides(sides) => sides.iter_mut().for_each(|side| side.entries.layout.track()),
            Kept::Rows(lists) | Kept::Lookup(lists) => lists.entries.layout.track(),
        }
    }
}

/// A breaker's place in the machine and what it keeps.
#[derive(Debug)]
pub struct Place {
    /// Its node.
    pub node: Arc<Node>,
    /// Number in the machine.
    pub number: usize,
    /// What it keeps.
    pub kept: Kept,
}

/// A job for the code generator.
#[derive(Debug, Default)]
pub struct Graph {
    /// Nodes without inputs, in the order of their slots in the machine.
    pub sources: Vec<Arc<Node>>,
    /// Breakers by their number.
    pub places: Vec<Place>,
    readers: HashMap<usize, Vec<Reader>>,
    numbers: HashMap<usize, usize>,
    seen: HashMap<usize, std::collections::BTreeSet<usize>>,
}

fn id(node: &Arc<Node>) -> usize {
    Arc::as_ptr(node) as usize
}

impl Graph {
    /// Builds the graph of a job, and its parts in the machine.
    pub fn new(plans: &[Arc<Node>], machine: &mut Machine) -> Result<Graph> {
        let mut graph = Graph::default();
        for (number, plan) in plans.iter().enumerate() {
            let fields: Result<Vec<(Shape, bool)>> =
                plan.schema.iter().map(|field| Ok((Shape::of(&field.ty.data)?, field.ty.nullable))).collect();
            let types: Vec<DataType> = plan.schema.iter().map(|field| field.ty.data.clone()).collect();
            let slot = SinkSlot::new(RowLayout::new(1, &fields?), types);
            machine.sinks.push(Box::new(slot));
            graph.enter(plan, machine)?;
            graph.readers.entry(id(plan)).or_default().push(Reader::Sink(number));
        }
        Ok(graph)
    }

    /// The readers of this node.
    pub fn readers(&self, node: &Arc<Node>) -> &[Reader] {
        self.readers.get(&id(node)).map_or(&[], Vec::as_slice)
    }

    /// The breaker of this node.
    pub fn place(&self, node: &Arc<Node>) -> Result<&Place> {
        let place = self.numbers.get(&id(node)).and_then(|number| self.places.get(*number));
        place.ok_or_else(|| Error::unsupported("compiling this operator"))
    }

    fn enter(&mut self, node: &Arc<Node>, machine: &mut Machine) -> Result<()> {
        if self.seen.contains_key(&id(node)) {
            return Ok(());
        }
        let mut scans = std::collections::BTreeSet::new();
        for (port, input) in node.inputs().into_iter().enumerate() {
            self.enter(input, machine)?;
            self.readers.entry(id(input)).or_default().push(Reader::Node(node.clone(), port));
            scans.extend(self.seen.get(&id(input)).into_iter().flatten().copied());
        }
        if node.inputs().is_empty() {
            scans.insert(self.sources.len());
            self.sources.push(node.clone());
            machine.scans.push(Box::new(ScanSlot { watermark: i64::MIN, deadline: i64::MIN, idle: false }));
        }
        self.seen.insert(id(node), scans.clone());
        if let Some((mut kept, mut breaker, mut layouts)) = breaker(node)? {
            breaker.scans = scans;
            breaker.layout = format!("{}: {kept:?}", breaker.name);
            breaker.borrowed = matches!(kept, Kept::Lookup(_));
            if machine.tracked && !breaker.borrowed {
                kept.track();
                layouts.iter_mut().for_each(Layout::track);
                if let Kind::Sessions { sessions, .. } = &mut breaker.kind {
                    *sessions = Sessions::new(true);
                }
            }
            for layout in layouts {
                breaker.states.push(Box::new(Memory::new(layout, machine.room.clone())));
            }
            self.numbers.insert(id(node), self.places.len());
            self.places.push(Place { node: node.clone(), number: machine.breakers.len(), kept });
            machine.breakers.push(Box::new(breaker));
        }
        Ok(())
    }
}

fn breaker(node: &Arc<Node>) -> Result<Option<(Kept, Breaker, Vec<Layout>)>> {
    let name = plan::explain::line(node);
    Ok(Some(match &node.op {
        NodeOp::WindowAggregate { input, window, proctime, source, keys, aggregates } => {
            let sessions = window.slice().is_none() && matches!(source, WindowSource::Assigned { .. });
            let group = Group::new(input, keys, aggregates, sessions)?;
            let kind = match source {
                WindowSource::Assigned { .. } if sessions && !group.is_mergeable() => {
                    return Err(Error::unsupported(
                        "compiling DISTINCT, FIRST_VALUE and LAST_VALUE in SESSION windows",
                    ));
                }
                WindowSource::Assigned { .. } if sessions => {
                    let gap = if let plan::Window::Session { gap } = window { *gap } else { 0 };
                    let word = group.list.unwrap_or(0);
                    Kind::Sessions { gap, word, sessions: Sessions::default() }
                }
                WindowSource::Assigned { slice: Some(width), .. } if group.is_mergeable() => {
                    Kind::Slices { width: *width }
                }
                _ => Kind::Windows,
            };
            let mut breaker = Breaker::new(name, kind);
            breaker.window = Some(*window);
            breaker.proctime = *proctime;
            let layout = group.entries.layout.clone();
            (Kept::Group(group), breaker, vec![layout])
        }
        NodeOp::Aggregate { input, keys, aggregates } => {
            let group = Group::new(input, keys, aggregates, false)?;
            let layout = group.entries.layout.clone();
            (Kept::Group(group), Breaker::new(name, Kind::Always), vec![layout])
        }
        NodeOp::Join { left, right, kind, keys, residual } => {
            let side = |input: &Node, exprs: Vec<&Expr>| {
                let types: Vec<&Type> = exprs.iter().map(|expr| expr.ty()).collect();
                Lists::new(&types, false, input.schema.iter().map(|field| &field.ty))
            };
            let left_side = side(left, keys.iter().map(|(left, _)| left).collect())?;
            let right_side = side(right, keys.iter().map(|(_, right)| right).collect())?;
            let sides = [&left_side, &right_side];
            let interval = |needed: [Option<(usize, i64)>; 2]| {
                let needed = std::array::from_fn(|side| {
                    let (time, keep) = needed[side]?;
                    Some(Needed { row: sides[side].row.clone(), time, keep })
                });
                Kind::Interval { needed, kept: 0 }
            };
            let mut breaker = match kind {
                JoinKind::Interval { proctime: true, .. } => Breaker::new(name, Kind::Always),
                JoinKind::Regular => match retention::of_join(left, right, residual.as_ref()) {
                    [None, None] => Breaker::new(name, Kind::Always),
                    needed => Breaker::new(name, interval(needed)),
                },
                // right + lower <= left <= right + upper: a row of the left can join rows of the right up to left -
                // lower.
                JoinKind::Interval { left: a, right: b, lower, upper, .. } => {
                    Breaker::new(name, interval([Some((*a, -*lower)), Some((*b, *upper))]))
                }
                JoinKind::Window { .. } => Breaker::new(name, Kind::Sides),
            };
            if let JoinKind::Window { proctime, .. } = kind {
                breaker.proctime = *proctime;
                breaker.window = left.windowed.as_ref().map(|windowed| windowed.window);
            }
            let layouts = vec![left_side.entries.layout.clone(), right_side.entries.layout.clone()];
            (Kept::Sides([left_side, right_side]), breaker, layouts)
        }
        NodeOp::Lookup { table, keys, .. } => {
            let types: Vec<&Type> = keys.iter().map(|(_, expr)| expr.ty()).collect();
            let lists = Lists::new(&types, false, table.columns.iter().map(|column| &column.ty))?;
            let layout = lists.entries.layout.clone();
            (Kept::Lookup(lists), Breaker::new(name, Kind::Always), vec![layout])
        }
        NodeOp::Window { window, .. } if window.slice().is_none() => {
            return Err(Error::unsupported("compiling SESSION windows that keep their rows"));
        }
        NodeOp::Rank { input, kind, partition, .. } => {
            let types: Vec<&Type> = partition.iter().map(|column| &input.schema[*column].ty).collect();
            let lists = Lists::new(&types, true, input.schema.iter().map(|field| &field.ty))?;
            let mut breaker = Breaker::new(name, Kind::Always);
            if let RankKind::Window { proctime, .. } = kind {
                breaker.kind = Kind::Windows;
                breaker.proctime = *proctime;
                breaker.window = input.windowed.as_ref().map(|windowed| windowed.window);
            }
            let layout = lists.entries.layout.clone();
            (Kept::Rows(lists), breaker, vec![layout])
        }
        _ => return Ok(None),
    }))
}
