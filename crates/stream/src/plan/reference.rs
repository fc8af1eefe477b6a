//! A plain interpreter: runs the plan of a job over finite input, row by row, in the order in which rows arrive. It is
//! slow and meant to be obviously right. Everything that runs fast is compared with it.
//!
//! After each row of a scan its watermark moves to the greatest one seen, and the clock to the row's time of arrival.
//! At the end of the input both move to the end of time, so that every window closes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Result;
use crate::expr::{Expr, eval};
use crate::function::Clock;
use crate::function::aggregate::{Accumulator, Aggregate};
use crate::plan::changelog::RowKind;
use crate::plan::{JoinKind, Node, NodeOp, RankKind, Sink, SortKey, Window, WindowSource, window_time};
use crate::types::{OrderedValue, Row, Type, Value};

/// A row that arrives: physical columns of a table.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The table.
    pub table: String,
    /// Its physical columns in order.
    pub row: Row,
    /// The processing time, in microseconds.
    pub clock: i64,
}

/// Finite input: rows in the order of their arrival, and the rows of lookup tables.
#[derive(Debug, Clone, Default)]
pub struct Input {
    /// Rows that arrive.
    pub arrivals: Vec<Arrival>,
    /// Rows of lookup tables: all columns in order.
    pub tables: BTreeMap<String, Vec<Row>>,
}

/// The changes that one sink received, in order.
pub type Changes = Vec<(RowKind, Row)>;

/// The end of time: small enough that adding the length of a window stays within 64 bits.
const END: i64 = i64::MAX / 4;

/// Runs the plans of a job; the changes of each sink are returned in the order of the sinks.
pub fn run(sinks: &[Sink], input: &Input) -> Result<Vec<Changes>> {
    let plans: Vec<Arc<Node>> = sinks.iter().map(|sink| sink.input.clone()).collect();
    run_plans(&plans, input)
}

/// Runs plans without sinks.
pub fn run_plans(plans: &[Arc<Node>], input: &Input) -> Result<Vec<Changes>> {
    let mut run = Run { operators: Vec::new(), input, clock: 0, outputs: vec![Vec::new(); plans.len()] };
    for (output, plan) in plans.iter().enumerate() {
        let place = run.place(plan);
        run.operators[place].readers.push(Reader::Output(output));
    }
    run.all()
}

/// The rows that remain after all changes, sorted.
pub fn final_rows(changes: &Changes) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (kind, row) in changes {
        if kind.adds() {
            rows.push(row.clone());
        } else if let Some(place) = rows.iter().position(|other| other == row) {
            rows.swap_remove(place);
        }
    }
    rows.sort_by_cached_key(|row| OrderedValue(row.clone()));
    rows
}

#[derive(Debug, Clone)]
enum Message {
    Row(RowKind, Row),
    Watermark(i64),
    Clock(i64),
}

enum Reader {
    Operator(usize, usize),
    Output(usize),
}

struct Operator {
    node: Arc<Node>,
    readers: Vec<Reader>,
    /// Watermark of each input, and the least of them.
    watermarks: Vec<i64>,
    watermark: i64,
    clock: i64,
    state: State,
}

#[derive(Default)]
struct State {
    /// Rows by key; a join has one map for each side.
    rows: [BTreeMap<OrderedValue, Vec<Row>>; 2],
    /// Aggregates by key.
    groups: BTreeMap<OrderedValue, Group>,
    /// Sessions: rows by partition with start and end.
    sessions: Vec<(OrderedValue, i64, i64, Vec<Row>)>,
}

#[derive(Clone)]
struct Group {
    key: Row,
    accumulators: Vec<Accumulator>,
    given: Option<Row>,
    start: i64,
    end: i64,
}

struct Run<'i> {
    operators: Vec<Operator>,
    input: &'i Input,
    clock: i64,
    outputs: Vec<Changes>,
}

