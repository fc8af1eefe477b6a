//! The operations of the threads on the store, and their checks.

use super::oracle::{Failure, Key, Kind, Random};
use duramen::{Batch, Meta, Stamp, Store, Swap, Update, Writer};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The state that all threads share.
pub struct Run<'a> {
    pub store: &'a Store,
    pub keys: &'a [Key],
    /// Threads that write; key `i` belongs to thread `i / 2 % writers`.
    pub writers: usize,
    pub stop: AtomicBool,
    pub writes: AtomicU64,
    pub reads: AtomicU64,
    pub scans: AtomicU64,
    pub short_writers: AtomicU64,
}

impl Run<'_> {
    fn owner(&self, index: usize) -> usize {
        index / 2 % self.writers
    }

    /// Puts, deletes, updates, batches and conditional writes of one thread.
    pub fn write(&self, thread: usize, mut random: Random) -> Result<(), Failure> {
        let mut writer = self.store.writer()?;
        // Writes of a group, which count when it is flushed.
        let mut group: Option<Vec<(usize, u64)>> = None;
        let mut done = 0u64;
        while !self.stop.load(Relaxed) {
            let index = random.below(self.keys.len() as u64) as usize;
            let key = &self.keys[index];
            if key.kind != Kind::Shared && self.owner(index) != thread {
                continue;
            }
            let mut wrote = Vec::new();
            match key.kind {
                Kind::Owned => wrote.push((index, write_owned(&mut writer, key)?)),
                Kind::Cell => wrote.push((index, update(&mut writer, key)?)),
                Kind::Pair => {
                    let first = index & !1;
                    let mut batch = Batch::new();
                    for index in [first, first + 1] {
                        let sequence = self.keys[index].begin();
                        batch.put(self.keys[index].bytes(), self.keys[index].value(sequence));
                        wrote.push((index, sequence));
                    }
                    if writer.apply(&batch)? != Swap::Done {
                        return Err("a batch without conditions was refused".into());
                    }
                }
                // It waits for the answer, which a group does not have yet.
                Kind::Shared if group.is_none() => count_up(&mut writer, key)?,
                Kind::Shared | Kind::Short | Kind::Still => continue,
            }
            done += 1;
            match &mut group {
                Some(group) => group.extend(wrote),
                None => wrote.iter().for_each(|&(index, sequence)| self.keys[index].acknowledge(sequence)),
            }
            if group.as_ref().is_some_and(|group| group.len() > 20) {
                writer.flush_group()?;
                for (index, sequence) in group.take().unwrap_or_default() {
                    self.keys[index].acknowledge(sequence);
                }
            } else if group.is_none() && random.below(100) == 0 {
                writer.group();
                group = Some(Vec::new());
            }
            if done.is_multiple_of(256) {
                self.writes.fetch_add(256, Relaxed);
                // Returns the block half full, and takes any available one.
                if random.below(8) == 0 && group.is_none() {
                    writer = self.store.writer()?;
                }
            }
        }
        writer.flush_group()?;
        for (index, sequence) in group.unwrap_or_default() {
            self.keys[index].acknowledge(sequence);
        }
        self.writes.fetch_add(done % 256, Relaxed);
        Ok(())
    }

    /// A new writer for each record.
    pub fn write_shortly(&self, mut random: Random) -> Result<(), Failure> {
        while !self.stop.load(Relaxed) {
            let key = &self.keys[random.below(self.keys.len() as u64) as usize];
            if key.kind == Kind::Short {
                let mut writer = self.store.writer()?;
                let sequence = write_owned(&mut writer, key)?;
                key.acknowledge(sequence);
                self.short_writers.fetch_add(1, Relaxed);
            }
        }
        Ok(())
    }

    /// Reads random keys, one by one and several at a time.
    pub fn read(&self, mut random: Random) -> Result<(), Failure> {
        let mut done = 0;
        while !self.stop.load(Relaxed) {
            let index = random.below(self.keys.len() as u64) as usize;
            let key = &self.keys[index];
            let first = self.read_one(key)?;
            if key.kind == Kind::Pair {
                // One batch wrote both: the other is no older than the value seen of this one.
                let other = self.read_one(&self.keys[index ^ 1])?;
                if other < first {
                    return Err(format!("batch seen in part: {first:?} here and then {other:?} there").into());
                }
            }
            if random.below(16) == 0 {
                self.read_many(&mut random)?;
            }
            done += 1;
            if done % 256 == 0 {
                self.reads.fetch_add(256, Relaxed);
            }
        }
        Ok(())
    }

    fn read_one(&self, key: &Key) -> Result<Option<u64>, Failure> {
        let from = key.acknowledged();
        let value = self.store.get(key.bytes())?;
        key.check(value.as_deref(), from, key.begun())
    }

    fn read_many(&self, random: &mut Random) -> Result<(), Failure> {
        let keys: Vec<&Key> =
            (0..8).map(|_| &self.keys[random.below(self.keys.len() as u64) as usize]).collect();
        let from: Vec<u64> = keys.iter().map(|key| key.acknowledged()).collect();
        let bytes: Vec<Vec<u8>> = keys.iter().map(|key| key.bytes()).collect();
        let slices: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
        let values = self.store.get_many(&slices)?;
        for ((key, from), value) in keys.iter().zip(from).zip(values) {
            key.check(value.as_deref(), from, key.begun())?;
        }
        Ok(())
    }

    /// Scans everything: unchanged keys must be seen, and every value seen must have been written.
    pub fn scan(&self) -> Result<(), Failure> {
        let still: Vec<Vec<u8>> =
            self.keys.iter().filter(|k| k.kind == Kind::Still).map(Key::bytes).collect();
        let by_bytes: std::collections::HashMap<Vec<u8>, &Key> =
            self.keys.iter().map(|key| (key.bytes(), key)).collect();
        while !self.stop.load(Relaxed) {
            let mut seen = std::collections::HashSet::new();
            let mut failed = None;
            self.store.for_each(|value| {
                let checked = match by_bytes.get(value.key()) {
                    // Its age cannot be checked here: a value found by a scan may be superseded in the meantime.
                    Some(key) => key.check(Some(value), 1, key.begun()).map(|_| ()),
                    None => Err(format!("a key that nobody wrote: {:?}", value.key()).into()),
                };
                seen.insert(value.key().to_vec());
                failed = failed.take().or(checked.err());
            })?;
            if let Some(failure) = failed {
                return Err(failure);
            }
            if let Some(missing) = still.iter().find(|key| !seen.contains(*key)) {
                return Err(format!("scan misses the key {missing:?}, which was present all the time").into());
            }
            self.scans.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Every key holds exactly the last acknowledged write, and there are no other keys.
    pub fn verify(&self, when: &str) -> Result<(), Failure> {
        let mut live = 0;
        for key in self.keys {
            let last = key.acknowledged();
            let value = self.store.get(key.bytes())?;
            key.check(value.as_deref(), last, last).map_err(|failure| format!("{when}: {failure}"))?;
            live += u64::from(value.is_some());
        }
        if self.store.len() != live {
            return Err(format!(
                "{when}: the store counts {} keys, but {live} are present",
                self.store.len()
            )
            .into());
        }
        Ok(())
    }
}

/// The next put or delete of a key that nobody else writes.
fn write_owned(writer: &mut Writer, key: &Key) -> Result<u64, Failure> {
    let sequence = key.begin();
    if key.is_absent_at(sequence) {
        let was_there = writer.delete(key.bytes())?;
        if was_there == key.is_absent_at(sequence - 1) {
            return Err(format!("delete {sequence} of key {} found {was_there}", key.number).into());
        }
    } else {
        writer.put(key.bytes(), key.value(sequence))?;
    }
    Ok(sequence)
}

fn update(writer: &mut Writer, key: &Key) -> Result<u64, Failure> {
    let sequence = key.begin();
    if sequence % 32 == 1 {
        let meta = Meta { updatable: true, ..Meta::default() };
        writer.put_with(key.bytes(), key.value(sequence), meta)?;
    } else if writer.update(&key.bytes(), 0, &sequence.to_le_bytes())? == Update::Absent {
        return Err(format!("update {sequence} of cell {} found nothing", key.number).into());
    }
    Ok(sequence)
}

fn count_up(writer: &mut Writer, key: &Key) -> Result<(), Failure> {
    key.begin();
    loop {
        let (stamp, next): (Stamp, u64) = {
            let (stamp, value) = writer.get_stamped(key.bytes())?;
            let now = value.as_ref().and_then(|value| value.first_chunk().copied());
            (stamp, now.map_or(0, u64::from_le_bytes) + 1)
        };
        if writer.compare_and_swap(&key.bytes(), stamp, Some((&key.value(next), Meta::default())))?
            == Swap::Done
        {
            key.acknowledge_one();
            return Ok(());
        }
    }
}
