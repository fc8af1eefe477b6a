//! Which units count: those whose end and members all are there.
//!
//! A block tells by itself what counts of a unit that lies in it whole, or of which its header says what became of it
//! (`format::unit`). Members of others wait until all blocks have been read, as a few words for each block and unit,
//! and are read once more if they count:
//!
//! | found of a unit | then |
//! |---|---|
//! | a header that says that it counts, or does not | that: a crash came while the headers were written |
//! | an end whose count and sum all members have | it counts |
//! | no end, or one whose sum is not met, and nothing is damaged | it does not: a crash tore it, or it was given up |
//! | the same, and something is damaged, or a crash cannot have torn it | its members are told as damaged: the end, or others of them, may be what is |
//!
//! A crash cannot have torn a unit whose end is there if only the process died, since then all stores survive in their
//! order; nor one whose end belongs to an epoch that was committed; nor any after a clean close.
//!
//! What is decided is written to the headers, so that no later recovery has to look again: of what lies in one block after that, each
//! block tells by itself. That a unit does not count is written by `Recovered::adopt`; that it does, by
//! `Recovered::confirm_units`.

use super::Cut;
use super::bytes::bytes_of;
use super::claims::claims_in;
use super::entries::{Entries, Left};
use super::given::Scan;
use super::outcome::Outcome;
use super::scan::Reading;
use crate::format::UnitId;
use crate::format::block::{DataBlock, Fate};
use crate::format::record::{Header, Kind, Step};
use crate::format::unit::{Part, UnitSum};
use crate::mutants::{Mutant, planted};
use crate::sync::atomic::AtomicUsize;
use crate::sync::atomic::Ordering::Relaxed;
use duramen_media::Medium;
use std::collections::HashMap;

/// What all blocks have of one unit.
#[derive(Default)]
struct Found {
    fate: Fate,
    sum: UnitSum,
    end: Option<UnitSum>,
}

