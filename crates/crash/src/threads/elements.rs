//! Operations of a thread on collections. A thread locks the keys of the roots before it writes elements or reads
//! several. Roots alone may be written without locks, and single elements read (`peek`).

use super::draft::{Draft, Failed, Named, Todo, Writer, root_value};
use super::history::Act;
use super::section::{Section, Write};
use super::touch::{Touch, Way};
use super::values::{ABSENT, Id, ROOT_TAG, Values};
use super::work::Hand;
use crate::collections::{ELEMENTS, KINDS, Root, STRING, element_key, read_elements, root_of};
use crate::setup::Change;
use duramen::{Batch, CollectionOn, ErrorKind, Meta, Stamp, Swap};
use duramen_media::sim::schedule;

impl Hand<'_> {
    pub(super) fn touch(&mut self, touch: &Touch) -> Result<(), String> {
        match touch {
            Touch::Peek { place, element, how } => self.peek(*place, *element, *how),
            Touch::Change { changes, keys, way: Way::Free } => match &changes[0] {
                Change::Rename { from, to } if from != to => self.rename_freely(*from, *to),
                change @ (Change::Make { .. } | Change::Overwrite { .. } | Change::Delete { .. }) => {
                    let change = std::slice::from_ref(change);
                    self.in_one_step(
                        &[],
                        &[],
                        |hand, writer| {
                            let mut draft = Draft::default();
                            hand.draft(&mut draft, writer, change, &[])?;
                            Ok(draft)
                        },
                        Way::Free,
                    )
                }
                _ => self.change(changes, keys, Way::Transaction),
            },
            Touch::Change { changes, keys, way } => self.change(changes, keys, *way),
            Touch::Look { places, keys } => self.in_one_step(
                places,
                keys,
                |hand, writer| {
                    let mut draft = Draft::default();
                    hand.see_keys(&mut draft, writer, keys)?;
                    places.iter().try_for_each(|place| hand.look(&mut draft, writer, *place))?;
                    // Nothing has changed meanwhile.
                    let mut again = Draft::default();
                    places.iter().try_for_each(|place| hand.see_root(&mut again, writer, *place))?;
                    if again.section.saw.iter().any(|seen| !draft.section.saw.contains(seen)) {
                        return Err("a root changed while its key was locked".to_owned().into());
                    }
                    Ok(draft)
                },
                Way::Transaction,
            ),
        }
    }

    fn change(
        &mut self,
        changes: &[Change],
        keys: &[(usize, Option<usize>)],
        way: Way,
    ) -> Result<(), String> {
        let mut places: Vec<usize> = changes
            .iter()
            .flat_map(|change| match *change {
                Change::Make { place, .. }
                | Change::Elements { place, .. }
                | Change::Again { place, .. }
                | Change::Overwrite { place }
                | Change::Delete { place } => vec![place],
                Change::Rename { from, to } => vec![from, to],
            })
            .collect();
        places.sort_unstable();
        places.dedup();
        let names: Vec<usize> = keys.iter().map(|(key, _)| *key).collect();
        self.in_one_step(
            &places,
            &names,
            |hand, writer| {
                let mut draft = Draft::default();
                places.iter().try_for_each(|place| hand.see_root(&mut draft, writer, *place))?;
                hand.see_keys(&mut draft, writer, &names)?;
                hand.draft(&mut draft, writer, changes, keys)?;
                Ok(draft)
            },
            way,
        )
    }

    /// Locks the keys of these places and these plain keys, unless the step runs without locks; then drafts the writes
    /// and makes them.
    fn in_one_step(
        &mut self,
        places: &[usize],
        keys: &[usize],
        mut draft: impl FnMut(&mut Self, &Writer) -> Result<Draft, Failed>,
        way: Way,
    ) -> Result<(), String> {
        let Some(mut writer) = self.take_writer()? else { return Err("no writer".into()) };
        let setup = &self.plan.setup;
        let roots = places.iter().map(|&place| setup.key_of_place(place));
        let names: Vec<Vec<u8>> = roots.chain(keys.iter().map(|&key| setup.keys[key].clone())).collect();
        let (recorder, thread, group) = (self.recorder, self.thread, self.group);
        let work = || {
            let mut once = |writer: &mut Writer| {
                let draft = draft(self, writer)?;
                schedule::say(&format!("in one step, {way:?}: {:?}", draft.section.writes));
                let done = draft.write(writer, way);
                if done.is_err() {
                    draft.made.into_iter().for_each(CollectionOn::abandon);
                }
                done.map(|()| draft.section)
            };
            let done = match way {
                Way::Free => once(&mut writer),
                _ => writer.locked(names.iter().map(|name| &name[..]), once),
            };
            match done {
                Ok(section) => Ok(Ok(section)),
                Err(Failed::Wrong(wrong)) => Ok(Err(wrong)),
                Err(Failed::Engine(error)) => Err(error),
            }
        };
        let report = |act: &mut Act, reported: &Result<Section, String>, _: &mut Values| {
            if let (Act::Section(section), Ok(reported)) = (act, reported) {
                section.clone_from(reported);
            }
        };
        let done = recorder.call(thread, group, Act::Section(Section::default()), work, report);
        self.writer = Some(writer);
        done?.map_or(Ok(()), |done| done.map(|_| ()))
    }

    /// The writer, made if there is none.
    fn take_writer(&mut self) -> Result<Option<Writer>, String> {
        match self.writer.take() {
            None => self.store.writer().map(Some).map_err(|error| error.to_string()),
            writer => Ok(writer),
        }
    }

    /// A unique number.
    fn number(&mut self) -> u64 {
        self.count += 1;
        (self.thread as u64) << 24 | self.count
    }

    pub(super) fn id_of(&self, value: &[u8], tag: u8) -> Id {
        self.recorder.notes().values.id(value, tag)
    }

    fn see_keys(&self, draft: &mut Draft, writer: &Writer, keys: &[usize]) -> Result<(), Failed> {
        for &key in keys {
            let found = writer.get(&self.plan.setup.keys[key])?;
            draft.section.saw.push((key, self.recorder.id(found.as_ref())));
        }
        Ok(())
    }

    fn see_root(&self, draft: &mut Draft, writer: &Writer, place: usize) -> Result<(), Failed> {
        let found = writer.get(self.plan.setup.key_of_place(place))?;
        let id = self.recorder.id(found.as_ref());
        draft.section.saw.push((self.plan.setup.cell_of_root(place), id));
        let root = found.map(|found| root_of(&self.store, &found)).transpose()?;
        let number = self.recorder.notes().values.collection(id);
        let named = match (root, number) {
            (Some((entry, Some(handle))), Some(number)) => {
                Some(Named { kind: entry.value[0], number, handle })
            }
            (Some((_, None)) | None, None) => None,
            (root, number) => {
                let named: Option<Root> = root;
                return Err(format!("root {named:?} of collection {number:?}").into());
            }
        };
        draft.named.insert(place, named);
        Ok(())
    }

    /// Reads the whole content of a place.
    fn look(&self, draft: &mut Draft, writer: &Writer, place: usize) -> Result<(), Failed> {
        self.see_root(draft, writer, place)?;
        let cell = self.plan.setup.cell_of_root(place) + 1;
        let mut cells = vec![None; ELEMENTS];
        if let Some(Some(named)) = draft.named.get(&place) {
            read_elements(&named.handle, writer.read(&named.handle), None, &mut cells)
                .map_err(|wrong| format!("under the lock of place {place}: {wrong}"))?;
        }
        let ids =
            cells.iter().map(|entry| entry.as_ref().map_or(ABSENT, |entry| self.id_of(&entry.value, 0)));
        draft.section.saw.extend((cell..).zip(ids));
        Ok(())
    }

    /// Adds the combined effect of these successive changes and of writes of plain keys.
    fn draft(
        &mut self,
        draft: &mut Draft,
        writer: &Writer,
        changes: &[Change],
        keys: &[(usize, Option<usize>)],
    ) -> Result<(), Failed> {
        for change in changes {
            self.draft_change(draft, writer, change)?;
        }
        for &(key, bytes) in keys {
            let new = bytes.map(|bytes| self.bytes(bytes));
            let value = new.as_ref().map_or(ABSENT, |new| self.id_of(new, 9));
            draft.section.writes.push(Write::Key { cell: key, value });
            let meta = Meta { tag: 9, ..Meta::default() };
            draft.todo_key(self.plan.setup.keys[key].clone(), new.map(|new| (new, meta)));
            draft.was = draft.section.saw.iter().any(|&(cell, seen)| cell == key && seen != ABSENT);
        }
        Ok(())
    }

    fn draft_change(&mut self, draft: &mut Draft, writer: &Writer, change: &Change) -> Result<(), Failed> {
        let over = match change {
            Change::Make { place, .. } | Change::Overwrite { place } | Change::Delete { place } => {
                Some(place)
            }
            Change::Rename { to, .. } => Some(to),
            Change::Elements { .. } | Change::Again { .. } => None,
        };
        // A reader with a handle sees the elements until their collection is known to be deleted, just after the step
        // that deletes its root. Elements written in that step would be visible although they never existed.
        if over.is_some_and(|place| draft.has_written_to(*place)) {
            return Ok(());
        }
        match change {
            Change::Make { place, kind, elements, .. } => {
                let handle = self.store.new_collection(KINDS[*kind]);
                draft.made.push(handle.clone());
                let named = Named { kind: *kind as u8, number: self.number(), handle };
                // The root first, or last.
                let root_first = self.count.is_multiple_of(2);
                if root_first {
                    self.draft_root(draft, *place, Some(&named));
                }
                for &(element, bytes) in elements {
                    self.draft_element(draft, &named, element, Some(bytes));
                }
                if !root_first {
                    // Elements of a collection without a root do not exist, so the root comes first in the model.
                    let writes = draft.section.writes.len() - elements.len();
                    self.draft_root(draft, *place, Some(&named));
                    draft.section.writes[writes..].rotate_right(1);
                }
                self.now_at(draft, *place, Some(named));
            }
            Change::Elements { place, writes } => {
                let Some(Some(named)) = draft.named.get(place).cloned() else { return Ok(()) };
                for &(element, bytes) in writes {
                    if !draft.moved.contains(place) {
                        let found = writer.read(&named.handle).get(element_key(element))?;
                        let cell = self.plan.setup.cell_of_root(*place) + 1 + element;
                        draft.was = found.is_some();
                        draft.section.saw.push((cell, self.recorder.id(found.as_ref())));
                    }
                    self.draft_element(draft, &named, element, bytes);
                }
            }
            Change::Rename { from, to } => {
                let Some(Some(named)) = draft.named.get(from).cloned() else { return Ok(()) };
                if from == to {
                    return Ok(());
                }
                draft.todo_key(self.plan.setup.key_of_place(*from), None);
                let value = self.todo_root(draft, *to, Some(&named));
                draft.section.writes.push(Write::Move { from: *from, to: *to, value });
                self.now_at(draft, *from, None);
                self.now_at(draft, *to, Some(named));
            }
            Change::Again { place, .. } => {
                if let Some(Some(named)) = draft.named.get(place).cloned() {
                    self.draft_root(draft, *place, Some(&named));
                }
            }
            Change::Overwrite { place } => {
                self.draft_root(draft, *place, None);
                self.now_at(draft, *place, None);
            }
            Change::Delete { place } => {
                let cell = self.plan.setup.cell_of_root(*place);
                draft.was = draft.section.saw.iter().any(|&(other, seen)| other == cell && seen != ABSENT);
                draft.todo_key(self.plan.setup.key_of_place(*place), None);
                draft.section.writes.push(Write::Root { place: *place, value: ABSENT });
                self.now_at(draft, *place, None);
            }
        }
        Ok(())
    }

    fn now_at(&self, draft: &mut Draft, place: usize, named: Option<Named>) {
        draft.named.insert(place, named);
        draft.moved.push(place);
    }

    /// A root at a place, which points to this collection, or a plain value.
    fn draft_root(&mut self, draft: &mut Draft, place: usize, named: Option<&Named>) {
        let value = self.todo_root(draft, place, named);
        draft.section.writes.push(Write::Root { place, value });
    }

    fn todo_root(&mut self, draft: &mut Draft, place: usize, named: Option<&Named>) -> Id {
        let change = self.number();
        let value = match named {
            Some(named) => root_value(named.kind, named.number, change),
            None => root_value(STRING, 0, change),
        };
        let id = self.id_of(&value, ROOT_TAG);
        let collection = named.map(|named| named.handle.id());
        let meta = Meta { tag: ROOT_TAG, collection, ..Meta::default() };
        draft.todo_key(self.plan.setup.key_of_place(place), Some((value, meta)));
        id
    }

    fn draft_element(&mut self, draft: &mut Draft, named: &Named, element: usize, bytes: Option<usize>) {
        let new = bytes.map(|bytes| {
            // Of few orders, so that some have the same.
            let order = self.number() % 4;
            [&order.to_be_bytes()[..], &self.bytes(bytes.max(8))].concat()
        });
        let value = new.as_ref().map_or(ABSENT, |new| self.id_of(new, 0));
        draft.section.writes.push(Write::Element { collection: named.number, element, value });
        draft.todo_element(named, element, new);
    }

    /// Renames a collection, if its key has not changed since it was read.
    fn rename_freely(&mut self, from: usize, to: usize) -> Result<(), String> {
        let Some(mut writer) = self.take_writer()? else { return Err("no writer".into()) };
        let mut draft = Draft::default();
        let seen = self.stamp_of_root(&mut draft, from);
        let done = seen.and_then(|seen| {
            let Some((stamp, named)) = seen else { return Ok(()) };
            let (source, target) = (self.plan.setup.key_of_place(from), self.plan.setup.key_of_place(to));
            let value = self.todo_root(&mut draft, to, Some(&named));
            draft.section.writes.push(Write::Move { from, to, value });
            let mut batch = Batch::new();
            batch.expect(&source, stamp).delete(&source);
            for Todo { new, .. } in &draft.todo {
                if let Some((value, meta)) = new {
                    batch.put_with(&target, value, *meta);
                }
            }
            let work = || match writer.apply(&batch) {
                // The collection is gone, and so is its root.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(Swap::Changed),
                done => done,
            };
            let section = draft.section.clone();
            let report = move |act: &mut Act, reported: &Swap, _: &mut Values| {
                if let (Act::Section(reported), Swap::Done) = (act, reported) {
                    *reported = section;
                }
            };
            let act = Act::Section(Section::default());
            self.recorder.call(self.thread, self.group, act, work, report).map(|_| ())
        });
        self.writer = Some(writer);
        done
    }

    /// The collection at a place, with the stamp of its root; `draft` expects that root.
    fn stamp_of_root(&self, draft: &mut Draft, place: usize) -> Result<Option<(Stamp, Named)>, String> {
        let begun = self.recorder.now();
        let cell = self.plan.setup.cell_of_root(place);
        let key = self.plan.setup.key_of_place(place);
        // Not by the writer's own read: within a group its result may not be reported.
        let found = self.store.get(&key).map_err(|error| format!("get of a root: {error}"))?;
        let id = self.recorder.id(found.as_ref());
        self.recorder.saw(self.thread, begun, std::iter::once(Act::Read { key: cell, found: id }));
        draft.section.saw.push((cell, id));
        let number = self.recorder.notes().values.collection(id);
        let (Some(found), Some(number)) = (found, number) else { return Ok(None) };
        let Some(name) = found.meta().collection else { return Err("a root refers to no collection".into()) };
        let handle = match self.store.collection(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            handle => handle.map_err(|error| error.to_string())?,
        };
        Ok(Some((found.stamp(), Named { kind: found[0], number, handle })))
    }
}
