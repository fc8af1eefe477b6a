//! The path of a store, and the table of its keys: the options that all commands on a store share.

use crate::Failure;
use clap::Args;
use duramen::{Create, MediumKind, Options, Store, Table};
use duramen_server::Type;
use std::path::PathBuf;

#[derive(Args)]
pub struct Place {
    /// The store: a file, a directory that holds one, or a DAX device
    #[arg(long, default_value = "./duramen-data", env = "DURAMEN_PATH")]
    path: PathBuf,
    /// auto, file, shm, fsdax, devdax
    #[arg(long, default_value_t = MediumKind::Auto, env = "DURAMEN_MEDIUM", value_parser = lasting)]
    medium: MediumKind,
}

/// A medium that outlives the command.
fn lasting(text: &str) -> Result<MediumKind, String> {
    match text.parse() {
        Ok(MediumKind::Volatile) => {
            Err("a volatile store ends with the command; wanted one that lasts".to_owned())
        }
        medium => medium.map_err(|error: <MediumKind as std::str::FromStr>::Err| error.to_string()),
    }
}

impl Place {
    pub fn path(&self) -> &PathBuf {
        &self.path
    }

    pub fn options(&self) -> Options {
        Options { medium: self.medium, create: Create::OpenExisting, ..Options::default() }
    }

    /// Opens an existing store for reading and leaves it unchanged.
    pub fn open_to_read(&self) -> duramen::Result<Store> {
        self.open_to_read_with(&self.options())
    }

    /// [`Place::open_to_read`] with options that come from [`Place::options`].
    pub fn open_to_read_with(&self, options: &Options) -> duramen::Result<Store> {
        match (Options { read_only: true, ..options.clone() }).open(&self.path) {
            // A DAX device.
            Err(error) if error.kind() == duramen::ErrorKind::Unsupported => options.open(&self.path),
            opened => opened,
        }
    }

    /// Opens a store that exists.
    pub fn open(&self) -> duramen::Result<Store> {
        self.options().open(&self.path)
    }

    /// Opens an existing store and verifies all bytes that the open did not read. `None` when it is damaged, which is
    /// reported on standard error.
    pub fn open_verified(&self) -> duramen::Result<Option<Store>> {
        match self.open_to_read().and_then(|store| store.verify().map(|()| store)) {
            Err(error) if error.kind() == duramen::ErrorKind::Corrupt => {
                eprintln!("duramen: {error}");
                Ok(None)
            }
            opened => opened.map(Some),
        }
    }

    /// Opens a store, or makes one.
    pub fn open_or_create(&self) -> duramen::Result<Store> {
        Options { create: Create::OpenOrCreate, ..self.options() }.open(&self.path)
    }
}

/// Says where the keys of a server's clients are, if the command named no database.
fn note_databases(store: &Store) {
    let has = |db: &u8| matches!(store.find_table(duramen_server::table_name(*db).as_bytes()), Ok(Some(_)));
    // If it has keys of its own, those are meant.
    if store.is_empty()
        && let Some(db) = (0..16).find(has)
    {
        eprintln!(
            "duramen: note: these are keys of the store's own table; a server's clients have theirs in databases: --db {db}"
        );
    }
}

/// The table of the keys on the command line.
#[derive(Args, Clone)]
pub struct Keys {
    /// Keys of this table; without it and --db, of the store's own
    #[arg(long, value_name = "NAME", conflicts_with = "db")]
    table: Option<String>,
    /// Keys of this database (0 to 127) of a server's store
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(..=127))]
    db: Option<u8>,
}

/// Where keys are.
pub enum Within {
    /// In the store's own table.
    Store,
    Table(Table),
    /// In a missing table.
    Nowhere,
}

impl Keys {
    fn table_name(&self) -> Option<String> {
        self.db.map(duramen_server::table_name).or_else(|| self.table.clone())
    }

    pub fn find(&self, store: &Store) -> duramen::Result<Within> {
        Ok(match self.table_name() {
            None => {
                note_databases(store);
                Within::Store
            }
            Some(name) => store.find_table(name.as_bytes())?.map_or(Within::Nowhere, Within::Table),
        })
    }

    /// The same, but a missing table is created.
    pub fn find_or_make(&self, store: &Store) -> duramen::Result<Within> {
        match (self.find(store)?, self.table_name()) {
            (Within::Nowhere, Some(name)) => {
                store.table(name.as_bytes(), store.index_kind()).map(Within::Table)
            }
            (found, _) => Ok(found),
        }
    }

    /// A value as a server's clients see it, if it is stored in another form: counted integers, memcached items, and
    /// large strings.
    pub fn text(&self, store: &Store, value: &duramen::Value<'_>) -> Result<Option<Vec<u8>>, Failure> {
        if self.db.is_none() {
            return Ok(None);
        }
        Ok(match duramen_server::text_of_number(value.key(), value.tag(), value) {
            Some(text) => Some(text.to_vec()),
            None => match duramen_server::data_of_item(value.tag(), value) {
                Some(data) => Some(data.to_vec()),
                None => duramen_server::string_of_pieces(store, value)?,
            },
        })
    }

    /// The type of a server's value that is not a string.
    pub fn collection(&self, value: &duramen::Value<'_>) -> Option<Type> {
        let type_ = self.db.and_then(|_| Type::of_tag(value.tag()));
        type_.filter(|type_| *type_ != Type::String)
    }

    /// The tag of new values: a server's databases hold strings.
    pub fn tag(&self) -> u8 {
        if self.db.is_some() { Type::String.tag() } else { 0 }
    }
}
