//! Sessions of groups: records outside of the table, because a row may extend a session or link two.
//!
//! A group's entry in the table refers to its list here by the list's place plus one; zero is none. A session's record
//! has the words of an entry, including the key, so that code reads both alike. For checkpoints a list is a page: it is
//! touched before one of its sessions is changed, which code does only after [`Sessions::place`].

use std::collections::{BTreeSet, HashSet};

use super::pages::{Get, Numbers, Pages, Put, Reader, write_word};
use crate::error::Result;

/// One session of a group.
#[derive(Debug)]
pub struct Session {
    /// The time of its first row.
    pub start: i64,
    /// The time of its last row plus the gap.
    pub end: i64,
    /// Its record. Its address does not change.
    pub record: Box<[u64]>,
    /// Identifies it in the queue.
    serial: u64,
    /// The end under which it is in the queue.
    queued: i64,
}

/// All sessions of a breaker.
#[derive(Debug, Default)]
pub struct Sessions {
    lists: Vec<Vec<Session>>,
    pages: Pages,
    /// Lists that belong to no group.
    free: Vec<usize>,
    /// Number of lists of groups that have no session any more.
    empty: usize,
    /// When a session may close: its end when it was last looked at, its serial number, its list.
    queue: BTreeSet<(i64, u64, usize)>,
    serial: u64,
}

/// The result of placing a row.
#[derive(Debug)]
pub struct Placed {
    /// The session that the row belongs to: its list, and its place there.
    pub session: (usize, usize),
    /// Records of sessions that the row linked to it.
    pub linked: Vec<Box<[u64]>>,
}

fn page(list: &[Session]) -> Vec<u8> {
    let mut out = Vec::new();
    for session in list {
        write_word(&mut out, session.start as u64);
        write_word(&mut out, session.end as u64);
        write_word(&mut out, session.serial);
        write_word(&mut out, session.queued as u64);
        session.record.iter().for_each(|word| write_word(&mut out, *word));
    }
    out
}

impl Sessions {
    /// No sessions yet. With `tracked`, changes are recorded.
    pub fn new(tracked: bool) -> Sessions {
        Sessions { pages: Pages::new(tracked, 0), ..Sessions::default() }
    }

    fn touch(&mut self, list: usize) {
        let lists = &self.lists;
        self.pages.touch(list, || page(&lists[list]));
    }

    /// Puts a row with the time [start, end) into the group's list, whose number is in `word` of its entry.
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
        self.touch(list);
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
            self.queue.insert((end, self.serial, list));
            Session { start, end, record, serial: self.serial, queued: end }
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

    /// The first end at which a session may close.
    pub fn first_end(&self) -> Option<i64> {
        self.queue.first().map(|(end, ..)| *end)
    }

    /// Takes out a session that ends at `bound` or before.
    pub fn take_closed(&mut self, bound: i64) -> Option<Session> {
        loop {
            let (_, serial, list) = self.queue.first().copied().filter(|(end, ..)| *end <= bound)?;
            self.queue.pop_first();
            // A session that was linked to another one is gone.
            let Some(place) = self.lists[list].iter().position(|session| session.serial == serial) else {
                continue;
            };
            self.touch(list);
            let sessions = &mut self.lists[list];
            let end = sessions[place].end;
            if end > bound {
                sessions[place].queued = end;
                self.queue.insert((end, serial, list));
                continue;
            }
            let session = sessions.swap_remove(place);
            self.empty += usize::from(sessions.is_empty());
            return Some(session);
        }
    }

    /// Whether so many groups have no session that they should be removed from the table.
    pub fn is_sparse(&self) -> bool {
        self.empty > 1024 && self.empty > self.lists.len() / 2
    }

    /// Whether a group's entry still has sessions; if not, its list is freed.
    pub fn keeps(&mut self, entry: &[u64], word: usize) -> bool {
        let Some(list) = (entry[word] as usize).checked_sub(1) else { return false };
        let keeps = !self.lists[list].is_empty();
        if !keeps {
            self.free.push(list);
            self.empty -= 1;
        }
        keeps
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.lists.iter().flatten().map(|session| session.record.len() * 8 + size_of::<Session>()).sum()
    }

    /// Approximate bytes of lists that were copied and wait to be written out.
    pub fn copies(&self) -> usize {
        self.pages.copies()
    }

    /// Freezes everything for a checkpoint, and writes to `out` where to find it.
    pub fn freeze(&mut self, numbers: &mut Numbers, out: &mut Vec<u8>) {
        for word in [self.lists.len() as u64, self.pages.freeze(numbers), self.serial] {
            write_word(out, word);
        }
    }

    /// Writes frozen lists out until `budget` bytes are used up; returns whether all are written.
    pub fn save(&mut self, put: &mut Put<'_>, budget: &mut usize) -> bool {
        let lists = &self.lists;
        self.pages.save(|list| page(&lists[list]), put, budget)
    }

    /// Replaces everything by the frozen state: records of `words` words. `used` are the lists that groups refer to.
    pub fn restore(
        &mut self,
        reader: &mut Reader<'_>,
        words: usize,
        used: &HashSet<usize>,
        get: &mut Get<'_>,
        named: &mut Vec<u64>,
    ) -> Result<()> {
        let (count, number) = (reader.count()?, reader.word()?);
        named.push(number);
        *self = Sessions { serial: reader.word()?, ..Sessions::default() };
        for list in 0..count {
            let bytes = get(number, list as u32)?;
            let mut reader = Reader(&bytes);
            let mut sessions = Vec::new();
            while !reader.0.is_empty() {
                let (start, end) = (reader.word()? as i64, reader.word()? as i64);
                let (serial, queued) = (reader.word()?, reader.word()? as i64);
                let record: Result<Vec<u64>> = (0..words).map(|_| reader.word()).collect();
                self.queue.insert((queued, serial, list));
                sessions.push(Session { start, end, record: record?.into(), serial, queued });
            }
            if !used.contains(&list) {
                self.free.push(list);
            } else if sessions.is_empty() {
                self.empty += 1;
            }
            self.lists.push(sessions);
        }
        self.pages = Pages::restored(number, count);
        Ok(())
    }
}
