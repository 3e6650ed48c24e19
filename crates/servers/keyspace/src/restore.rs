//! Loads a snapshot into an empty store.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use pando::Error;

use crate::failure::{Failure, Result, fail_with};
use crate::layout::{
    Content, Count, DATABASES, Element, Head, Kind, LongString, Memcached, piece_key,
};
use crate::own_keys::{self, RESTORING};
use crate::pieces::counted_bytes;
use crate::snapshot_file::{
    FIELD_TAG, HEADER_BYTES, MAGIC, MAX_BLOCK_BYTES, ORDERED_TAG, PIECE_TAG, VERSION, take_entry,
};
use crate::store::Store;
use crate::stripes::Access;

impl Store {
    /// Loads a snapshot into this store, which must be empty, and returns the number of keys. Keys
    /// that have expired since the snapshot are skipped. An interrupted restore leaves an unknown
    /// part of the keys, so the store is refused at the next opening.
    pub fn restore(&self, path: &Path) -> Result<u64> {
        if !self.count_none()? {
            return Err(fail_with(format!(
                "the store is not empty; restore {} into a new pool",
                path.display()
            )));
        }
        let wrong = |what: String| fail_with(format!("cannot restore {}: {what}", path.display()));
        let mut file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact(&mut header).map_err(|_| wrong("it is too short for a snapshot".into()))?;
        if &header[..8] != MAGIC {
            return Err(wrong("it is not a snapshot".into()));
        }
        let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if !(1..=VERSION).contains(&version) {
            return Err(wrong(format!(
                "its version is {version}; this server reads the versions 1 to {VERSION}"
            )));
        }
        let mut file = io::BufReader::new(file);
        self.begin_restoring()?;
        let (mut keys, mut collection) = (0u64, None);
        let mut block = Vec::new();
        loop {
            let mut lengths = [0; 8];
            file.read_exact(&mut lengths)
                .map_err(|_| wrong(format!("it ends early, after {keys} keys")))?;
            let (bytes, sum) = lengths.split_at(4);
            let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap_or_default());
            let (bytes, sum) = (word(bytes), word(sum));
            if bytes == 0 {
                if sum != keys as u32 {
                    return Err(wrong(format!("it has {keys} keys, and its end says {sum}")));
                }
                self.end_collection(&mut collection)?;
                self.end_restoring()?;
                return Ok(keys);
            }
            if bytes > MAX_BLOCK_BYTES {
                return Err(wrong(format!(
                    "a block of {bytes} bytes is longer than {MAX_BLOCK_BYTES}, after {keys} keys"
                )));
            }
            block.clear();
            (&mut file)
                .take(u64::from(bytes))
                .read_to_end(&mut block)
                .map_err(|error| wrong(error.to_string()))?;
            if block.len() != bytes as usize || crc32fast::hash(&block) != sum {
                return Err(wrong(format!("a block is damaged, after {keys} keys")));
            }
            let restored = self.restore_block(&block, &mut keys, &mut collection);
            restored.map_err(|failure| match failure {
                Failure::Store(
                    error @ (Error::TransactionTooLong { .. } | Error::ValueTooLong { .. }),
                ) => wrong(format!(
                    "{error}; its newest key or element is too long for a pool with a log, or for a store. There \
                     is a part of the keys now: delete the pool and its log, or the store, and restore into a pool \
                     without a log"
                )),
                other => other,
            })?;
        }
    }

    /// Marks the store as incomplete: until `end_restoring`, opening it is an error.
    pub(crate) fn begin_restoring(&self) -> Result<()> {
        self.map.upsert(own_keys::own(RESTORING), [])?;
        Ok(())
    }

    /// Marks the store as complete.
    pub(crate) fn end_restoring(&self) -> Result<()> {
        self.map.remove(own_keys::own(RESTORING))?;
        Ok(())
    }

    fn restore_block(
        &self,
        mut block: &[u8],
        keys: &mut u64,
        collection: &mut Option<Restored>,
    ) -> Result<()> {
        while !block.is_empty() {
            let (tag, name, value) = take_entry(&mut block).ok_or(Failure::Damaged)?;
            match tag {
                0..DATABASES => {
                    self.end_collection(collection)?;
                    *keys += 1;
                    *collection = self.restore_key(tag, name, value)?;
                }
                FIELD_TAG | ORDERED_TAG => {
                    // Of a key that has expired.
                    let Some(collection) = collection else { continue };
                    let element = match tag {
                        ORDERED_TAG => Element::Ordered(name),
                        _ => Element::Field(name),
                    };
                    self.restore_element(collection, element, value)?;
                }
                PIECE_TAG => {
                    let Some(collection) = collection else { continue };
                    let index = name.try_into().map_err(|_| Failure::Damaged)?;
                    self.restore_piece(collection, u32::from_be_bytes(index), value)?;
                }
                _ => return Err(Failure::Damaged),
            }
        }
        Ok(())
    }

    fn restore_key(&self, database: u8, key: &[u8], value: &[u8]) -> Result<Option<Restored>> {
        let head = Head::decode(value).ok_or(Failure::Damaged)?;
        let by_store = |at_system_ms: u64| {
            u64::try_from(self.clock.by_store(at_system_ms as i64)).unwrap_or(0)
        };
        let head = Head { expires_at: head.expires_at.map(by_store), ..head };
        Ok(self.restore_head(database, key, &head)?.map(|(_, collection)| collection))
    }

    /// Puts a key, unless it has expired. A collection is not put but returned with its old number;
    /// it is put after its elements.
    pub(crate) fn restore_head(
        &self,
        database: u8,
        key: &[u8],
        head: &Head<'_>,
    ) -> Result<Option<(u64, Restored)>> {
        let expires_at = head.expires_at;
        if expires_at.is_some_and(|at_ms| at_ms <= self.clock.now_ms()) {
            return Ok(None);
        }
        let memcached = head.memcached.map(|kept| Memcached { cas: self.new_cas(), ..kept });
        match head.content {
            Content::String(_) => {
                self.put_restored(database, key, &Head { memcached, ..*head })?;
                Ok(None)
            }
            Content::Long(long) => {
                let content = Content::Long(LongString { id: self.new_id()?, ..long });
                let key = key.to_vec();
                Ok(Some((long.id, Restored { database, key, expires_at, memcached, content })))
            }
            Content::Collection(kind, old_id, _) => {
                let content = Content::Collection(kind, self.new_id()?, Count::Known(0));
                let key = key.to_vec();
                Ok(Some((old_id, Restored { database, key, expires_at, memcached: None, content })))
            }
        }
    }

    fn put_restored(&self, database: u8, key: &[u8], head: &Head<'_>) -> Result<()> {
        let stripes = [Self::stripe_of_key(key)].into_iter().collect();
        let held = self.lock(stripes, Access::Exclusive)?;
        let mut transaction = self.begin(held, self.clock.now_ms());
        transaction.put_head(self.space(database), key, head)?;
        transaction.commit()
    }

    /// Puts an element. No head refers to it yet, so it needs no lock. An interrupted restore
    /// leaves such elements.
    pub(crate) fn restore_element(
        &self,
        restored: &mut Restored,
        element: Element<'_>,
        value: &[u8],
    ) -> Result<()> {
        let Content::Collection(kind, id, Count::Known(count)) = &mut restored.content else {
            return Err(Failure::Damaged);
        };
        let put = |element: Element<'_>, value: &[u8]| -> Result<()> {
            self.map.upsert(crate::layout::element_key(*id, element), value)?;
            Ok(())
        };
        if let (Kind::SortedSet, Element::Field(name)) = (*kind, element) {
            let bits = value.try_into().map_err(|_| Failure::Damaged)?;
            put(Element::Scored(f64::from_bits(u64::from_le_bytes(bits)), name), b"")?;
        }
        put(element, value)?;
        *count += 1;
        Ok(())
    }

    /// Puts a piece of a long string; it must have no bytes beyond those that count.
    pub(crate) fn restore_piece(
        &self,
        restored: &Restored,
        index: u32,
        piece: &[u8],
    ) -> Result<()> {
        let Content::Long(long) = restored.content else { return Err(Failure::Damaged) };
        if piece.len() > counted_bytes(long, index) {
            return Err(Failure::Damaged);
        }
        self.map.upsert(piece_key(long.id, index), piece)?;
        Ok(())
    }

    pub(crate) fn end_collection(&self, collection: &mut Option<Restored>) -> Result<()> {
        let Some(Restored { database, key, expires_at, memcached, content }) = collection.take()
        else {
            return Ok(());
        };
        self.put_restored(database, &key, &Head { expires_at, memcached, content })
    }
}

/// A collection or a long string during the restore of its elements or pieces.
pub(crate) struct Restored {
    database: u8,
    key: Vec<u8>,
    expires_at: Option<u64>,
    memcached: Option<Memcached>,
    pub(crate) content: Content<'static>,
}
