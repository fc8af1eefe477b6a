//! Elements read without a lock: each is what it was at some moment.

use super::draft::Elements;
use super::history::Act;
use super::touch::Peek;
use super::values::{ABSENT, Id};
use super::work::Hand;
use crate::collections::{ELEMENTS, element_key, scan_elements};
use duramen::{ErrorKind, Value};
use duramen_media::sim::schedule::{self, Point};

impl Hand<'_> {
    /// Reads elements of the collection at a place.
    pub(super) fn peek(&mut self, place: usize, element: usize, how: Peek) -> Result<(), String> {
        schedule::say(&format!("peek at place {place}, element {element}, {how:?}"));
        let begun = self.recorder.now();
        let cell = self.plan.setup.cell_of_root(place);
        let found = self.store.get(self.plan.setup.key_of_place(place));
        let found = found.map_err(|error| format!("get of a root: {error}"))?;
        let id = self.recorder.id(found.as_ref());
        let mut acts = vec![Act::Read { key: cell, found: id }];
        let number = self.recorder.notes().values.collection(id);
        let name = found.as_ref().and_then(|found| found.meta().collection);
        drop(found);
        if let (Some(number), Some(name)) = (number, name) {
            let mut seen = Vec::new();
            let shown = self.store.collection(name).and_then(|elements| {
                self.peek_into(&elements, element, how, &mut |element, found| seen.push((element, found)))
            });
            let act = |(element, found)| Act::Element { collection: number, element, found: Some(found) };
            acts.extend(seen.into_iter().map(act));
            match shown {
                Ok(Ok(())) => {}
                Ok(Err(wrong)) => return Err(format!("without a lock, place {place}: {wrong}")),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    acts.push(Act::Element { collection: number, element, found: None });
                }
                Err(error) => return Err(format!("without a lock, place {place}: {error}")),
            }
        }
        self.recorder.saw(self.thread, begun, acts.into_iter());
        Ok(())
    }

    fn peek_into(
        &self,
        elements: &Elements,
        element: usize,
        how: Peek,
        see: &mut dyn FnMut(usize, Id),
    ) -> duramen::Result<Result<(), String>> {
        let at_of = |value: &Value<'_>| (0..ELEMENTS).find(|&at| element_key(at) == value.key());
        let mut see_value = |value: &Value<'_>| match at_of(value) {
            Some(at) => {
                see(at, self.id_of(value, 0));
                Ok(())
            }
            None => Err(format!("element {:02x?} was never written", value.key())),
        };
        match how {
            Peek::Get(hold) => {
                let found = elements.get(element_key(element))?;
                let copy = found.as_ref().map(|value| value.to_vec());
                see(element, found.as_ref().map_or(ABSENT, |value| self.id_of(value, 0)));
                for _ in 0..hold {
                    schedule::point(Point::Other, 0);
                    if found.as_deref() != copy.as_deref() {
                        return Ok(Err(format!("element {element} changed while it was being read")));
                    }
                }
                Ok(Ok(()))
            }
            Peek::Scan => {
                let mut seen = [false; ELEMENTS];
                let scanned = scan_elements(elements.reads(), &mut |at, value| {
                    seen[at] = true;
                    see(at, self.id_of(value, 0));
                })?;
                if scanned.is_ok() {
                    (0..ELEMENTS).filter(|&at| !seen[at]).for_each(|at| see(at, ABSENT));
                }
                Ok(scanned)
            }
            Peek::Ranked(reverse) => {
                let mut shown = Ok(());
                let visit = &mut |value: &Value<'_>| {
                    shown = see_value(value);
                    shown.is_ok()
                };
                match elements.ranked(if reverse { ELEMENTS as u64 } else { 0 }, reverse, visit) {
                    Err(error) if error.kind() == ErrorKind::Unsupported => {}
                    done => done?,
                }
                Ok(shown)
            }
            Peek::Pick => {
                let seed = self.thread as u64 ^ self.count << 8;
                let picked = elements.pick(seed, &mut |_| true)?;
                Ok(picked.map_or(Ok(()), |value| see_value(&value)))
            }
        }
    }
}
