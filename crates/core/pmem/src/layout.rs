//! The layout of a pool. All offsets are defined here, and nowhere else.
//!
//! ```text
//! offset      bytes    content
//! 0           4,096    superblock                                  (superblock.rs)
//! 4,096       4,096    control page: one word a line
//!             +0       global epoch                                (epoch.rs)
//!             +64      participants: slots claimed since the last recovery
//!             +128     frontier: chunks that were ever used        (alloc/chunks.rs)
//!             +192     catalog version                             (pando-tree)
//!             +256     directory of the participant table: its further segments, 6 words (table.rs)
//!             +320     chunks whose room was returned to the system (alloc/holes.rs)
//!             +384     control block of the log, 0 if there is none (crate pando-log)
//!             +448     catalog version that the log has, 0 if it has none
//!             +512     census of the processes' blocks, three words on two lines (alloc/census.rs)
//!             +640     free chunks below the frontier, if processes share the pool (alloc/freed.rs)
//!             +704     when the epoch was last raised, if processes share the pool (epoch.rs)
//!             +2,048   processes that share the pool: 256 words    (processes.rs)
//! 8,192      16,384    participants, the first 128 slots of 128 bytes (participant.rs, table.rs)
//! 24,576      8,192    catalog, 1,024 words                        (pando-tree)
//! 32,768    262,144    descriptor partitions of these slots, 2,048 bytes each (crate pando-pmwcas)
//! 294,912  8*chunks    chunk table, one word for each chunk        (alloc/chunks.rs)
//! then, at a multiple of 65,536: the chunks, 65,536 bytes each
//! ```
//!
//! All offsets are bytes from the pool's base, at most 48 bits wide. All integers are
//! little-endian.

/// Bytes of a page of the host. Room is made in whole pages.
pub const PAGE_BYTES: u64 = 4096;

/// Offset of the control page.
pub const CONTROL_OFF: u64 = 4096;
/// Offset of the global epoch.
pub const EPOCH_OFF: u64 = CONTROL_OFF;
/// Offset of the number of participant slots that were claimed since the last recovery.
pub const PARTICIPANTS_HIGH_OFF: u64 = CONTROL_OFF + 64;
/// Offset of the number of chunks that were ever used.
pub const FRONTIER_OFF: u64 = CONTROL_OFF + 128;
/// Offset of the catalog's version.
pub const CATALOG_VERSION_OFF: u64 = CONTROL_OFF + 192;
/// Offset of the directory of the participant table: a word for each segment after the first.
pub const SEGMENTS_OFF: u64 = CONTROL_OFF + 256;
/// Segments that the participant table may have after the first, each as large as all before it.
pub const SEGMENT_COUNT: usize = 6;
/// Offset of the number of chunks whose room was returned to the system.
pub const PUNCHED_OFF: u64 = CONTROL_OFF + 320;
/// Offset of the word that names the control block of the pool's log.
pub const LOG_OFF: u64 = CONTROL_OFF + 384;
/// Offset of the catalog's version whose maps the log has in its newest list.
pub const LOGGED_VERSION_OFF: u64 = CONTROL_OFF + 448;
/// Offset of the number and the phase of the newest census.
pub const CENSUS_OFF: u64 = CONTROL_OFF + 512;
/// Offset of the number of processes that have died in this generation.
pub const DEATHS_OFF: u64 = CONTROL_OFF + 576;
/// Offset of the number of deaths whose blocks a census has given back.
pub const COUNTED_DEATHS_OFF: u64 = CONTROL_OFF + 584;
/// Offset of the known number of free chunks, in a pool that processes share.
pub const FREED_OFF: u64 = CONTROL_OFF + 640;
/// Offset of the time when the epoch was last raised in a pool that processes share, in
/// milliseconds of the host's monotonic clock. For reports; any value is valid.
pub const EPOCH_RAISED_OFF: u64 = CONTROL_OFF + 704;
/// Offset of the table of the processes that share the pool, one word each.
pub const PROCESSES_OFF: u64 = CONTROL_OFF + 2048;
/// Processes that may share a pool.
pub const MAX_PROCESSES: usize = 256;

/// Offset of the participant table.
pub const PARTICIPANTS_OFF: u64 = 8192;
/// Slots in the first segment of the participant table.
pub const FIRST_PARTICIPANTS: usize = 128;
/// Slots that the participant table may have. So many threads can be inside operations on one pool
/// at the same time.
pub const MAX_PARTICIPANTS: usize = FIRST_PARTICIPANTS << SEGMENT_COUNT;
/// Bytes of a participant slot.
pub const PARTICIPANT_BYTES: u64 = 128;

/// Offset of the catalog.
pub const CATALOG_OFF: u64 = 24_576;
/// Words of the catalog: so many named maps can one pool hold.
pub const CATALOG_SLOTS: usize = 1024;

/// Offset of the descriptor partitions.
pub const DESCRIPTORS_OFF: u64 = 32_768;
/// Bytes of one participant's partition of descriptors.
pub const PARTITION_BYTES: u64 = 2048;

