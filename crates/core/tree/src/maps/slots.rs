//! What the catalog has on the medium: a slot for each named map of a pool, and the map's header.
//! `catalog.rs` changes it.
//!
//! ```text
//! catalog, 1,024 words, one for each slot: zero, or
//!
//! bits   63 .. 60   59 .. 48   47 .. 0
//!        zero       mark       offset of the map's header
//!
//! map header, one block of 704 bytes
//! byte   0        8         16 ..            64           384
//! 0      root     progress  zero             copy 0       copy 1
//!
//! copy   0        8          16       24       32 .. 63             64 .. 319
//! 0      magic    slot|kind  number   crc|len  options, 4 words     name, up to 255 bytes, zeros
//! ```
//!
//! The index that owns the map defines `kind`, the lower half of its word, and the options.
//! `number` is zero, unless the map is transactional: then no other map of the pool ever has the
//! number, not even after this one is dropped. It is the version of the catalog that the map's
//! creation made. `root` is the index's entry word. It changes, and so does `progress` while a
//! dropped map is freed, and the name when the map is renamed ([`Slots::replace_header`]). The two
//! copies share no line. They are equal, except after a crash during a renaming. The upper half of
//! word 3 is the CRC-32 of the whole copy with that half zero, and `slot` is the number of the
//! catalog's slot. A copy is valid if both are right. If one copy is damaged, the other is used.
//!
//! The mark says whether the map is *live*, or *dropped*: removed from the catalog, while its
//! blocks are freed. Each mark has six of twelve bits set, and the other mark has the other
//! six. So a few flipped bits cannot turn an empty slot into a map, a map into an empty slot, or a
//! live map into a dropped one. A slot that is not empty and does not lead to its header is a
//! *damaged map*. It is listed by its number. While it exists, no new map can be created, since the
//! damaged map may have the name.
//!
//! Slots change only together with the catalog's version (by one PMwCAS), so two threads cannot
//! create two maps of one name.

use std::ops::ControlFlow;
use std::sync::atomic::{Ordering, fence};

use pando_pmem::layout::{CATALOG_OFF, CATALOG_SLOTS, CATALOG_VERSION_OFF};
use pando_pmem::{Domain, Guard, Pool, Result, mutant};

/// Longest name of a map, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Bytes of a map header.
pub const HEADER_BYTES: u64 = FIRST_COPY_AT + COPIES * COPY_BYTES;
/// The mark of a live map, in its slot's word.
pub const LIVE_MARK: u16 = 0b0101_1010_0101;
/// The mark of a map that is dropped and not freed yet, in its slot's word.
pub const DROPPED_MARK: u16 = 0b1010_0101_1010;
/// The byte of a header at which the word is that counts the freed blocks of a dropped map.
pub const PROGRESS_AT: u64 = 8;

const MAP_MAGIC: u64 = u64::from_le_bytes(*b"PANDOmap");
const COPIES: u64 = 2;
const NAME_AT: usize = 64;
const COPY_BYTES: u64 = NAME_AT as u64 + 256;
const FIRST_COPY_AT: u64 = 64;
const CHECKSUM_AT: usize = 28;
const MARK_SHIFT: u32 = 48;
const SLOT_SHIFT: u32 = 32;
const KIND_MASK: u64 = (1 << SLOT_SHIFT) - 1;
/// The bits of a slot's word that are not control bits of PMwCAS.
const OWN_BITS: u64 = (1 << 61) - 1;

const _: () = {
    assert!(HEADER_BYTES == 704);
    assert!(COPY_BYTES.is_multiple_of(64) && FIRST_COPY_AT.is_multiple_of(64));
    assert!(NAME_AT as u64 + MAX_NAME_BYTES as u64 <= COPY_BYTES);
    assert!(LIVE_MARK.count_ones() == 6 && LIVE_MARK ^ DROPPED_MARK == 0xFFF);
};

