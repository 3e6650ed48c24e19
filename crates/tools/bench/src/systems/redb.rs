//! The peer `redb`: crate redb 4, a copy-on-write B+-tree in one file, one writer at a time.
//!
//! Each operation is a transaction of its own, as a map that returns durable writes must have it.
//! Tables of 8-byte keys and values are of type `u64`, which redb stores without lengths and
//! compares as numbers; others are of type `&[u8]`. The cache has redb's default of 1 GiB.
//!
//! redb knows two durabilities: `Durability::Immediate`, which is an `fsync` before a commit
//! returns, and `Durability::None`, which keeps a commit in the process's memory until the next
//! immediate one. There is nothing in between, so:
//!
//! | system | settings | survives |
//! | --- | --- | --- |
//! | `redb` | `Immediate` on a file backend whose `sync_data` does nothing: all that a commit writes has been given to the operating system when it returns | a process crash |
//! | `redb:sync` | `Immediate` on redb's own file backend | power loss |
//! | `redb:lazy` | `None` | nothing, until a commit that is not |
//!
//! A backend of one's own is a documented part of the interface (`StorageBackend`); leaving its
//! sync out is ours, and is the best that redb can do at the durability that the other systems
//! have.
//!
//! `Table::len` reads the number of records that the tree's root keeps, which is a true one.

use std::fs::OpenOptions;
use std::path::Path;

use ::redb::backends::FileBackend;
use ::redb::{
    Database, Durability, Key, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    StorageBackend, TableDefinition, Value,
};

use super::entry::BuildError;
use super::slots::{key_number, value_number};
use crate::system::{Order, Refusal, Scan, System};

/// The file in the system's folder.
const FILE: &str = "bench.redb";

/// What a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// For the operating system to have the data.
    Written,
    /// For the device to have the data.
    Synced,
    /// For nothing.
    Lazy,
}

/// The types of a table.
pub trait Form: Send + Sync + 'static {
    /// The type of its keys.
    type Key: Key + Send + Sync + 'static;
    /// The type of its values.
    type Value: Value + Send + Sync + 'static;

    /// These bytes as a key.
    fn key(bytes: &[u8]) -> <Self::Key as Value>::SelfType<'_>;
    /// These bytes as a value.
    fn value(bytes: &[u8]) -> <Self::Value as Value>::SelfType<'_>;
    /// Calls `visit` with the bytes of a key.
    fn show_key(key: <Self::Key as Value>::SelfType<'_>, visit: impl FnOnce(&[u8]));
    /// Calls `visit` with the bytes of a value.
    fn show_value(value: <Self::Value as Value>::SelfType<'_>, visit: impl FnOnce(&[u8]));
}

/// Keys and values of eight bytes.
pub struct Words;

impl Form for Words {
    type Key = u64;
    type Value = u64;

    fn key(bytes: &[u8]) -> u64 {
        key_number(bytes)
    }

    fn value(bytes: &[u8]) -> u64 {
        value_number(bytes)
    }

    fn show_key(key: u64, visit: impl FnOnce(&[u8])) {
        visit(&key.to_be_bytes());
    }

    fn show_value(value: u64, visit: impl FnOnce(&[u8])) {
        visit(&value.to_le_bytes());
    }
}

/// Keys and values of any length.
pub struct Slices;

impl Form for Slices {
    type Key = &'static [u8];
    type Value = &'static [u8];

    fn key(bytes: &[u8]) -> &[u8] {
        bytes
    }

    fn value(bytes: &[u8]) -> &[u8] {
        bytes
    }

    fn show_key(key: &[u8], visit: impl FnOnce(&[u8])) {
        visit(key);
    }

    fn show_value(value: &[u8], visit: impl FnOnce(&[u8])) {
        visit(value);
    }
}

/// redb's file backend without its sync.
#[derive(Debug)]
struct Unsynced(FileBackend);

impl StorageBackend for Unsynced {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> std::io::Result<()> {
        self.0.close()
    }
}

/// A table in a database of its own.
pub struct Table<F: Form> {
    database: Database,
    definition: TableDefinition<'static, F::Key, F::Value>,
    durability: Durability,
}

impl<F: Form> Table<F> {
    /// The table in `folder`, made if it is not there, with so many bytes of cache.
    pub fn open(folder: &Path, cache_bytes: u64, commit: Commit) -> Result<Self, BuildError> {
        let path = folder.join(FILE);
        let mut builder = Database::builder();
        builder.set_cache_size(cache_bytes as usize);
        let database = if commit == Commit::Written {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            builder.create_with_backend(Unsynced(FileBackend::new(file)?))?
        } else {
            builder.create(path)?
        };
        let durability =
            if commit == Commit::Lazy { Durability::None } else { Durability::Immediate };
        let system = Self { database, definition: TableDefinition::new("bench"), durability };
        // A table that is there can be read.
        let transaction = system.database.begin_write()?;
        transaction.open_table(system.definition)?;
        transaction.commit()?;
        Ok(system)
    }

    /// Does `change` in a transaction, which is committed if it says so.
    #[inline]
    fn write<Answer>(
        &self,
        change: impl FnOnce(
            &mut ::redb::Table<'_, F::Key, F::Value>,
        ) -> Result<(Answer, bool), ::redb::StorageError>,
    ) -> Result<Answer, Refusal> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(self.durability)?;
        let (answer, is_changed) = change(&mut transaction.open_table(self.definition)?)?;
        if is_changed {
            transaction.commit()?;
        } else {
            transaction.abort()?;
        }
        Ok(answer)
    }
}

impl<F: Form> System for Table<F> {
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        self.write(|table| {
            if table.get(F::key(key))?.is_some() {
                return Ok((false, false));
            }
            table.insert(F::key(key), F::value(value))?;
            Ok((true, true))
        })
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.write(|table| {
            table.insert(F::key(key), F::value(value))?;
            Ok(((), true))
        })
    }

    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        let table = self.database.begin_read()?.open_table(self.definition)?;
        Ok(table.get(F::key(key))?.map(|value| F::show_value(value.value(), visit)).is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        self.write(|table| {
            let is_removed = table.remove(F::key(key))?.is_some();
            Ok((is_removed, is_removed))
        })
    }

    fn scan(&self, scan: Scan<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        let table = self.database.begin_read()?.open_table(self.definition)?;
        let mut records = match order {
            Order::Ascending => table.range(F::key(from)..)?,
            Order::Descending => table.range(..=F::key(from))?,
        };
        for _ in 0..limit {
            let next = match order {
                Order::Ascending => records.next(),
                Order::Descending => records.next_back(),
            };
            let Some(record) = next else { break };
            let (key, value) = record?;
            F::show_key(key.value(), |key| F::show_value(value.value(), |value| visit(key, value)));
        }
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        Ok(self.database.begin_read()?.open_table(self.definition)?.len()?)
    }
}
