//! New leaves: sorted, as large as their content and free space need, written into a reserved block
//! that no other thread sees, and flushed before a word names the block (paper 4.3, 6.2).

use pando_inner::slices::prefix_bytes_of;
use pando_inner::{NewNode, write_slices};
use pando_pmem::{Domain, Exclusive, block_bytes};
use pando_tree::context::Context;

use crate::candidate::LiveRecord;
use crate::layout::{
    HEADER_BYTES, Header, Kind, LeafHint, Link, SHAPE_AT, SLICED_BYTES, STATUS_AT, Shape,
    dead_bytes,
};
use crate::meta::MAX_LEAF_BYTES;

/// The room that records take in a leaf of their own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Bytes of the records, padded.
    pub storage_bytes: u64,
    /// Bytes of their metadata, slices included.
    pub metadata_bytes: u64,
    /// The length of each record, if keys have 8 bytes and all records are equally long and inline;
    /// otherwise zero.
    uniform_bytes: u64,
}

impl Extent {
    #[inline]
    pub fn of(records: &[LiveRecord]) -> Self {
        let first = records.first().map_or(0, |first| first.meta.record_bytes());
        let mut storage_bytes = 0;
        let mut uniform = true;
        for LiveRecord { meta, .. } in records {
            storage_bytes += meta.padded_bytes();
            uniform &= meta.key_bytes() == 8 && meta.record_bytes() == first && !meta.is_pointer();
        }
        Self {
            storage_bytes,
            metadata_bytes: if uniform { 0 } else { records.len() as u64 * SLICED_BYTES },
            uniform_bytes: if uniform { first } else { 0 },
        }
    }

    pub fn bytes(self) -> u64 {
        self.storage_bytes + self.metadata_bytes
    }
}

/// Bytes that a record of unknown length is assumed to take in an empty leaf.
pub(crate) const USUAL_BYTES: u64 = 16;

/// Records for which a leaf must have room: their number, and the bytes of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub records: u64,
    pub record_bytes: u64,
    pub kind: RecordKind,
}

/// The kind of the wanted records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// None, or deletes, which any leaf takes.
    Any,
    /// The key of a record that a range leaf takes.
    Number(u64),
    /// A range leaf does not take it.
    Other,
}

impl Wanted {
    pub const NONE: Self = Self { records: 0, record_bytes: 0, kind: RecordKind::Any };

    /// The key for which a range leaf must have a slot.
    pub fn number(self) -> Option<u64> {
        match self.kind {
            RecordKind::Number(key) => Some(key),
            RecordKind::Any | RecordKind::Other => None,
        }
    }

    fn bytes(self) -> u64 {
        self.records * self.record_bytes
    }
}

/// Room for later records, in bytes, and the records that must fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub free_bytes: u64,
    pub wanted: Wanted,
}

impl Room {
    /// The least bytes of this room. There is always one slot.
    pub fn least_bytes(self) -> u64 {
        self.free_bytes.max(self.wanted.bytes() + self.wanted.records.max(1) * 8)
    }

    /// Bytes to request beside `sorted` records.
    pub fn bytes(self, sorted: u64) -> u64 {
        let free = self.least_bytes();
        free + dead_bytes(sorted, free / 8)
    }

    /// How many slots to make in `room` bytes beside `sorted` records, if later records are like
    /// the present ones.
    fn slots(self, sorted: u64, storage_bytes: u64, room: u64) -> u64 {
        let usual = || self.wanted.record_bytes.max(USUAL_BYTES);
        let each = 8 + storage_bytes.checked_div(sorted).unwrap_or_else(usual).max(8);
        let room = room - dead_bytes(sorted, room / each);
        let most = (room - self.wanted.bytes()) / 8;
        (room / each).max(self.wanted.records).min(most).clamp(1, 0xFFFF)
    }
}

