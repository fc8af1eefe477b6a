//! Models have no collections: nothing in one is concurrent but the lock around each step.

use crate::key_index::{KeyIndex, KeyPlace, LockedKey, Numbers};
use crate::ordered::Sorted;
use crate::stripes::{LockedStripe, Stripes};
use crate::{KeepFilter, KeyBytes, Keys, Loaded, PagesOf, Slot};
use duramen_log::Result;
use duramen_log::sync::Arc;
use duramen_log::sync::reclaim::Guard;
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

impl KeyIndex for CollectionIndex {
    type Locked<'a> = Locked<'a>;

    const KIND: u8 = 2;

    fn numbers(&self, _: &Guard) -> Numbers {
        match self.0 {}
    }

    fn stripes(&self) -> &Stripes {
        match self.0 {}
    }

    fn prefetch(&self, _: u64, _: &Guard) {
        match self.0 {}
    }

    fn find_with<T>(
        &self,
        _: u64,
        _: &[u8],
        _: &Guard,
        _: impl FnMut(Slot) -> Option<T>,
    ) -> Option<(Slot, T)> {
        match self.0 {}
    }

    fn lock<'g>(&'g self, _: u64, _: &'g Guard) -> Locked<'g> {
        match self.0 {}
    }

    fn locked<'g>(&'g self, _: LockedStripe<'g>, _: u64, _: &'g Guard) -> Locked<'g> {
        match self.0 {}
    }

    fn scan(&self, _: u64, _: &Guard, _: &mut dyn FnMut(Slot)) -> u64 {
        match self.0 {}
    }

    fn cursor_at(&self, _: u64, _: &Guard) -> u64 {
        match self.0 {}
    }

    fn draw(&self, _: [u64; 2], _: &Guard) -> Option<Slot> {
        match self.0 {}
    }

    fn dump(
        &self,
        _: &impl KeyBytes,
        _: &dyn Fn(Slot) -> Slot,
        _: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
    ) -> Result<Option<Loaded>> {
        match self.0 {}
    }

    unsafe fn attach(&mut self, _: &PagesOf<'_>, _: KeepFilter, _: usize) -> std::result::Result<(), String> {
        match self.0 {}
    }
}

impl<'a> LockedKey<'a> for Locked<'a> {
    type Place<'k>
        = Place<'k>
    where
        'a: 'k;

    fn held(&self) -> &LockedStripe<'a> {
        match self.0 {}
    }

    fn find_with<'k, T>(&self, _: &'k [u8], _: impl FnMut(Slot) -> Option<T>) -> Option<(Place<'k>, T)>
    where
        'a: 'k,
    {
        match self.0 {}
    }

    fn insert(&self, _: &[u8], _: Slot, _: &impl KeyBytes) -> bool {
        match self.0 {}
    }

    fn remove(&self, _: &Place<'_>, _: &impl KeyBytes) {
        match self.0 {}
    }
}

impl KeyPlace for Place<'_> {
    fn get(&self) -> Slot {
        match self.0 {}
    }

    fn set(&self, _: Slot) {
        match self.0 {}
    }
}
