//! Models have no collections: nothing in one is concurrent but the lock around each step.

use crate::numbers::Numbers;
use crate::ordered::Sorted;
use crate::stripes::{LockedStripe, Stripes};
use crate::{KeepFilter, KeyBytes, Keys, Loaded, PagesOf, Slot};
use duramen_log::Result;
use duramen_log::sync::Arc;
use duramen_media::Offset;
use std::convert::Infallible;
use std::marker::PhantomData;

pub mod checkpoint {
    use crate::Slot;

    pub fn is_page(_: &[u8]) -> bool {
        false
    }

    pub fn slots(_: &[u8]) -> impl Iterator<Item = Slot> {
        std::iter::empty()
    }
}

pub enum Counted {
    Read(Slot),
    Checkpointed(Slot),
}

#[derive(Default)]
pub struct Arena;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    None,
    Value,
    Key,
}

pub fn position_of(_: u64) -> u64 {
    unreachable!("no model has collections")
}

pub struct Change<'k> {
    pub hash: u64,
    pub key: &'k [u8],
    pub old: Slot,
    pub new: Slot,
}

pub struct CollectionIndex(Infallible);
pub struct Locked<'a>(Infallible, PhantomData<&'a ()>);
pub struct Place<'a>(Infallible, PhantomData<&'a ()>);

impl Arena {
    pub fn bytes(&self) -> u64 {
        0
    }
}

impl CollectionIndex {
    pub fn new(_: Arc<Stripes>, _: &Arc<Arena>, _: Order) -> Self {
        unreachable!("no model has collections")
    }

    pub fn order(&self) -> Order {
        match self.0 {}
    }

    pub fn candidates(&self, _: &[u64], _: impl FnMut(usize, Slot)) {
        match self.0 {}
    }

    pub fn change_all(&self, _: &[Change<'_>], _: &impl KeyBytes) {
        match self.0 {}
    }

    pub fn clear_pending(&self, _: impl Iterator<Item = (u64, Offset)>) {
        match self.0 {}
    }

    pub fn key_count(&self) -> u64 {
        match self.0 {}
    }

    pub fn prefetch_all(&self, _: &[u64], _: impl FnMut(Slot)) {
        match self.0 {}
    }

    pub fn each_at(&self, _: u64, _: &impl Keys, _: &mut dyn FnMut(Slot)) -> Option<u64> {
        match self.0 {}
    }

    pub fn is_attached(&self) -> bool {
        match self.0 {}
    }

    pub fn merge(&self, _: &[Sorted], _: &impl KeyBytes, _: impl FnMut(Slot, Slot) -> Counted) {
        match self.0 {}
    }

    pub fn order_at(&self, _: Slot, _: &impl KeyBytes) -> u64 {
        match self.0 {}
    }

    pub fn build(&self, _: Vec<Sorted>, _: &impl KeyBytes) {
        match self.0 {}
    }

    pub fn rank(&self, _: u64, _: &[u8], _: &impl KeyBytes) -> Option<u64> {
        match self.0 {}
    }

    pub fn rank_of_order(&self, _: u64, _: bool) -> Option<u64> {
        match self.0 {}
    }

    pub fn ranked(&self, _: u64, _: bool, _: usize, _: &mut Vec<Slot>) -> bool {
        match self.0 {}
    }
}

impl CollectionIndex {
    pub fn numbers(&self) -> Numbers {
        match self.0 {}
    }

    pub fn stripes(&self) -> &Stripes {
        match self.0 {}
    }

    pub fn prefetch(&self, _: u64) {
        match self.0 {}
    }

    pub fn find<T>(&self, _: u64, _: impl FnMut(Slot) -> Option<T>) -> Option<(Slot, T)> {
        match self.0 {}
    }

    pub fn lock(&self, _: u64) -> Locked<'_> {
        match self.0 {}
    }

    pub fn locked<'g>(&'g self, _: LockedStripe<'g>, _: u64) -> Locked<'g> {
        match self.0 {}
    }

    pub fn scan(&self, _: u64, _: &mut dyn FnMut(Slot)) -> u64 {
        match self.0 {}
    }

    pub fn scan_once(&self, _: u64, _: &impl Keys, _: &mut dyn FnMut(Slot)) -> u64 {
        match self.0 {}
    }

    pub fn each(&self, _: &mut dyn FnMut(Slot)) {
        match self.0 {}
    }

    pub fn pages_left(&self) -> u64 {
        match self.0 {}
    }

    pub fn read_pages(&self, _: &dyn Fn() -> bool) {
        match self.0 {}
    }

    pub fn forget_order(&self, _: &dyn Fn() -> bool) -> bool {
        match self.0 {}
    }

    pub fn draw(&self, _: [u64; 2]) -> Option<Slot> {
        match self.0 {}
    }

    pub fn dump(
        &self,
        _: &impl KeyBytes,
        _: &dyn Fn(Slot) -> Slot,
        _: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
    ) -> Result<Option<Loaded>> {
        match self.0 {}
    }

    /// # Safety
    /// Never called.
    pub unsafe fn attach(&mut self, _: &PagesOf<'_>, _: KeepFilter) -> std::result::Result<(), String> {
        match self.0 {}
    }
}

impl<'a> Locked<'a> {
    pub fn held(&self) -> &LockedStripe<'a> {
        match self.0 {}
    }

    pub fn find_with<'k, T>(&self, _: impl FnMut(Slot) -> Option<T>) -> Option<(Place<'k>, T)>
    where
        'a: 'k,
    {
        match self.0 {}
    }

    pub fn find_sole<'k>(&self) -> Option<Place<'k>>
    where
        'a: 'k,
    {
        match self.0 {}
    }

    pub fn insert(&self, _: &[u8], _: Slot, _: &impl KeyBytes) {
        match self.0 {}
    }

    pub fn remove(&self, _: &Place<'_>, _: &impl KeyBytes) {
        match self.0 {}
    }
}

impl Place<'_> {
    pub fn get(&self) -> Slot {
        match self.0 {}
    }

    pub fn set(&self, _: Slot) {
        match self.0 {}
    }

    pub fn repoint(&self, _: &[u8], _: Slot, _: &impl KeyBytes) {
        match self.0 {}
    }
}
