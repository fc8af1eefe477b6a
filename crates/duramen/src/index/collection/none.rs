//! No model has collections: nothing in one is concurrent but the lock around each step.

use crate::format::Version;
use crate::index::stripes::{Held, Stripes};
use crate::index::{KeyBytes, Slot};
use crate::sync::Arc;
use std::convert::Infallible;
use std::marker::PhantomData;

#[derive(Default)]
pub(crate) struct Arena;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    None,
    Value,
    Key,
}

pub(crate) struct CollectionIndex(Infallible);
pub(crate) struct Locked<'a>(Infallible, PhantomData<&'a ()>);
pub(crate) struct Place<'a>(Infallible, PhantomData<&'a ()>);

impl Arena {
    pub(crate) fn bytes(&self) -> u64 {
        0
    }
}

impl CollectionIndex {
    pub(crate) fn new(_: Arc<Stripes>, _: &Arc<Arena>, _: Order) -> Self {
        unreachable!("no model has collections")
    }

    pub(in crate::index) fn stripes(&self) -> &Stripes {
        match self.0 {}
    }

    pub(crate) fn order(&self) -> Order {
        match self.0 {}
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn len(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn prefetch(&self, _: u64) {
        match self.0 {}
    }

    pub(crate) fn find_with<T>(&self, _: u64, _: impl FnMut(Slot) -> Option<T>) -> Option<(Slot, T)> {
        match self.0 {}
    }

    pub(in crate::index) fn lock(&self, _: u64) -> Locked<'_> {
        match self.0 {}
    }

    pub(in crate::index) fn locked<'a>(&'a self, _: Held<'a>, _: u64) -> Locked<'a> {
        match self.0 {}
    }

    pub(crate) fn scan(&self, _: u64, _: &mut dyn FnMut(Slot)) -> u64 {
        match self.0 {}
    }

    pub(crate) fn each(&self, _: &mut dyn FnMut(Slot)) {
        match self.0 {}
    }

    pub(crate) fn clear_some(&self, _: usize) -> bool {
        match self.0 {}
    }

    pub(crate) fn random(&self, _: impl FnMut() -> u64) -> Option<Slot> {
        match self.0 {}
    }

    pub(crate) fn rank(&self, _: u64, _: &[u8], _: &impl KeyBytes) -> Option<u64> {
        match self.0 {}
    }

    pub(crate) fn rank_of_order(&self, _: u64, _: bool) -> Option<u64> {
        match self.0 {}
    }

    pub(crate) fn ranked(&self, _: u64, _: bool, _: usize, _: &mut Vec<Slot>) {
        match self.0 {}
    }
}

impl<'a> Locked<'a> {
    pub(in crate::index) fn is_marked(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn next_version(&self) -> Version {
        match self.0 {}
    }

    pub(crate) fn met_version(&self, _: Version) {
        match self.0 {}
    }

    pub(crate) fn find_with<T>(&self, _: impl FnMut(Slot) -> Option<T>) -> Option<(Place<'a>, T)> {
        match self.0 {}
    }

    pub(crate) fn insert(&self, _: &[u8], _: Slot, _: &impl KeyBytes) {
        match self.0 {}
    }

    pub(crate) fn remove(&self, _: &Place<'_>, _: &impl KeyBytes) {
        match self.0 {}
    }
}

impl Place<'_> {
    pub(crate) fn get(&self) -> Slot {
        match self.0 {}
    }

    pub(crate) fn set(&self, _: Slot) {
        match self.0 {}
    }

    pub(crate) fn lead(&self, _: &[u8], _: Slot, _: &impl KeyBytes) {
        match self.0 {}
    }
}
