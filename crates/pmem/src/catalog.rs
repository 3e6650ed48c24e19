//! The catalog: the named maps of a pool.
//!
//! ```text
//! catalog, 1,024 words: offset of a map's header, or zero
//!
//! map header, one block:
//! byte   0        8        16       24       32 .. 63             64
//! 0      magic    kind     root     crc|len  options, 4 words     name, up to 255 bytes
//! ```
//!
//! `kind` and the options are what the index that owns the map says they are; `root` is its entry
//! word. All but `root` never change; the upper half of word 3 is the CRC-32 of word 1, the
//! options and the name. Slots change only together with the catalog's version (one PMwCAS of
//! the layer above), so that two threads cannot give one name twice.

use std::sync::atomic::Ordering;

use crate::domain::Domain;
use crate::epoch::Guard;
use crate::layout::{CATALOG_OFF, CATALOG_SLOTS, CATALOG_VERSION_OFF};
use crate::pool::Pool;

/// Longest name of a map, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Bytes of a map header.
pub const HEADER_BYTES: u64 = 64 + 256;
const MAP_MAGIC: u64 = u64::from_le_bytes(*b"PANDOmap");
const ROOT_AT: u64 = 16;

/// A map as the catalog knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapHeader {
    /// Its name.
    pub name: String,
    /// Which index it is, in the numbering of the layer above.
    pub kind: u64,
    /// The options of that index, as it encodes them.
    pub options: [u64; 4],
}

/// Where a map stands in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// Offset of the catalog's slot.
    pub slot_off: u64,
    /// Offset of the map's header.
    pub header_off: u64,
    /// What the header says; `None` if it is damaged.
    pub header: Option<MapHeader>,
}

impl MapEntry {
    /// Offset of the word from which the map's index is reached.
    pub fn root_off(&self) -> u64 {
        self.header_off + ROOT_AT
    }
}

impl MapHeader {
    fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.kind.to_le_bytes());
        for option in self.options {
            hasher.update(&option.to_le_bytes());
        }
        hasher.update(self.name.as_bytes());
        hasher.finalize()
    }

    /// The bytes on media, with `root` as the entry word. The name is at most
    /// [`MAX_NAME_BYTES`] long.
    pub fn encode(&self, root: u64) -> [u8; HEADER_BYTES as usize] {
        let mut block = [0; HEADER_BYTES as usize];
        let length = self.name.len() as u64;
        let words = [MAP_MAGIC, self.kind, root, u64::from(self.checksum()) << 32 | length];
        for (index, word) in words.into_iter().chain(self.options).enumerate() {
            block[index * 8..index * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        block[64..64 + self.name.len()].copy_from_slice(self.name.as_bytes());
        block
    }

    fn decode<D: Domain>(guard: &Guard<'_, D>, off: u64) -> Option<Self> {
        let pool = guard.pool();
        if pool.active_block(off)? < HEADER_BYTES {
            return None;
        }
        let word = |index: u64| pool.word(off + index * 8).load(Ordering::Acquire);
        let length = word(3) & u64::from(u32::MAX);
        if word(0) != MAP_MAGIC || length > MAX_NAME_BYTES as u64 {
            return None;
        }
        // SAFETY: the block was found active while pinned, and names never change.
        let name = unsafe { pool.bytes(off + 64, length) };
        let header = Self {
            name: String::from_utf8(name.to_vec()).ok()?,
            kind: word(1),
            options: [4, 5, 6, 7].map(word),
        };
        (u64::from(header.checksum()) == word(3) >> 32).then_some(header)
    }
}

impl<D: Domain> Pool<D> {
    /// The catalog's slots: the offset of each, and what it holds, read by `read`, which knows
    /// how words under PMwCAS are read.
    pub fn catalog(&self, guard: &Guard<'_, D>, read: &dyn Fn(u64) -> u64) -> Vec<MapEntry> {
        (0..CATALOG_SLOTS as u64)
            .map(|slot| CATALOG_OFF + slot * 8)
            .filter_map(|slot_off| {
                let header_off = read(slot_off);
                (header_off != 0).then(|| MapEntry {
                    slot_off,
                    header_off,
                    header: MapHeader::decode(guard, header_off),
                })
            })
            .collect()
    }

    /// Offset of the word that changes with every change of the catalog.
    pub fn catalog_version_off(&self) -> u64 {
        CATALOG_VERSION_OFF
    }

    /// Offset of the first empty slot, read by `read`.
    pub fn empty_catalog_slot(&self, read: &dyn Fn(u64) -> u64) -> Option<u64> {
        (0..CATALOG_SLOTS as u64).map(|slot| CATALOG_OFF + slot * 8).find(|&off| read(off) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_map_header() {
        let header = MapHeader { name: "golden".into(), kind: 1, options: [2, 3, 4, 5] };
        assert_eq!(crc32fast::hash(&header.encode(6)), GOLDEN, "the map header's format changed");
    }
    const GOLDEN: u32 = 3_811_449_264;
}