/// The header of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapHeader {
    /// Its name.
    pub name: String,
    /// The number of its index, of 32 bits.
    pub kind: u64,
    /// The options of the index, in the index's encoding.
    pub options: [u64; 4],
    /// The number of a transactional map; zero of another one.
    pub number: u64,
}

impl MapHeader {
    /// In the header of a map that is to be created: it gets a number.
    pub const NEW_NUMBER: u64 = u64::MAX;
}

/// Why the map of a slot cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The slot's word leads to no header.
    #[error("its word {word:#x} leads to no map's header")]
    Slot {
        /// The slot's word.
        word: u64,
    },
    /// Both copies of the header are damaged.
    #[error("both copies of its header, in the block at {off:#x}, are damaged")]
    Header {
        /// Offset of the header.
        off: u64,
    },
}

/// A map of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// Number of the catalog's slot.
    pub slot: u64,
    /// The content of the slot's word.
    pub word: u64,
    /// Offset of the map's header; zero if it is not known.
    pub header_off: u64,
    /// The header, or why it is not known.
    pub header: std::result::Result<MapHeader, Damage>,
}

impl MapEntry {
    /// Offset of the slot's word.
    pub fn slot_off(&self) -> u64 {
        slot_off(self.slot)
    }

    /// Whether the map is dropped, and its blocks are being freed.
    pub fn is_dropped(&self) -> bool {
        self.header_off != 0 && marked(self.word, DROPPED_MARK).is_some()
    }

    /// Offset of the word from which the map's index is reached.
    pub fn root_off(&self) -> u64 {
        self.header_off
    }
}

fn slot_off(slot: u64) -> u64 {
    CATALOG_OFF + slot * 8
}

/// The word of a slot whose map has its header at `header_off`.
pub fn slot_word(mark: u16, header_off: u64) -> u64 {
    u64::from(mark) << MARK_SHIFT | header_off
}

/// The header's offset in the word of a slot, if the word has this mark.
fn marked(word: u64, mark: u16) -> Option<u64> {
    (word >> MARK_SHIFT == u64::from(mark)).then_some(word & ((1 << MARK_SHIFT) - 1))
}

impl MapHeader {
    fn encode_copy(&self, slot: u64) -> [u8; COPY_BYTES as usize] {
        let mut copy = [0; COPY_BYTES as usize];
        let kind = slot << SLOT_SHIFT | self.kind & KIND_MASK;
        let words = [MAP_MAGIC, kind, self.number, self.name.len() as u64];
        for (index, word) in words.into_iter().chain(self.options).enumerate() {
            copy[index * 8..index * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        copy[NAME_AT..NAME_AT + self.name.len()].copy_from_slice(self.name.as_bytes());
        let checksum = crc32fast::hash(&copy);
        copy[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        copy
    }

    /// The bytes on media of the header of the map in `slot`, with `root` as the entry word. The
    /// name must have at most [`MAX_NAME_BYTES`] bytes.
    pub fn encode(&self, slot: u64, root: u64) -> [u8; HEADER_BYTES as usize] {
        let mut block = [0; HEADER_BYTES as usize];
        block[..8].copy_from_slice(&root.to_le_bytes());
        for place in 0..COPIES {
            let at = copy_at(place) as usize;
            block[at..at + COPY_BYTES as usize].copy_from_slice(&self.encode_copy(slot));
        }
        block
    }

    /// Decodes a copy of the header of the map in `slot`; `None` if any bit differs from what was
    /// written.
    fn decode_copy(copy: &[u8], slot: u64) -> Option<Self> {
        let word =
            |index: usize| u64::from_le_bytes(*copy[index * 8..].first_chunk().unwrap_or(&[0; 8]));
        let bytes = usize::try_from(word(3) & u64::from(u32::MAX)).ok()?;
        let name = copy.get(NAME_AT..NAME_AT.checked_add(bytes)?)?;
        if word(0) != MAP_MAGIC || word(1) >> SLOT_SHIFT != slot || bytes > MAX_NAME_BYTES {
            return None;
        }
        let name = std::str::from_utf8(name).ok()?.to_owned();
        let (kind, options) = (word(1) & KIND_MASK, [4, 5, 6, 7].map(word));
        let header = Self { name, kind, options, number: word(2) };
        (header.encode_copy(slot) == *copy).then_some(header)
    }
}

fn copy_at(place: u64) -> u64 {
    FIRST_COPY_AT + place * COPY_BYTES
}

/// The known part of a header whose copies are both damaged: the words in which the copies agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// The kind.
    pub kind: Option<u64>,
    /// The options.
    pub options: Option<[u64; 4]>,
    /// The number of a transactional map.
    pub number: Option<u64>,
}

/// The slots of a pool's catalog.
#[derive(Clone, Copy, Debug)]
pub struct Slots<'pool, D: Domain>(&'pool Pool<D>);

impl<'pool, D: Domain> Slots<'pool, D> {
    /// Those of this pool.
    pub fn of(pool: &'pool Pool<D>) -> Self {
        Self(pool)
    }