impl Run<'_> {
    fn place(&mut self, node: &Arc<Node>) -> usize {
        if let Some(place) = self.operators.iter().position(|operator| Arc::ptr_eq(&operator.node, node)) {
            return place;
        }
        let inputs: Vec<usize> = node.inputs().into_iter().map(|input| self.place(input)).collect();
        self.operators.push(Operator {
            node: node.clone(),
            readers: Vec::new(),
            watermarks: vec![i64::MIN; inputs.len().max(1)],
            watermark: i64::MIN,
            clock: i64::MIN,
            state: State::default(),
        });
        let place = self.operators.len() - 1;
        for (port, input) in inputs.into_iter().enumerate() {
            self.operators[input].readers.push(Reader::Operator(place, port));
        }
        place
    }

    fn all(mut self) -> Result<Vec<Changes>> {
        let input = self.input;
        for place in 0..self.operators.len() {
            if let NodeOp::Values(_, rows) = &self.operators[place].node.op.clone() {
                for row in rows {
                    let row: Result<Row> = row.iter().map(|expr| eval(expr, &[], Clock::default())).collect();
                    self.send(place, Message::Row(RowKind::Insert, row?))?;
                }
            }
        }
        for arrival in &input.arrivals {
            self.clock = self.clock.max(arrival.clock);
            // Time advances everywhere before the row is processed.
            for place in self.sources() {
                self.send(place, Message::Clock(self.clock))?;
            }
            for place in self.sources() {
                self.arrive(place, arrival)?;
            }
        }
        for place in self.sources() {
            self.send(place, Message::Clock(END))?;
        }
        for place in self.sources() {
            self.send(place, Message::Watermark(END))?;
        }
        Ok(self.outputs)
    }

    fn sources(&self) -> Vec<usize> {
        (0..self.operators.len()).filter(|place| self.operators[*place].node.inputs().is_empty()).collect()
    }

    fn arrive(&mut self, place: usize, arrival: &Arrival) -> Result<()> {
        let node = self.operators[place].node.clone();
        let NodeOp::Scan(scan) = &node.op else { return Ok(()) };
        if scan.table.name != arrival.table {
            return Ok(());
        }
        let clock = Clock { now: self.clock };
        let row: Row = scan.reads.iter().map(|read| arrival.row[*read].clone()).collect();
        let passes = match &scan.filter {
            Some(filter) => eval(filter, &row, clock)?.as_truth() == Some(true),
            None => true,
        };
        if passes {
            let columns: Result<Row> = scan.columns.iter().map(|(_, expr)| eval(expr, &row, clock)).collect();
            self.send(place, Message::Row(RowKind::Insert, columns?))?;
        }
        if let Some(bound) = &scan.watermark
            && let Value::Int(bound) = eval(bound, &row, clock)?
            && bound > self.operators[place].watermark
        {
            self.operators[place].watermark = bound;
            self.send(place, Message::Watermark(bound))?;
        }
        Ok(())
    }

    fn send(&mut self, place: usize, message: Message) -> Result<()> {
        let readers: Vec<(Option<usize>, usize)> = self.operators[place]
            .readers
            .iter()
            .map(|reader| match reader {
                Reader::Operator(place, port) => (Some(*place), *port),
                Reader::Output(output) => (None, *output),
            })
            .collect();
        for (reader, port) in readers {
            match (reader, &message) {
                (None, Message::Row(kind, row)) => self.outputs[port].push((*kind, row.clone())),
                (None, _) => {}
                (Some(reader), message) => {
                    let clock = Clock { now: self.clock };
                    let out = self.operators[reader].take(port, message, clock, self.input)?;
                    for message in out {
                        self.send(reader, message)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn columns(row: &[Value], columns: &[usize]) -> Row {
    columns.iter().map(|column| row[*column].clone()).collect()
}

fn moment(value: &Value) -> Option<i64> {
    value.as_int()
}

fn holds(predicate: Option<&Expr>, row: &[Value], clock: Clock) -> Result<bool> {
    match predicate {
        Some(predicate) => Ok(eval(predicate, row, clock)?.as_truth() == Some(true)),
        None => Ok(true),
    }
}

impl Operator {
    fn take(&mut self, port: usize, message: &Message, clock: Clock, input: &Input) -> Result<Vec<Message>> {
        match message {
            Message::Row(kind, row) => {
                let changes = self.row(port, *kind, row, clock, input)?;
                Ok(changes.into_iter().map(|(kind, row)| Message::Row(kind, row)).collect())
            }
            Message::Watermark(moment) => {
                self.watermarks[port] = self.watermarks[port].max(*moment);
                let least = self.watermarks.iter().copied().min().unwrap_or(*moment);
                if least <= self.watermark {
                    return Ok(Vec::new());
                }
                self.watermark = least;
                let mut out = self.close(false, clock)?;
                out.push(Message::Watermark(least));
                Ok(out)
            }
            Message::Clock(now) => {
                if *now <= self.clock {
                    return Ok(Vec::new());
                }
                self.clock = *now;
                let mut out = self.close(true, clock)?;
                out.push(Message::Clock(*now));
                Ok(out)
            }
        }
    }

    /// Whether a window that ends then has closed.
    fn closed(&self, end: i64, proctime: bool) -> bool {
        if proctime { self.clock >= end } else { self.watermark >= window_time(end) }
    }

    fn row(&mut self, port: usize, kind: RowKind, row: &Row, clock: Clock, input: &Input) -> Result<Changes> {
        let node = self.node.clone();
        let mut out = Changes::new();
        match &node.op {
            NodeOp::Scan(_) | NodeOp::Values(..) => {}
            NodeOp::Project { columns, .. } => {
                let row: Result<Row> = columns.iter().map(|(_, expr)| eval(expr, row, clock)).collect();
                out.push((kind, row?));
            }
            NodeOp::Filter { predicate, .. } => {
                if holds(Some(predicate), row, clock)? {
                    out.push((kind, row.clone()));
                }
            }
            NodeOp::Union(_) => out.push((kind, row.clone())),
            NodeOp::Window { window, time, partition, .. } => {
                // A row without a time is in no window.
                let Some(at) = moment(&row[*time]) else { return Ok(out) };
                match window {
                    Window::Session { .. } => {
                        let proctime = node.windowed.as_ref().is_some_and(|windowed| windowed.proctime);
                        let (start, end) = window.assign(at)[0];
                        self.session(
                            OrderedValue(columns(row, partition)),
                            start,
                            end,
                            row.clone(),
                            proctime,
                        );
                    }
                    _ => {
                        for (start, end) in window.assign(at) {
                            out.push((kind, with_window(row, start, end)));
                        }
                    }
                }
            }
            NodeOp::WindowAggregate { window, proctime, source, keys, aggregates, input, .. } => {
                let windows = match source {
                    WindowSource::Attached { start, end } => match (moment(&row[*start]), moment(&row[*end]))
                    {
                        (Some(start), Some(end)) => vec![(start, end)],
                        _ => Vec::new(),
                    },
                    WindowSource::Assigned { time, .. } => {
                        moment(&row[*time]).map_or(Vec::new(), |at| window.assign(at))
                    }
                };
                let key = columns(row, keys);
                for (start, end) in windows {
                    if let (Window::Session { .. }, WindowSource::Assigned { .. }) = (window, source) {
                        self.session(OrderedValue(key.clone()), start, end, row.clone(), *proctime);
                    } else if !self.closed(end, *proctime) {
                        let mut place = vec![Value::Int(end), Value::Int(start)];
                        place.extend(key.iter().cloned());
                        let group = self.state.groups.entry(OrderedValue(place)).or_insert_with(|| Group {
                            key: key.clone(),
                            accumulators: vec![Accumulator::default(); aggregates.len()],
                            given: None,
                            start,
                            end,
                        });
                        add(group, aggregates, row, input);
                    }
                }
            }
            NodeOp::Aggregate { keys, aggregates, input } => {
                let key = columns(row, keys);
                let group = self.state.groups.entry(OrderedValue(key.clone())).or_insert_with(|| Group {
                    key,
                    accumulators: vec![Accumulator::default(); aggregates.len()],
                    given: None,
                    start: 0,
                    end: 0,
                });
                add(group, aggregates, row, input);
                let now = results(group, aggregates, input)?;
                match group.given.replace(now.clone()) {
                    None => out.push((RowKind::Insert, now)),
                    Some(before) if before == now => {}
                    Some(before) => {
                        out.push((RowKind::UpdateBefore, before));
                        out.push((RowKind::UpdateAfter, now));
                    }
                }
            }
            NodeOp::Join { kind, keys, residual, .. } => {
                let exprs = keys.iter().map(|(left, right)| if port == 0 { left } else { right });
                let key: Result<Row> = exprs.map(|expr| eval(expr, row, clock)).collect();
                let key = key?;
                // NULL equals nothing, and neither does NaN.
                if key.iter().any(Value::is_null) {
                    return Ok(out);
                }
                if let JoinKind::Window { left, right, proctime } = kind {
                    let end = if port == 0 { left.1 } else { right.1 };
                    let late = moment(&row[end]).is_none_or(|end| self.closed(end, *proctime));
                    if !late {
                        self.state.rows[port].entry(OrderedValue(key)).or_default().push(row.clone());
                    }
                    return Ok(out);
                }
                let key = OrderedValue(key);
                for other in self.state.rows[1 - port].get(&key).into_iter().flatten() {
                    let pair: Row = if port == 0 {
                        [row.as_slice(), other].concat()
                    } else {
                        [other.as_slice(), row].concat()
                    };
                    if holds(residual.as_ref(), &pair, clock)? {
                        out.push((RowKind::Insert, pair));
                    }
                }
                self.state.rows[port].entry(key).or_default().push(row.clone());
            }
            NodeOp::Lookup { table, columns: given, keys, residual, outer, .. } => {
                let mut matched = false;
                let wanted: Result<Vec<(usize, Value)>> =
                    keys.iter().map(|(column, expr)| Ok((*column, eval(expr, row, clock)?))).collect();
                let wanted = wanted?;
                for other in input.tables.get(&table.name).into_iter().flatten() {
                    let equal =
                        wanted.iter().all(|(column, value)| !value.is_null() && other[*column] == *value);
                    let pair = [row.as_slice(), &columns(other, given)].concat();
                    if equal && holds(residual.as_ref(), &pair, clock)? {
                        matched = true;
                        out.push((kind, pair));
                    }
                }
                if !matched && *outer {
                    let mut pair = row.clone();
                    pair.extend(given.iter().map(|_| Value::Null));
                    out.push((kind, pair));
                }
            }
            NodeOp::Rank { kind, partition, order, limit, number, .. } => {
                if let RankKind::Window { end, proctime, .. } = kind
                    && moment(&row[*end]).is_none_or(|end| self.closed(end, *proctime))
                {
                    return Ok(out);
                }
                let key = OrderedValue(columns(row, partition));
                let rows = self.state.rows[0].entry(key).or_default();
                let before = first(rows, *limit, *number);
                let place = match kind {
                    // Of two rows with the same time the later one is the last.
                    RankKind::Deduplicate { last: true, .. } | RankKind::Window { last: true, .. } => {
                        rows.iter().position(|other| SortKey::order(order, row, other).is_le())
                    }
                    _ => rows.iter().position(|other| SortKey::order(order, row, other).is_lt()),
                };
                rows.insert(place.unwrap_or(rows.len()), row.clone());
                if !matches!(kind, RankKind::Window { .. }) {
                    let after = first(rows, *limit, *number);
                    difference(&before, &after, *number || *limit == Some(1), &mut out);
                    if let Some(limit) = limit {
                        rows.truncate(usize::try_from(*limit).unwrap_or(usize::MAX));
                    }
                }
            }
        }
        Ok(out)
    }

    /// Puts a row into the session that its own window overlaps, and merges all sessions that it now links.
    fn session(&mut self, key: OrderedValue, mut start: i64, mut end: i64, row: Row, proctime: bool) {
        let mut rows = vec![row];
        let mut kept = Vec::new();
        for session in self.state.sessions.drain(..) {
            if session.0 == key && session.1 <= end && start <= session.2 {
                start = start.min(session.1);
                end = end.max(session.2);
                let mut earlier = session.3;
                earlier.append(&mut rows);
                rows = earlier;
            } else {
                kept.push(session);
            }
        }
        self.state.sessions = kept;
        // A session that is closed already when its first row comes is late.
        if !self.closed(end, proctime) {
            self.state.sessions.push((key, start, end, rows));
        }
    }

    /// Emits what closes with the new watermark, or the new clock.
    fn close(&mut self, by_clock: bool, clock: Clock) -> Result<Vec<Message>> {
        let node = self.node.clone();
        let mut out = Vec::new();
        let proctime = match &node.op {
            NodeOp::Window { .. } => node.windowed.as_ref().is_some_and(|windowed| windowed.proctime),
            NodeOp::WindowAggregate { proctime, .. } => *proctime,
            NodeOp::Join { kind: JoinKind::Window { proctime, .. }, .. } => *proctime,
            NodeOp::Rank { kind: RankKind::Window { proctime, .. }, .. } => *proctime,
            _ => return Ok(out),
        };
        if proctime != by_clock {
            return Ok(out);
        }
        let mut give = |row: Row| out.push(Message::Row(RowKind::Insert, row));
        let mut sessions = Vec::new();
        for session in std::mem::take(&mut self.state.sessions) {
            if self.closed(session.2, proctime) {
                sessions.push(session);
            } else {
                self.state.sessions.push(session);
            }
        }
        sessions.sort_by(|a, b| (a.2, a.1).cmp(&(b.2, b.1)).then_with(|| a.0.cmp(&b.0)));
        match &node.op {
            NodeOp::Window { .. } => {
                for (_, start, end, rows) in sessions {
                    rows.iter().for_each(|row| give(with_window(row, start, end)));
                }
            }
            NodeOp::WindowAggregate { aggregates, input, .. } => {
                for (key, start, end, rows) in sessions {
                    let accumulators = vec![Accumulator::default(); aggregates.len()];
                    let mut group = Group { key: key.0, accumulators, given: None, start, end };
                    rows.iter().for_each(|row| add(&mut group, aggregates, row, input));
                    give(with_window(&results(&group, aggregates, input)?, start, end));
                }
                // Groups are in the order of their windows' ends.
                while let Some((place, group)) = self.state.groups.pop_first() {
                    if !self.closed(group.end, proctime) {
                        self.state.groups.insert(place, group);
                        break;
                    }
                    give(with_window(&results(&group, aggregates, input)?, group.start, group.end));
                }
            }
            NodeOp::Join { kind: JoinKind::Window { left, right, .. }, residual, .. } => {
                let ends = [left.1, right.1];
                let mut closed: [BTreeMap<OrderedValue, Vec<Row>>; 2] = Default::default();
                for side in 0..2 {
                    for (key, rows) in std::mem::take(&mut self.state.rows[side]) {
                        // The window is a part of the key: its rows close together.
                        let done = rows
                            .first()
                            .and_then(|row| moment(&row[ends[side]]))
                            .is_some_and(|end| self.closed(end, proctime));
                        let target = if done { &mut closed[side] } else { &mut self.state.rows[side] };
                        target.insert(key, rows);
                    }
                }
                for (key, lefts) in &closed[0] {
                    for left in lefts {
                        for right in closed[1].get(key).into_iter().flatten() {
                            let pair = [left.as_slice(), right].concat();
                            if holds(residual.as_ref(), &pair, clock)? {
                                give(pair);
                            }
                        }
                    }
                }
            }
            NodeOp::Rank { kind: RankKind::Window { end, .. }, limit, number, .. } => {
                for (key, rows) in std::mem::take(&mut self.state.rows[0]) {
                    let done = rows
                        .first()
                        .and_then(|row| moment(&row[*end]))
                        .is_some_and(|end| self.closed(end, proctime));
                    if done {
                        first(&rows, *limit, *number).into_iter().for_each(&mut give);
                    } else {
                        self.state.rows[0].insert(key, rows);
                    }
                }
            }
            _ => {}
        }
        Ok(out)
    }
}

fn with_window(row: &[Value], start: i64, end: i64) -> Row {
    let mut row = row.to_vec();
    row.extend([Value::Int(start), Value::Int(end), Value::Int(window_time(end))]);
    row
}

fn argument<'n>(input: &'n Node, aggregate: &Aggregate) -> Option<&'n Type> {
    aggregate.argument.map(|column| &input.schema[column].ty)
}

fn add(group: &mut Group, aggregates: &[Aggregate], row: &[Value], input: &Node) {
    for (accumulator, aggregate) in group.accumulators.iter_mut().zip(aggregates) {
        accumulator.add(aggregate, row, argument(input, aggregate));
    }
}

fn results(group: &Group, aggregates: &[Aggregate], input: &Node) -> Result<Row> {
    let results = group.accumulators.iter().zip(aggregates);
    let results =
        results.map(|(accumulator, aggregate)| accumulator.result(aggregate, argument(input, aggregate)));
    group.key.iter().cloned().map(Ok).chain(results).collect()
}

/// The first rows, with their numbers if `number` is true.
fn first(rows: &[Row], limit: Option<u64>, number: bool) -> Vec<Row> {
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    rows.iter()
        .take(limit)
        .enumerate()
        .map(|(place, row)| {
            let mut row = row.clone();
            if number {
                row.push(Value::Int(place as i64 + 1));
            }
            row
        })
        .collect()
}

/// The changes from one list of rows to another: by place, or as rows removed and added.
fn difference(before: &[Row], after: &[Row], by_place: bool, out: &mut Changes) {
    if by_place {
        for (place, row) in after.iter().enumerate() {
            match before.get(place) {
                None => out.push((RowKind::Insert, row.clone())),
                Some(old) if old == row => {}
                Some(old) => {
                    out.push((RowKind::UpdateBefore, old.clone()));
                    out.push((RowKind::UpdateAfter, row.clone()));
                }
            }
        }
        return;
    }
    let mut gone = before.to_vec();
    let mut new = Vec::new();
    for row in after {
        match gone.iter().position(|old| old == row) {
            Some(place) => {
                gone.remove(place);
            }
            None => new.push(row.clone()),
        }
    }
    out.extend(gone.into_iter().map(|row| (RowKind::Delete, row)));
    out.extend(new.into_iter().map(|row| (RowKind::Insert, row)));
}