/// Builds a leaf of `records`, which ascend.
pub(crate) fn leaf<'op, D: Domain>(
    context: Context<'op, D>,
    records: &[LiveRecord],
    room: Room,
) -> pando_pmem::Result<NewNode<'op, D>> {
    let count = records.len() as u64;
    let extent = Extent::of(records);
    let storage_bytes = extent.storage_bytes;
    let metadata_end = HEADER_BYTES + extent.metadata_bytes;
    let wanted = metadata_end + storage_bytes + room.bytes(count);
    let mut block = context.guard.reserve(wanted)?;
    // The bytes that the size class adds become free space.
    let node_bytes = block.bytes();
    debug_assert!(node_bytes <= MAX_LEAF_BYTES);
    let sorted_at = node_bytes - storage_bytes;
    // But not those that a full pool adds because it has no block of the right class
    // (`smo/sweep.rs`).
    let added = node_bytes - block_bytes(wanted).min(node_bytes);
    let slots = room.slots(count, storage_bytes, sorted_at - metadata_end - added);
    let shape = Shape { slots, sorted_at, record_bytes: extent.uniform_bytes };
    let keys = || records.iter().map(|record| record.key(context));
    let prefix_bytes = match (shape.is_uniform(), records.first(), records.last()) {
        (false, Some(first), Some(last)) => prefix_bytes_of(first.key(context), last.key(context)),
        _ => 0,
    };
    let header = Header { kind: Kind::Leaf, prefix_bytes, count, node_bytes };
    block.write_u64(0, header.encode());
    block.write_u64(STATUS_AT, 0);
    block.write_u64(SHAPE_AT, shape.encode());
    if !shape.is_uniform() {
        write_slices(&mut block, HEADER_BYTES, prefix_bytes, keys());
        let mut at = sorted_at;
        if let Some(mut metadata) = block.range_mut(HEADER_BYTES + count * 8, count * 8) {
            for (index, record) in records.iter().enumerate() {
                metadata.write_u64(index * 8, record.meta.moved_to(at).0);
                at += record.meta.padded_bytes();
            }
        }
    }
    if let Some(storage) = block.range_mut(sorted_at, storage_bytes) {
        copy_records(context, records, storage);
    }
    // Unclaimed slots read as empty, also after a crash.
    let zeros = slots * 8 + dead_bytes(count, slots);
    block.zero(metadata_end, zeros);
    block.flush(0, metadata_end + zeros);
    block.flush(sorted_at, storage_bytes);
    let hint = if shape.is_uniform() {
        LeafHint { searched_at: sorted_at, searched_bytes: storage_bytes }
    } else {
        LeafHint { searched_at: 0, searched_bytes: HEADER_BYTES + count * 8 }
    };
    let link = Link::new(block.off(), hint.encode());
    Ok(NewNode { block, link })
}

/// Copies the records one behind the other.
#[inline]
fn copy_records<D: Domain>(
    context: Context<'_, D>,
    records: &[LiveRecord],
    mut storage: Exclusive<'_>,
) {
    let mut at = 0;
    for record in records {
        let bytes = record.meta.padded_bytes();
        if record.meta.is_pointer() {
            // A PMwCAS may be changing the word that names a value's block; the key never changes.
            storage.write_u64(at, context.read(record.off));
            storage.write(at + 8, context.published(record.off + 8, bytes - 8));
        } else {
            let source = context.published(record.off, bytes);
            match source.as_chunks::<8>() {
                // By far the most common record: two words, without a loop.
                ([first, second], []) => {
                    storage.write_u64(at, u64::from_le_bytes(*first));
                    storage.write_u64(at + 8, u64::from_le_bytes(*second));
                }
                _ => storage.write(at, source),
            }
        }
        at += bytes as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_leaf_has_the_slots_and_the_room_that_are_wanted() {
        for free_bytes in [8, 24, 128, 384, 4096] {
            for (records, record_bytes) in [(0, 0), (1, 0), (1, 16), (5, 0), (7, 24), (40, 4096)] {
                let wanted = Wanted { records, record_bytes, kind: RecordKind::Other };
                let room = Room { free_bytes, wanted };
                for (sorted, each) in [(0, 0), (1, 8), (3, 64), (59, 16), (120, 16), (7, 8192)] {
                    for added in (0..256).step_by(8) {
                        let bytes = room.bytes(sorted) + added;
                        let slots = room.slots(sorted, sorted * each, bytes);
                        let label = format!("{room:?}, {sorted} of {each} bytes, {bytes} bytes");
                        assert!(slots >= records.max(1), "{label}: {slots} slots");
                        let taken = slots * 8 + dead_bytes(sorted, slots);
                        let left = bytes.checked_sub(taken);
                        let wanted = records * record_bytes;
                        assert!(left.is_some_and(|left| left >= wanted), "{label}: {left:?} left");
                    }
                }
            }
        }
    }
}