    /// The catalog's maps, without dropped ones. `read` reads a word that may be under a PMwCAS.
    pub fn maps(self, guard: &Guard<'_, D>, read: &dyn Fn(u64) -> u64) -> Vec<MapEntry> {
        self.entries(guard, read, &|entry| !entry.is_dropped())
    }

    /// The maps that are dropped and not freed yet. Costs 1,024 loads if there is none.
    pub fn dropped_maps(self, guard: &Guard<'_, D>, read: &dyn Fn(u64) -> u64) -> Vec<MapEntry> {
        self.entries(guard, read, &MapEntry::is_dropped)
    }

    /// Whether a map is dropped and not freed yet; may miss one that is being dropped now. Costs
    /// 1,024 loads.
    pub fn has_dropped_maps(self) -> bool {
        // Acquire: pairs with the swap that marked the map.
        (0..CATALOG_SLOTS as u64).any(|slot| {
            let word = self.0.word(slot_off(slot)).load(Ordering::Acquire);
            marked(word & OWN_BITS, DROPPED_MARK).is_some()
        })
    }

    fn entries(
        self,
        guard: &Guard<'_, D>,
        read: &dyn Fn(u64) -> u64,
        is_wanted: &dyn Fn(&MapEntry) -> bool,
    ) -> Vec<MapEntry> {
        (0..CATALOG_SLOTS as u64)
            .filter_map(|slot| self.entry_in(guard, slot, read))
            .filter(is_wanted)
            .collect()
    }

    /// The map of slot number `slot`, if the slot is not empty.
    pub fn entry_in(
        self,
        guard: &Guard<'_, D>,
        slot: u64,
        read: &dyn Fn(u64) -> u64,
    ) -> Option<MapEntry> {
        loop {
            let word = read(slot_off(slot));
            if word == 0 {
                return None;
            }
            let version = read(CATALOG_VERSION_OFF);
            let entry = self.catalog_entry(guard, slot, word);
            if entry.header.is_ok() {
                return Some(entry);
            }
            // Acquire: the copies were read before the words below.
            fence(Ordering::Acquire);
            // If the word has changed, the map was freed between the two reads. If the version has
            // changed, two renames may have replaced each copy while it was read. Then the map is
            // not damaged.
            if read(slot_off(slot)) == word && read(CATALOG_VERSION_OFF) == version {
                return Some(entry);
            }
        }
    }

    /// The map of slot number `slot`, whose word is `word`, not zero.
    fn catalog_entry(self, guard: &Guard<'_, D>, slot: u64, word: u64) -> MapEntry {
        let off = marked(word, LIVE_MARK).or_else(|| marked(word, DROPPED_MARK));
        let (header_off, header) = match off.filter(|&off| self.is_header(off)) {
            Some(off) => {
                let copy = (0..COPIES).find_map(|place| self.header_copy(guard, off, place, slot));
                (off, copy.ok_or(Damage::Header { off }))
            }
            None => (0, Err(Damage::Slot { word })),
        };
        MapEntry { slot, word, header_off, header }
    }