/// Offset of the chunk table.
pub const CHUNK_TABLE_OFF: u64 = 294_912;
/// Bytes of a chunk.
pub const CHUNK_BYTES: u64 = 65_536;

/// Smallest limit of a pool's size.
pub const MIN_POOL_BYTES: u64 = 1 << 20;
/// Largest limit of a pool's size: 16 TiB.
pub const MAX_POOL_BYTES: u64 = 1 << 44;

const _: () = {
    assert!(PARTICIPANTS_OFF == CONTROL_OFF + PAGE_BYTES);
    assert!(SEGMENTS_OFF + SEGMENT_COUNT as u64 * 8 <= CONTROL_OFF + 320);
    assert!(PROCESSES_OFF + MAX_PROCESSES as u64 * 8 == PARTICIPANTS_OFF);
    assert!(CATALOG_OFF == PARTICIPANTS_OFF + FIRST_PARTICIPANTS as u64 * PARTICIPANT_BYTES);
    assert!(DESCRIPTORS_OFF == CATALOG_OFF + CATALOG_SLOTS as u64 * 8);
    assert!(CHUNK_TABLE_OFF == DESCRIPTORS_OFF + FIRST_PARTICIPANTS as u64 * PARTITION_BYTES);
    assert!(CHUNK_TABLE_OFF.is_multiple_of(PAGE_BYTES));
};

/// The part of the layout that depends on the limit of the pool's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The limit of the pool's size, in bytes.
    pub max_bytes: u64,
    /// The largest number of chunks.
    pub max_chunks: u64,
    /// Offset of the first chunk.
    pub chunks_off: u64,
}

impl Geometry {
    /// The layout of a pool that may grow to `max_bytes`, a multiple of [`CHUNK_BYTES`].
    pub fn new(max_bytes: u64) -> Self {
        // As many chunks as fit after a table with a word for each.
        let behind = max_bytes - CHUNK_TABLE_OFF;
        let max_chunks = (behind - CHUNK_BYTES) / (CHUNK_BYTES + 8);
        let chunks_off = (CHUNK_TABLE_OFF + max_chunks * 8).next_multiple_of(CHUNK_BYTES);
        Self { max_bytes, max_chunks, chunks_off }
    }

    /// Offset of chunk `index`.
    pub fn chunk_off(&self, index: u64) -> u64 {
        self.chunks_off + index * CHUNK_BYTES
    }

    /// Offset of the table's word of chunk `index`.
    pub fn chunk_word_off(&self, index: u64) -> u64 {
        CHUNK_TABLE_OFF + index * 8
    }

    /// The chunk that holds `off`, if `off` lies in a chunk.
    pub fn chunk_of(&self, off: u64) -> Option<u64> {
        let index = off.checked_sub(self.chunks_off)? / CHUNK_BYTES;
        (index < self.max_chunks).then_some(index)
    }
}

/// The position of a slot after the first segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotPlace {
    /// The segment: the number of its word in the directory.
    pub segment: usize,
    /// Slots of the segment.
    pub slots: usize,
    /// The number of the slot in the segment.
    pub index: usize,
}

/// The position of `slot`, which lies after the `first` slots of the first segment. For a slot
/// beyond the table, `index` is beyond the slots of the last segment.
pub(crate) fn slot_place(slot: usize, first: usize) -> SlotPlace {
    let segment = ((slot / first).ilog2() as usize).min(SEGMENT_COUNT - 1);
    let slots = first << segment;
    SlotPlace { segment, slots, index: slot - slots }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_follow_each_other_without_gap() {
        for first in [1, 2, 128] {
            let mut next = SlotPlace { segment: 0, slots: first, index: 0 };
            for slot in first..first << SEGMENT_COUNT {
                assert_eq!(slot_place(slot, first), next, "{slot} behind {first}");
                next.index += 1;
                if next.index == next.slots {
                    next = SlotPlace { segment: next.segment + 1, slots: 2 * next.slots, index: 0 };
                }
            }
            let beyond = slot_place(first << SEGMENT_COUNT, first);
            assert!(beyond.index >= beyond.slots, "{beyond:?}");
        }
    }

    #[test]
    fn chunks_fit_behind_their_table_for_every_size() {
        for max_bytes in [MIN_POOL_BYTES, 1 << 24, 1 << 30, 1 << 36, MAX_POOL_BYTES] {
            let geometry = Geometry::new(max_bytes);
            assert!(geometry.max_chunks > 0);
            assert!(geometry.chunk_word_off(geometry.max_chunks) <= geometry.chunks_off);
            assert!(geometry.chunk_off(geometry.max_chunks) <= max_bytes);
            assert_eq!(geometry.chunk_of(geometry.chunks_off), Some(0));
            assert_eq!(geometry.chunk_of(geometry.chunks_off - 1), None);
            assert_eq!(geometry.chunk_of(geometry.chunk_off(geometry.max_chunks)), None);
        }
    }
}
