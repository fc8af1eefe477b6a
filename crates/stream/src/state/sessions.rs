//! Sessions of groups: records that lie outside of the table, because a row may lengthen a session, or link two.
//!
//! A group's entry in the table names its list here by its place plus one; zero is none. A session's record has the
//! words of an entry, the key among them, so that code reads both alike.

use std::collections::BTreeMap;

use super::table::Reader;
use crate::error::Result;

/// One session of a group.
#[derive(Debug)]
pub struct Session {
    /// The time of its first row.
    pub start: i64,
    /// The gap behind its last row.
    pub end: i64,
    /// Its record. Its address stays.
    pub record: Box<[u64]>,
    /// By which the queue knows it.
    serial: u64,
}

/// All sessions of a breaker.
#[derive(Debug, Default)]
pub struct Sessions {
    lists: Vec<Vec<Session>>,
    /// Lists of no group.
    free: Vec<usize>,
    /// Lists of groups that have no session any more.
    empty: usize,
    /// When a session may close: what its end was when it was looked at last.
    queue: BTreeMap<i64, Vec<(usize, u64)>>,
    serial: u64,
}

/// What became of a row.
#[derive(Debug)]
pub struct Placed {
    /// The session that the row belongs to: its list, and its place there.
    pub session: (usize, usize),
    /// Records of sessions that the row linked to it.
    pub linked: Vec<Box<[u64]>>,
}

impl Sessions {
    /// Puts a row of the time [start, end) into the group's list, whose number is in `word` of its entry.
    pub fn place(&mut self, entry: &mut [u64], word: usize, mut start: i64, mut end: i64) -> Placed {
        let list = match entry[word] {
            0 => {
                let list = self.free.pop().unwrap_or_else(|| {
                    self.lists.push(Vec::new());
                    self.lists.len() - 1
                });
                entry[word] = list as u64 + 1;
                list
            }
            list => {
                let list = list as usize - 1;
                if self.lists[list].is_empty() {
                    self.empty -= 1;
                }
                list
            }
        };
        let sessions = &mut self.lists[list];
        let mut met: Vec<Session> =
            sessions.extract_if(.., |other| other.start <= end && start <= other.end).collect();
        for other in &met {
            start = start.min(other.start);
            end = end.max(other.end);
        }
        let mut first = if met.is_empty() {
            self.serial += 1;
            let mut record = entry.to_vec().into_boxed_slice();
            record[word] = 0;
            self.queue.entry(end).or_default().push((list, self.serial));
            Session { start, end, record, serial: self.serial }
        } else {
            met.remove(0)
        };
        (first.start, first.end) = (start, end);
        sessions.push(first);
        let session = (list, sessions.len() - 1);
        Placed { session, linked: met.into_iter().map(|other| other.record).collect() }
    }

    /// A session.
    pub fn get(&mut self, (list, place): (usize, usize)) -> &mut Session {
        &mut self.lists[list][place]
    }

    /// The end at which a session may close first.
    pub fn first_end(&self) -> Option<i64> {
        self.queue.first_key_value().map(|(end, _)| *end)
    }

    /// Takes a session out that ends at `bound` or before.
    pub fn take_closed(&mut self, bound: i64) -> Option<Session> {
        loop {
            let mut first = self.queue.first_entry().filter(|first| *first.key() <= bound)?;
            let Some((list, serial)) = first.get_mut().pop() else {
                first.remove();
                continue;
            };
            if first.get().is_empty() {
                first.remove();
            }
            let sessions = &mut self.lists[list];
            // One that was linked to another is gone.
            let Some(place) = sessions.iter().position(|session| session.serial == serial) else { continue };
            let end = sessions[place].end;
            if end > bound {
                self.queue.entry(end).or_default().push((list, serial));
                continue;
            }
            let session = sessions.swap_remove(place);
            self.empty += usize::from(sessions.is_empty());
            return Some(session);
        }
    }

    /// Whether so many groups have no session that the table is worth clearing of them.
    pub fn is_sparse(&self) -> bool {
        self.empty > 1024 && self.empty > self.lists.len() / 2
    }

    /// Whether a group's entry still has sessions; if not, its list is free.
    pub fn keeps(&mut self, entry: &[u64], word: usize) -> bool {
        let Some(list) = (entry[word] as usize).checked_sub(1) else { return false };
        let keeps = !self.lists[list].is_empty();
        if !keeps {
            self.free.push(list);
            self.empty -= 1;
        }
        keeps
    }

    /// Bytes that are held.
    pub fn bytes(&self) -> usize {
        self.lists.iter().flatten().map(|session| session.record.len() * 8 + size_of::<Session>()).sum()
    }

    /// Writes everything to `out`.
    pub fn snapshot(&self, out: &mut Vec<u8>) {
        let mut word = |word: u64| out.extend_from_slice(&word.to_le_bytes());
        word(self.lists.len() as u64);
        for list in &self.lists {
            word(list.len() as u64);
            for session in list {
                word(session.start as u64);
                word(session.end as u64);
                word(session.record.len() as u64);
                session.record.iter().for_each(|value| word(*value));
            }
        }
        word(self.free.len() as u64);
        self.free.iter().for_each(|list| word(*list as u64));
        word(self.empty as u64);
    }

    /// Replaces everything by what was written. Returns what stands behind it.
    pub fn restore<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8]> {
        let mut reader = Reader(bytes);
        *self = Sessions::default();
        for list in 0..reader.word()? as usize {
            let mut sessions = Vec::new();
            for _ in 0..reader.word()? {
                let (start, end) = (reader.word()? as i64, reader.word()? as i64);
                let words = reader.word()?;
                let record: Result<Vec<u64>> = (0..words).map(|_| reader.word()).collect();
                self.serial += 1;
                self.queue.entry(end).or_default().push((list, self.serial));
                sessions.push(Session { start, end, record: record?.into(), serial: self.serial });
            }
            self.lists.push(sessions);
        }
        for _ in 0..reader.word()? {
            let list = reader.word()? as usize;
            self.free.push(list);
        }
        self.empty = reader.word()? as usize;
        Ok(reader.0)
    }
}
