//! Determines which tables and collections have a name, and reclaims the others.

use crate::checkpoint::plan::{Checkpoint, Plan};
use crate::recover::given::{FoundRoot, Scan};
use crate::table::tables;
use duramen_index::{KeyBytes, Keys, Slot};
use duramen_log::format::Owner;
use duramen_log::format::record::{self, Kind};
use duramen_log::read;
use duramen_log::sync::reclaim;
use duramen_media::{Medium, Offset};
use std::collections::{HashMap, HashSet};

/// The contents of the catalog.
pub(crate) struct Names {
    /// The names of tables, and their owners.
    pub of_tables: Vec<(Vec<u8>, Owner)>,
    /// Owners without a known name; a damaged part may hold their name.
    pub nameless: Vec<Owner>,
}

impl<M: Medium> Scan<'_, M> {
    /// Reads the catalog, and reclaims owners that neither the catalog nor one of these roots names. With `has_damage`
    /// they are kept, since the damaged part may hold their names.
    pub(crate) fn resolve_names(&self, roots: &[FoundRoot], has_damage: bool) -> Names {
        let of_tables = self.names_of_tables();
        let named = self.named_owners(&of_tables, roots, has_damage);
        let mut nameless = Vec::new();
        for table in self.tables.unnamed(&named) {
            if has_damage {
                nameless.push(table.owner);
                continue;
            }
            self.reclaim_table(&table);
            self.tables.remove_reclaimed(table.owner);
        }
        Names { of_tables, nameless }
    }

    /// The names of tables, and the owners that they point to. A record of the catalog that is not whole is noted as
    /// damage of the checkpoint that points to it; a record of an unknown writer is skipped.
    fn names_of_tables(&self) -> Vec<(Vec<u8>, Owner)> {
        let mut names = Vec::new();
        let (guard, mut cursor) = (reclaim::pin(), 0);
        loop {
            cursor = self.tables.catalog.index.scan(cursor, &guard, &mut |slot| {
                if slot.is_tombstone() || self.found_record(slot.location()).is_none() {
                    return;
                }
                let (header, bytes) = read::whole_record(self.medium, slot.location());
                let from = header.value_at() as usize;
                if let Some(owner) = tables::owner_in(&bytes[from..from + header.value_bytes as usize]) {
                    names.push((header.key(bytes).to_vec(), owner));
                }
            });
            if cursor == 0 {
                break;
            }
        }
        names.sort_unstable();
        // A scan may visit a slot twice.
        names.dedup();
        names
    }

    /// The roots in blocks that the checkpoint keeps, unless all of its slots count.
    pub(crate) fn roots_of_checkpoint(&self, checkpoint: &Checkpoint<'_>, plan: &Plan) -> Vec<FoundRoot> {
        if plan.exact {
            return Vec::new();
        }
        let counts = plan.counts(self.extent_bytes);
        let is_kept = |place: &&Offset| counts.keep(Slot::new(**place)).is_some();
        let mut found_roots = Vec::new();
        for (of, _, roots) in checkpoint.tables() {
            roots.iter().for_each(|&place| self.prefetch_at(place));
            for &at in roots.iter().filter(is_kept) {
                let Some((header, key)) = self.found_record(at) else { continue };
                let names = (header.kind == Kind::Root).then(|| self.value_at(at)).flatten();
                if names.map(record::owner_of_root) == Some(of.owner) {
                    let hash = self.hasher.hash(key);
                    found_roots.push(FoundRoot { owner: header.owner, hash, at, names: of.owner });
                }
            }
        }
        found_roots
    }

    /// The owners that have a name: tables through the catalog, collections through live roots, which are counted. A
    /// root is live if it is the newest record of its key and its own owner is named, or is kept although it has no
    /// name.
    fn named_owners(
        &self,
        names: &[(Vec<u8>, Owner)],
        roots: &[FoundRoot],
        keeps_nameless: bool,
    ) -> HashSet<Owner> {
        let mut named: HashSet<Owner> = names.iter().map(|&(_, owner)| owner).collect();
        // From a checkpoint whose slots all count.
        let collections = self.tables.all_collections();
        named.extend(collections.iter().filter(|it| it.names() > 0).map(|it| it.owner));
        let mut roots_in: HashMap<Owner, Vec<&FoundRoot>> = HashMap::new();
        roots.iter().for_each(|root| roots_in.entry(root.owner).or_default().push(root));
        let mut work: Vec<Owner> = match keeps_nameless {
            true => roots_in.keys().copied().collect(),
            false => named.iter().copied().chain([Owner::STORE]).collect(),
        };
        while let Some(owner) = work.pop() {
            for root in roots_in.remove(&owner).unwrap_or_default() {
                if self.is_live_root(root) && root.names.is_collection() {
                    // Including one that has no element.
                    self.tables.get_or_insert(root.names, |_| ()).add_name(root.at);
                    named.insert(root.names);
                    work.push(root.names);
                }
            }
        }
        named
    }
}
