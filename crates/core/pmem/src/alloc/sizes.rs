//! The sizes of blocks.

use crate::layout::CHUNK_BYTES;

/// Every block starts at a multiple of this number: a cache line.
pub const BLOCK_ALIGN: u64 = 64;
/// Bytes of a slab before its first block (`slab.rs`).
pub(crate) const SLAB_HEADER_BYTES: u64 = 512;
/// Largest block of a slab: two fit into a chunk.
pub(crate) const MAX_SLAB_BLOCK: u64 = 32_512;
/// Largest span in chunks: the chunk table's word has 24 bits for it.
pub(crate) const MAX_SPAN_CHUNKS: u64 = (1 << 24) - 1;

/// Sizes of blocks: steps of 64 bytes to 1 KiB, of 128 to 2 KiB, of 256 to 4 KiB. Then the largest
/// sizes of which 15, 14, ... 2 fit into a chunk.
pub(crate) const CLASS_BYTES: [u64; CLASS_COUNT] = class_bytes();
pub(crate) const CLASS_COUNT: usize = 16 + 8 + 8 + 14;

const fn class_bytes() -> [u64; CLASS_COUNT] {
    let mut sizes = [0; CLASS_COUNT];
    let mut size = 0;
    let mut class = 0;
    while class < CLASS_COUNT {
        size += match class {
            0..16 => 64,
            16..24 => 128,
            _ => 256,
        };
        if class >= 32 {
            let fitting = 15 - (class as u64 - 32);
            size = (CHUNK_BYTES - SLAB_HEADER_BYTES) / fitting / BLOCK_ALIGN * BLOCK_ALIGN;
        }
        sizes[class] = size;
        class += 1;
    }
    sizes
}

/// The smallest class for `bytes`, or `None` if they need a span.
pub(crate) fn class_of(bytes: u64) -> Option<usize> {
    if bytes > MAX_SLAB_BLOCK {
        return None;
    }
    let class = CLASS_BYTES.partition_point(|&size| size < bytes);
    (class < CLASS_COUNT).then_some(class)
}

/// The length of a block that is reserved for `bytes`.
pub fn block_bytes(bytes: u64) -> u64 {
    match class_of(bytes) {
        Some(class) => CLASS_BYTES[class],
        None => bytes.checked_next_multiple_of(CHUNK_BYTES).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_rise_and_fit() {
        assert_eq!(CLASS_BYTES[CLASS_COUNT - 1], MAX_SLAB_BLOCK);
        for pair in CLASS_BYTES.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
        }
        for bytes in CLASS_BYTES {
            assert!(bytes.is_multiple_of(BLOCK_ALIGN));
            assert!(bytes <= CHUNK_BYTES - SLAB_HEADER_BYTES);
        }
        assert_eq!(class_of(1), Some(0));
        assert_eq!(class_of(64), Some(0));
        assert_eq!(class_of(65), Some(1));
        assert_eq!(class_of(MAX_SLAB_BLOCK + 1), None);
    }
}