impl<M: Medium> Scan<'_, M> {
    /// A record that belongs to a unit, or comes behind one. Whether nothing more is to be done with it.
    #[cold]
    pub(super) fn meet_of_unit(&self, reading: &mut Reading<'_>, at: u64, header: &Header) -> bool {
        let mut over = [None; 2];
        let mut parts = std::mem::take(&mut reading.outcome.units.parts);
        let is_member = parts.next(reading.base, at, header, &reading.bytes[at as usize..], |part| {
            let free = usize::from(over[0].is_some());
            over[free] = Some(part);
        });
        reading.outcome.units.parts = parts;
        for part in over.into_iter().flatten() {
            self.part_over(reading, part);
        }
        if is_member {
            reading.outcome.units.waiting.push((at, *header));
        }
        is_member || header.kind == Kind::End
    }

    /// There are no more records in a row.
    pub(super) fn finish_units(&self, reading: &mut Reading<'_>) {
        let mut last = None;
        std::mem::take(&mut reading.outcome.units.parts).finish(|part| last = Some(part));
        if let Some(part) = last {
            self.part_over(reading, part);
        }
    }

    fn part_over(&self, reading: &mut Reading<'_>, part: Part) {
        let waiting = std::mem::take(&mut reading.outcome.units.waiting);
        let fate = part.fate(reading.data.header.fates);
        if fate == Fate::Counts || planted(Mutant::EndNotLookedFor) {
            for (at, header) in &waiting {
                self.meet(reading, *at, header);
            }
        }
        if !part.is_whole() {
            reading.outcome.units.several.push((part, fate, reading.base));
        }
    }

    /// Enters the members of units of several blocks that count, and tells of those of which nobody knows.
    pub(super) fn count_units(&self, outcomes: &mut [(DataBlock, Outcome)], threads: usize) -> Vec<Left> {
        let mut units: HashMap<UnitId, Found> = HashMap::new();
        for (part, fate, _) in outcomes.iter().flat_map(|(_, outcome)| &outcome.units.several) {
            let found = units.entry(part.unit).or_default();
            found.sum = found.sum.plus(part.sum);
            found.end = found.end.or(part.end);
            if *fate != Fate::Open {
                found.fate = *fate;
            }
        }
        if units.is_empty() {
            return Vec::new();
        }
        let is_damaged = self.lost_heads
            || self.holes.damage().next().is_some()
            || outcomes.iter().any(|(_, outcome)| !outcome.damage.is_empty());
        let mut counting: Vec<(usize, Part, u64)> = Vec::new();
        for (number, (data, outcome)) in outcomes.iter_mut().enumerate() {
            for (part, _, base) in std::mem::take(&mut outcome.units.several)
                .into_iter()
                .filter(|(_, fate, _)| *fate == Fate::Open && !planted(Mutant::EndNotLookedFor))
            {
                let Some(found) = units.get(&part.unit) else { continue };
                let fate = match found.fate {
                    Fate::Open if found.end == Some(found.sum) => Fate::Counts,
                    Fate::Open if is_damaged || self.cannot_be_torn(found) => {
                        self.tell_undecided(data, outcome, &part, base);
                        continue;
                    }
                    Fate::Open => Fate::Void,
                    known => known,
                };
                match part.end {
                    Some(_) => outcome.fates.ended = fate,
                    None => outcome.fates.onward = fate,
                }
                if fate == Fate::Counts {
                    counting.push((number, part, base));
                }
            }
        }
        self.enter_stretches(outcomes, &counting, threads)
    }

    /// Whether no crash can have left so much of a unit, and not all.
    fn cannot_be_torn(&self, found: &Found) -> bool {
        self.all_sealed || found.end.is_some() && (self.killed || self.cut != Cut::ALL)
    }

    /// It is not known whether the members of a unit count.
    fn tell_undecided(&self, data: &DataBlock, outcome: &mut Outcome, part: &Part, base: u64) {
        let entry = self.blocks.at(data.granule);
        let bytes = bytes_at(self, data, base);
        outcome.damage.push(format!(
            "block at granule {} (offset {:#x}): {} records from offset {:#x} on belong to unit {:#x}, whose end{} \
             not found; it may be in what is \
             damaged, and they count only with it",
            data.granule.0,
            self.blocks.offset(data.granule),
            part.sum.count,
            base + part.from,
            part.unit.0,
            if part.end.is_some() { ", which is here, speaks of others that are" } else { " is" },
        ));
        outcome.claims.extend(claims_in(bytes, base, part.from, part.to));
        entry.set_doubtful(true);
        entry.set_unknown();
        if entry.state() == crate::log::blocks::Use::Sealed {
            entry.set_aside();
        }
    }

    /// Reads the members of units that count once more, and enters them.
    fn enter_stretches(
        &self,
        outcomes: &mut [(DataBlock, Outcome)],
        counting: &[(usize, Part, u64)],
        threads: usize,
    ) -> Vec<Left> {
        let next = AtomicUsize::new(0);
        let blocks: Vec<DataBlock> = counting.iter().map(|&(number, ..)| outcomes[number].0).collect();
        let work = || {
            let mut entries = Entries::new(self);
            let mut done = Vec::new();
            loop {
                let at = next.fetch_add(1, Relaxed);
                let (Some((number, part, base)), Some(data)) = (counting.get(at), blocks.get(at)) else {
                    break;
                };
                done.push((*number, self.enter_stretch(data, part, *base, &mut entries)));
            }
            (done, self.finish(entries))
        };
        let threads = if counting.len() < 2 { 1 } else { threads };
        let mut left = Vec::new();
        for (done, its) in crate::sync::on_threads(threads, work) {
            for (number, read) in done {
                let outcome = &mut outcomes[number].1;
                outcome.records += read.records;
                self.blocks.at(outcomes[number].0.granule).live_add(read.entered);
            }
            left.push(its);
        }
        left
    }

    fn enter_stretch(&self, data: &DataBlock, part: &Part, base: u64, entries: &mut Entries) -> Outcome {
        let (entry, bytes) = (self.blocks.at(data.granule), bytes_at(self, data, base));
        let (seeds, block_at) = (self.blocks.seeds(entry), self.blocks.offset(data.granule));
        let (seal, outcome) = (Some(part.to), Outcome::default());
        let mut reading = Reading { data, entry, bytes, base, seeds, block_at, seal, entries, outcome };
        let mut walk = reading.walk(part.from);
        while let Step::Record { at, header } = walk.step() {
            if header.kind != Kind::End {
                self.meet(&mut reading, at, &header);
            }
        }
        reading.outcome
    }
}

/// The bytes of a block from `base` on, which is where it begins, or where a part of it does that can be read.
fn bytes_at<'m, M: Medium>(scan: &Scan<'m, M>, data: &DataBlock, base: u64) -> &'m [u8] {
    let (bytes, behind) = bytes_of(scan.medium, scan.granule_bytes, data, scan.holes);
    let from = base - u64::from(data.granule.0) * scan.granule_bytes;
    behind.into_iter().find(|(at, _)| *at == from && from > 0).map_or(bytes, |(_, part)| part)
}