    /// Whether an active block that is large enough for a header begins at `off`.
    fn is_header(self, off: u64) -> bool {
        self.0.active_block(off).is_some_and(|bytes| bytes >= HEADER_BYTES)
    }

    fn header_copy(
        self,
        _pinned: &Guard<'_, D>,
        off: u64,
        place: u64,
        slot: u64,
    ) -> Option<MapHeader> {
        // Acquire: pairs with the release in `write_copy`. A reader that has seen a part of the new
        // first copy sees the whole of the new second one.
        fence(Ordering::Acquire);
        MapHeader::decode_copy(&self.0.load_bytes(off + copy_at(place), COPY_BYTES), slot)
    }

    /// Whether a copy of the header of `entry` is damaged, or has another name, and the other copy
    /// is valid.
    pub fn has_damaged_copy(self, guard: &Guard<'_, D>, entry: &MapEntry) -> bool {
        let differs = |place| {
            let copy = self.header_copy(guard, entry.header_off, place, entry.slot);
            copy.as_ref() != entry.header.as_ref().ok()
        };
        entry.header.is_ok() && (0..COPIES).any(differs)
    }

    /// The words in which the copies of a damaged header agree.
    pub fn header_remains(self, _pinned: &Guard<'_, D>, header_off: u64) -> Remains {
        let word = |place: u64, index: u64| {
            self.0.word(header_off + copy_at(place) + index * 8).load(Ordering::Acquire)
        };
        let agreed = |index: u64| (word(0, index) == word(1, index)).then(|| word(0, index));
        let options = [4, 5, 6, 7].map(agreed);
        let options =
            options.iter().all(Option::is_some).then(|| options.map(Option::unwrap_or_default));
        Remains { kind: agreed(1).map(|word| word & KIND_MASK), options, number: agreed(2) }
    }

