//! Plain structs as keys and values, without serialisation.

use crate::api::Store;
use crate::{Meta, Result, Update};
use bytemuck::{AnyBitPattern, NoUninit};
use std::marker::PhantomData;

/// A store of fixed-size records: keys and values are plain old data, stored in their own byte layout (little-endian on
/// every machine that Duramen runs on).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use duramen::{Options, TypedStore};
///
/// #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
/// #[repr(C)]
/// struct Account { balance: i64, changes: u64 }
///
/// let store = Options::default().open(dir.path().join("accounts"))?;
/// let accounts: TypedStore<u64, Account> = TypedStore::new(store);
/// accounts.put(&7, &Account { balance: 100, changes: 1 })?;
/// // One atomic store, in place:
/// accounts.update(&7, 0, &90i64)?;
/// assert_eq!(accounts.get(&7)?.unwrap().balance, 90);
/// # Ok::<(), duramen::Error>(())
/// ```
#[derive(Debug)]
pub struct TypedStore<K, V> {
    store: Store,
    _types: PhantomData<fn(K) -> V>,
}

impl<K, V> Clone for TypedStore<K, V> {
    fn clone(&self) -> Self {
        Self::new(self.store.clone())
    }
}

impl<K, V> TypedStore<K, V> {
    /// A typed view of a store. Every key and value in it must be of these types; reading a value of another size
    /// fails.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store, _types: PhantomData }
    }

    /// The store itself.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }
}

impl<K: NoUninit, V: NoUninit + AnyBitPattern> TypedStore<K, V> {
    /// Sets `key` to `value`; it can be updated in place later.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn put(&self, key: &K, value: &V) -> Result<()> {
        let meta = Meta { updatable: true, ..Meta::default() };
        self.store.put_with(bytemuck::bytes_of(key), bytemuck::bytes_of(value), meta)
    }

    /// A copy of the value of `key`.
    ///
    /// # Errors
    /// `InvalidInput` when the stored value has another size than `V`; otherwise as [`Store::get`].
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        let Some(value) = self.store.get(bytemuck::bytes_of(key))? else { return Ok(None) };
        if value.len() != size_of::<V>() {
            return Err(crate::Error::invalid(format!(
                "value has {} bytes, the type has {}: the store holds records of another type",
                value.len(),
                size_of::<V>()
            )));
        }
        Ok(Some(bytemuck::pod_read_unaligned(&value)))
    }

    /// Overwrites the field that begins `at` bytes into the value: in place by one atomic store where
    /// [`Writer::update`](crate::Writer::update) can.
    ///
    /// # Errors
    /// As [`Writer::update`](crate::Writer::update).
    pub fn update<F: NoUninit>(&self, key: &K, at: usize, field: &F) -> Result<Update> {
        self.store.update(bytemuck::bytes_of(key), at, bytemuck::bytes_of(field))
    }

    /// Removes `key`; returns whether it was present.
    ///
    /// # Errors
    /// As [`Store::delete`].
    pub fn delete(&self, key: &K) -> Result<bool> {
        self.store.delete(bytemuck::bytes_of(key))
    }
}
