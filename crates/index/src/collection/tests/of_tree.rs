//! The tree. The record of an element lies at a place that gives its number; elements of one order are ordered by
//! number.

use super::of_map::{mix, words};
use super::of_pages::pages;
use crate::Slot;
use crate::collection::tree::Tree;
use duramen_media::Offset;
use proptest::prelude::*;
use std::cmp::Ordering;
use std::collections::BTreeMap;

const NUMBERS: u64 = 1 << 32;
const CASES: u32 = 24;

/// An element: its order and its number.
type Element = (u64, u64);

fn number_of(slot: Slot) -> u64 {
    slot.location().0 / 8 % NUMBERS - 1
}

/// A slot for the record of an element, one of many.
fn slot_of(number: u64, place: u64) -> Slot {
    Slot::new(Offset((number + 1 + place % 16 * NUMBERS) * 8))
}

/// How records compare with that of an element.
fn to(number: u64) -> impl Fn(Slot) -> Ordering {
    move |slot| number_of(slot).cmp(&number)
}

#[derive(Clone, Copy, Debug)]
enum Orders {
    All,
    /// This many different ones.
    Few(u64),
}

impl Orders {
    fn element(self, key: u64) -> Element {
        match self {
            Self::All => (key * 3, 0),
            Self::Few(count) => (key % count * 3, key),
        }
    }
}

struct Tested {
    tree: Tree,
    model: BTreeMap<Element, Slot>,
    orders: Orders,
}

impl Tested {
    fn new(orders: Orders) -> Self {
        Self { tree: Tree::new(pages()), model: BTreeMap::new(), orders }
    }

    fn put(&mut self, key: u64, place: u64) {
        let (order, number) = self.orders.element(key);
        let slot = slot_of(number, place).with_more_stale(place % 32);
        let old = self.tree.insert(order, slot, to(number));
        assert_eq!(old, self.model.insert((order, number), slot));
    }

    fn set(&mut self, key: u64, place: u64) {
        let (order, number) = self.orders.element(key);
        let slot = slot_of(number, place).with_more_stale(place % 32);
        let old = self.tree.set(order, slot, to(number));
        assert_eq!(old, self.model.get(&(order, number)).copied());
        if old.is_some() {
            self.model.insert((order, number), slot);
        }
    }

    fn remove(&mut self, key: u64) {
        let (order, number) = self.orders.element(key);
        assert_eq!(self.tree.remove(order, to(number)), self.model.remove(&(order, number)));
    }

    /// A checkpoint keeps where a slot points; the map has its marks.
    fn reload(&mut self) {
        let mut tree = Tree::new(pages());
        tree.fill(
            self.tree.len(),
            self.all().into_iter().map(|(order, slot)| (order, Slot::new(slot.location()))),
        );
        self.tree = tree;
        self.model.values_mut().for_each(|slot| *slot = Slot::new(slot.location()));
    }

    fn all(&self) -> Vec<(u64, Slot)> {
        self.model.iter().map(|(&(order, _), &slot)| (order, slot)).collect()
    }

    fn check(&self) -> u64 {
        let leaves = self.tree.check(&|one, other| number_of(one).cmp(&number_of(other)));
        let (want, mut all) = (self.all(), Vec::new());
        self.tree.each(&mut |order, slot| all.push((order, slot)));
        assert_eq!(all, want);
        assert_eq!(self.tree.len(), want.len() as u64);
        assert_eq!((self.tree.first(), self.tree.last()), (want.first().copied(), want.last().copied()));
        for (rank, (&(order, number), &slot)) in self.model.iter().enumerate() {
            assert_eq!(self.tree.find(order, to(number)), Some(slot));
            assert_eq!(self.tree.rank(order, to(number)), rank as u64);
            assert_eq!(self.tree.nth(rank as u64), Some((order, slot)));
        }
        assert_eq!(self.tree.nth(want.len() as u64), None);
        leaves
    }