    /// Searches all blocks for headers of the map in `slot`, for a slot whose word is damaged.
    pub fn find_headers(self, guard: &Guard<'_, D>, slot: u64) -> Result<Vec<(u64, MapHeader)>> {
        let mut found = Vec::new();
        self.0.visit_active(&mut |block| {
            let is_marked = |&place: &u64| {
                self.0.word(block.off + copy_at(place)).load(Ordering::Acquire) == MAP_MAGIC
            };
            if block.bytes >= HEADER_BYTES {
                let copy = (0..COPIES)
                    .filter(is_marked)
                    .find_map(|place| self.header_copy(guard, block.off, place, slot));
                found.extend(copy.map(|header| (block.off, header)));
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Writes both copies of the header at `header_off` again, durably, for a damaged map that will
    /// be dropped. A crash leaves a valid first copy, or the damaged header.
    pub fn rewrite_header(self, header_off: u64, slot: u64, header: &MapHeader) {
        (0..COPIES).for_each(|place| self.write_copy(header_off, place, slot, header));
    }

    /// Replaces the header of the live map `entry`, whose header is valid, by `header`, durably.
    /// One thread at a time calls it; others may read the header meanwhile.
    ///
    /// | step | what is written | what a crash leaves |
    /// | --- | --- | --- |
    /// | 1 | the first copy, if it is damaged: the old header | the old header, in the second copy |
    /// | 2 | the second copy: the new header | the old header, in the first copy |
    /// | 3 | the first copy: the new header | the new header, in the second copy or in both |
    ///
    /// The first copy decides while it is valid. From the first byte that step 3 changes it is not,
    /// and then the second one has the new header: it was durable before. After a crash
    /// [`settle_header`](Self::settle_header) makes the copies equal again.
    pub fn replace_header(self, guard: &Guard<'_, D>, entry: &MapEntry, header: &MapHeader) {
        let (off, slot) = (entry.header_off, entry.slot);
        if let Ok(old) = &entry.header
            && self.header_copy(guard, off, 0, slot).is_none()
        {
            self.write_copy(off, 0, slot, old);
        }
        self.write_copy(off, 1, slot, header);
        self.write_copy(off, 0, slot, header);
    }

    /// Makes both copies of the header of `entry` equal and durable, if one is valid:
    /// [`replace_header`] was interrupted, or a copy is damaged. No other thread changes the
    /// header.
    ///
    /// Equal copies are written back too: a killed thread may have stored the new name without its
    /// write-back. A power cut must not bring the old name back after the new one was read.
    ///
    /// [`replace_header`]: Self::replace_header
    pub fn settle_header(self, guard: &Guard<'_, D>, entry: &MapEntry) {
        let Ok(header) = &entry.header else { return };
        for place in 0..COPIES {
            let copy = self.header_copy(guard, entry.header_off, place, entry.slot);
            if copy.as_ref() != Some(header) {
                self.write_copy(entry.header_off, place, entry.slot, header);
            } else {
                self.0.flush(entry.header_off + copy_at(place), COPY_BYTES);
            }
        }
        D::fence();
    }

    fn write_copy(self, header_off: u64, place: u64, slot: u64, header: &MapHeader) {
        // Release: pairs with the acquire in `header_copy`. It orders the other copy before this.
        fence(Ordering::Release);
        self.0.store_bytes(header_off + copy_at(place), &header.encode_copy(slot));
        if place == 1 && mutant!("map-second-copy-not-durable") {
            return;
        }
        self.0.flush(header_off + copy_at(place), COPY_BYTES);
        D::fence();
    }

    /// Makes the header of a freed map invalid, durably, so that no search finds it later.
    pub fn erase_header(self, header_off: u64) {
        for place in 0..COPIES {
            let magic = self.0.word(header_off + copy_at(place));
            magic.store(0, Ordering::Release);
            magic.flush();
        }
        D::fence();
    }

    /// Writes `word` into the damaged slot number `slot`, durably. The slot's content may look like
    /// a running operation, but no operation ever changes it.
    pub fn rewrite_slot(self, slot: u64, word: u64) {
        let place = self.0.word(slot_off(slot));
        place.store(word, Ordering::Release);
        place.flush();
        D::fence();
    }

    /// The offset of the word of slot number `slot`; `None` if there is no such slot.
    pub fn word_off(self, slot: u64) -> Option<u64> {
        (slot < CATALOG_SLOTS as u64).then(|| slot_off(slot))
    }

    /// The number of the first empty slot. `read` reads a word that may be under a PMwCAS.
    pub fn empty_slot(self, read: &dyn Fn(u64) -> u64) -> Option<u64> {
        (0..CATALOG_SLOTS as u64).find(|&slot| read(slot_off(slot)) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden() -> MapHeader {
        MapHeader { name: "golden".into(), kind: 1, options: [2, 3, 4, 5], number: 6 }
    }

    #[test]
    fn golden_map_header() {
        assert_eq!(
            crc32fast::hash(&golden().encode(7, 6)),
            GOLDEN,
            "the map header's format changed"
        );
        assert_eq!(slot_word(LIVE_MARK, 0x1_2340), 0x05A5_0000_0001_2340);
    }
    const GOLDEN: u32 = 3_321_898_607;

    #[test]
    fn a_copy_with_a_flipped_bit_is_not_believed() {
        let copy = golden().encode_copy(7);
        assert_eq!(MapHeader::decode_copy(&copy, 7), Some(golden()));
        assert_eq!(MapHeader::decode_copy(&copy, 8), None);
        for bit in 0..copy.len() * 8 {
            let mut copy = copy;
            copy[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(MapHeader::decode_copy(&copy, 7), None, "bit {bit}");
        }
    }
}