    /// A walk from a bound, some steps forward and some back.
    fn walk(&self, order: u64, behind: bool, turns: u64) {
        let all = self.all();
        let mut rank = all.partition_point(|&(other, _)| other < order || behind && other == order);
        let bound = if behind { Ordering::Less } else { Ordering::Greater };
        assert_eq!(self.tree.rank(order, |_| bound), rank as u64);
        let mut cursor = self.tree.seek(order, |_| bound);
        for at in 0..64 {
            for _ in 0..(turns >> at) % 7 * 20 {
                assert_eq!(cursor.rank(), rank as u64);
                if turns >> at & 1 == 0 {
                    assert_eq!(cursor.forward(), all.get(rank).copied());
                    rank = (rank + 1).min(all.len());
                } else {
                    assert_eq!(cursor.back(), rank.checked_sub(1).map(|before| all[before]));
                    rank = rank.saturating_sub(1);
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Put(u64, u64),
    Set(u64, u64),
    Remove(u64),
    Absent(u64),
    Walk(u64, bool, u64),
    /// This many consecutive ones, upwards or downwards.
    PutMany(u64, u64, bool),
    /// This many, scattered.
    Scatter(u64, u64),
    RemoveMany(u64, u64),
    RemoveScattered(u64, u64),
    Clear(usize),
    /// Through an index checkpoint.
    Reload,
}

fn steps(keys: u64, many: u64) -> impl Strategy<Value = Vec<Step>> {
    let key = 0..keys;
    let step = prop_oneof![
        6 => (key.clone(), any::<u64>()).prop_map(|(key, place)| Step::Put(key, place)),
        4 => (key.clone(), any::<u64>()).prop_map(|(key, place)| Step::Set(key, place)),
        4 => key.clone().prop_map(Step::Remove),
        2 => key.clone().prop_map(Step::Absent),
        2 => (key.clone(), any::<bool>(), any::<u64>()).prop_map(|(key, behind, turns)| Step::Walk(key, behind, turns)),
        3 => (key.clone(), 1..many, any::<bool>()).prop_map(|(key, count, up)| Step::PutMany(key, count, up)),
        3 => (key.clone(), 1..many).prop_map(|(key, count)| Step::Scatter(key, count)),
        3 => (key.clone(), 1..many).prop_map(|(key, count)| Step::RemoveMany(key, count)),
        2 => (key, 1..many).prop_map(|(key, count)| Step::RemoveScattered(key, count)),
        1 => (1..20usize).prop_map(Step::Clear),
        1 => Just(Step::Reload),
    ];
    prop::collection::vec(step, 1..200)
}

fn orders() -> impl Strategy<Value = Orders> {
    prop_oneof![Just(Orders::All), (1..40u64).prop_map(Orders::Few), (1..2_000u64).prop_map(Orders::Few)]
}

fn run(orders: Orders, steps: &[Step], keys: u64) {
    let mut tested = Tested::new(orders);
    for (at, &step) in steps.iter().enumerate() {
        match step {
            Step::Put(key, place) => tested.put(key, place),
            Step::Set(key, place) => tested.set(key, place),
            Step::Remove(key) => tested.remove(key),
            Step::Reload => tested.reload(),
            Step::Absent(key) => {
                // Between two orders.
                assert_eq!(tested.tree.find(key * 3 + 1, |_| Ordering::Equal), None);
                assert_eq!(tested.tree.remove(key * 3 + 1, |_| Ordering::Equal), None);
            }
            Step::Walk(key, behind, turns) => tested.walk(orders.element(key).0, behind, turns),
            Step::PutMany(from, count, true) => (from..from + count).for_each(|key| tested.put(key, key)),
            Step::PutMany(from, count, false) => {
                (from..from + count).rev().for_each(|key| tested.put(key, key))
            }
            Step::Scatter(from, count) => {
                (from..from + count).for_each(|key| tested.put(mix(key) % keys, key))
            }
            Step::RemoveMany(from, count) => (from..from + count).for_each(|key| tested.remove(key)),
            Step::RemoveScattered(from, count) => {
                (from..from + count).for_each(|key| tested.remove(mix(key) % keys));
            }
            Step::Clear(pages) if at % 16 == 0 => {
                let (mut cleared, mut calls) = (Vec::new(), 0);
                while !tested.tree.clear_some(pages, &mut |slot| cleared.push(slot.location())) {
                    assert_eq!((tested.tree.len(), tested.tree.first()), (0, None));
                    calls += 1;
                    assert!(calls < 10_000);
                }
                cleared.sort_unstable();
                let mut want: Vec<_> = tested.model.values().map(|slot| slot.location()).collect();
                want.sort_unstable();
                assert_eq!(cleared, want);
                tested.model.clear();
            }
            Step::Clear(_) => {}
        }
        if at % 8 == 0 {
            tested.check();
        }
    }
    tested.check();
    for (order, number) in tested.model.keys().copied().collect::<Vec<_>>() {
        assert!(tested.tree.remove(order, to(number)).is_some());
        tested.model.remove(&(order, number));
    }
    tested.check();
    assert_eq!(tested.tree.pages().bytes(), 0, "an empty tree has pages");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn a_tree_holds_what_a_model_holds(orders in orders(), steps in steps(8_000, 2_500)) {
        run(orders, &steps, 8_000);
    }

    #[test]
    fn a_small_tree_holds_what_a_model_holds(orders in orders(), steps in steps(400, 50)) {
        run(orders, &steps, 400);
    }
}

/// Bytes an entry, without those of `Tree` itself.
fn bytes_each(tree: &Tree) -> f64 {
    tree.pages().bytes() as f64 / tree.len() as f64
}

#[test]
fn leaves_are_well_filled_whatever_the_order() {
    const COUNT: u64 = 200_000;
    for (name, most, order) in [
        ("upwards", 16.7, (|key| key) as fn(u64) -> u64),
        ("downwards", 16.7, |key| COUNT - key),
        ("all over", 20.0, mix),
        ("upwards in two halves", 20.0, |key| key / 2 + key % 2 * COUNT),
        ("at an end, nearly in order", 20.0, |key| key / 8 * 8 + 7 - key % 8),
    ] {
        let mut tree = Tree::new(pages());
        let mut worst: f64 = 0.0;
        for key in 0..COUNT {
            tree.insert(order(key), slot_of(key, 0), |_| Ordering::Equal);
            if key > 20_000 && key % 1_000 == 0 {
                worst = worst.max(bytes_each(&tree));
            }
        }
        tree.check(&|_, _| Ordering::Equal);
        assert!(worst < most, "{name}: {worst} bytes an entry");
    }
}

#[test]
fn leaves_stay_half_full_while_entries_are_removed() {
    const COUNT: u64 = 100_000;
    let mut tree = Tree::new(pages());
    (0..COUNT).for_each(|key| {
        assert_eq!(tree.insert(mix(key), slot_of(key, 0), |_| Ordering::Equal), None);
    });
    for key in 0..COUNT {
        assert!(tree.remove(mix(key), |_| Ordering::Equal).is_some());
        if tree.len() > 1_000 {
            assert!(bytes_each(&tree) < 45.0, "{} bytes an entry of {}", bytes_each(&tree), tree.len());
        }
    }
    assert_eq!(tree.pages().bytes(), 0);
}

/// At an end of the tree, nodes of every level sometimes have a single child.
#[test]
fn entries_inserted_at_one_end_are_removed_from_either_end() {
    // Three levels.
    let count = 20_000u64;
    for (upwards, from_end) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut tested = Tested::new(Orders::All);
        let turn = |key: u64, as_is: bool| if as_is { key } else { count - 1 - key };
        (0..count).for_each(|key| tested.put(turn(key, upwards), key));
        for key in 0..count {
            tested.remove(turn(key, !from_end));
            let left = if from_end { 0..count - 1 - key } else { key + 1..count };
            let order = |key: Option<u64>| key.map(|key| key * 3);
            assert_eq!(tested.tree.first().map(|entry| entry.0), order(left.clone().next()));
            assert_eq!(tested.tree.last().map(|entry| entry.0), order(left.last()));
            if key % 997 == 0 {
                tested.check();
            }
        }
        assert_eq!(tested.tree.pages().bytes(), 0);
    }
}

#[test]
fn a_tree_used_as_a_queue_keeps_no_empty_pages() {
    let mut tree = Tree::new(pages());
    for key in 0..300_000u64 {
        tree.insert(key, slot_of(key, 0), |_| Ordering::Equal);
        if key >= 5_000 {
            let (order, _) = tree.first().unwrap();
            assert_eq!(order, key - 5_000);
            tree.remove(order, |_| Ordering::Equal);
        }
        assert!(tree.pages().bytes() < 5_200 * 17 + 4_096, "{} bytes", tree.pages().bytes());
    }
    tree.check(&|_, _| Ordering::Equal);
}

#[test]
fn random_entries_are_evenly_drawn() {
    let count = 5_000u64;
    let mut tree = Tree::new(pages());
    (0..count).for_each(|key| {
        assert_eq!(tree.insert(mix(key), slot_of(key, 0), |_| Ordering::Equal), None);
    });
    let (mut counts, mut random) = (vec![0u64; count as usize], words(count));
    let draws = count * 200;
    (0..draws).for_each(|_| counts[number_of(tree.random(random()).unwrap().1) as usize] += 1);
    let mean = (draws / count) as f64;
    let chi: f64 = counts.iter().map(|&drawn| (drawn as f64 - mean).powi(2) / mean).sum();
    let unevenness = (chi - count as f64) / (2.0 * count as f64).sqrt();
    assert!(unevenness.abs() < 5.0, "{unevenness} standard deviations");
}
