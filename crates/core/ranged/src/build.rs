//! New range leaves: written into a reserved block that no other thread sees, and flushed before a
//! word names the block.
//!
//! A leaf has one of four sizes. It is even if no more records than half of the overflow slots lie
//! outside their buckets, so that there is room for later ones; else uneven, with separators that
//! divide the present records equally. If even that does not help, its records need another kind of
//! leaf.

use pando_index::{Error, Result};
use pando_inner::NewNode;
use pando_inner::layout::{Header, Kind, Link, SHAPE_AT, STATUS_AT};
use pando_pmem::Domain;
use pando_tree::context::Context;

use crate::layout::{
    BUCKET_SLOTS, Geometry, KeyWords, LINE_BYTES, LINE_SLOTS, LINE_WORDS, LOW_AT, MAX_BUCKETS,
    MAX_DISTANCE, MAX_LEAF_BYTES, Map, Pair, RangeShape, SEPARATORS_AT, ValueWord,
};

/// Sizes of leaves: these parts of the largest one.
const SIZES: u64 = 4;

/// The words of the largest leaf.
type Image = [u64; MAX_LEAF_BYTES as usize / 8];

/// The keys that a leaf may have.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The lowest one.
    pub low: u64,
    /// Above all keys that are expected; `None` if that is not known. Higher ones are allowed.
    pub high: Option<u64>,
}

/// The number of records for which a leaf of `bytes` bytes is built. One with more is split.
pub fn capacity(bytes: u64) -> u64 {
    Geometry::within(bytes).map_or(0, Geometry::most_records)
}

/// An estimate of the bytes of a leaf for so many records, at most `leaf_bytes`. Even records may
/// need a smaller leaf, and uneven ones a larger one.
pub fn bytes_for(records: u64, leaf_bytes: u64) -> u64 {
    let mut sizes = (1..SIZES).map(|part| size(leaf_bytes, part));
    let bytes = sizes.find(|&bytes| records <= capacity(bytes));
    let bytes = bytes.unwrap_or(size(leaf_bytes, SIZES));
    Geometry::within(bytes).map_or(bytes, Geometry::bytes)
}

fn size(leaf_bytes: u64, part: u64) -> u64 {
    leaf_bytes.min(MAX_LEAF_BYTES) * part / SIZES
}

/// Builds a leaf of at most `leaf_bytes` bytes of `pairs`, which ascend, with room for `next`.
/// `None` if that is not possible: there are too many, they are too far apart, or too uneven.
///
/// # Errors
///
/// [`Error::Storage`] if the pool is full.
pub fn build<'op, D: Domain>(
    context: Context<'op, D>,
    pairs: &[Pair],
    bounds: Bounds,
    leaf_bytes: u64,
    next: Option<u64>,
) -> Result<Option<NewNode<'op, D>>> {
    match shape_of(pairs, bounds, leaf_bytes, next) {
        Some(shape) => write(context, pairs, bounds.low, shape).map(Some).map_err(Error::storage),
        None => Ok(None),
    }
}

/// Bytes of the leaf that [`build`] makes of `pairs`; `None` if it makes none.
pub fn bytes_of(pairs: &[Pair], bounds: Bounds, leaf_bytes: u64) -> Option<u64> {
    shape_of(pairs, bounds, leaf_bytes, None).map(|shape| shape.geometry.bytes())
}

/// The smallest shape that has room for the records and for `next`.
fn shape_of(
    pairs: &[Pair],
    bounds: Bounds,
    leaf_bytes: u64,
    next: Option<u64>,
) -> Option<RangeShape> {
    // All keys: in a damaged tree they may lie anywhere, and distances may wrap.
    let keys = pairs.iter().map(|pair| pair.key).chain(next);
    let furthest = keys.map(|key| key.wrapping_sub(bounds.low)).max().unwrap_or(0);
    if furthest > MAX_DISTANCE {
        return None;
    }
    // Bits that no distance needs are for versions.
    let expected = bounds.high.map_or(MAX_DISTANCE, |high| high.saturating_sub(bounds.low));
    let key_words = KeyWords::up_to(furthest.max(expected));
    let wanted = pairs.len() as u64 + u64::from(next.is_some());
    (1..=SIZES).find_map(|part| {
        let geometry = Geometry::within(size(leaf_bytes, part))?;
        let fits = wanted <= geometry.most_even_records();
        fits.then(|| shape_for(geometry, key_words, pairs, bounds, wanted)).flatten()
    })
}

/// The shape in which the records fit their buckets well enough; `None` if they do not, or if that
/// would be an uneven one and too many records are `wanted`.
fn shape_for(
    geometry: Geometry,
    key_words: KeyWords,
    pairs: &[Pair],
    bounds: Bounds,
    wanted: u64,
) -> Option<RangeShape> {
    let most = geometry.overflow_slots() / 2;
    let map = Map::even(geometry.buckets, span(geometry, pairs, bounds));
    let even = RangeShape { geometry, map, key_words };
    if outside(even, pairs, bounds.low) <= most {
        return Some(even);
    }
    if wanted > geometry.most_records() {
        return None;
    }
    let top = pairs.last()?.key.wrapping_sub(bounds.low);
    let uneven =
        RangeShape { map: Map::Uneven { shift: 32 - top.leading_zeros().min(32) }, ..even };
    (outside(uneven, pairs, bounds.low) <= most).then_some(uneven)
}

/// The range that the buckets are to divide: that of the bounds, unless the present records say
/// that most of it will stay empty.
fn span(geometry: Geometry, pairs: &[Pair], Bounds { low, high }: Bounds) -> u64 {
    let whole = high.map_or(u64::MAX, |high| high.saturating_sub(low));
    let Some(last) = pairs.last().filter(|_| pairs.len() > 1) else { return whole };
    let each = last.key.wrapping_sub(low) / pairs.len() as u64 + 1;
    let used = each.saturating_mul(geometry.most_records());
    if whole / 2 > used { used } else { whole }
}

/// The separators of an uneven leaf: each bucket gets the same number of records.
fn separators(shape: RangeShape, pairs: &[Pair], low: u64) -> [u64; MAX_BUCKETS as usize] {
    let mut separators = [u64::MAX; MAX_BUCKETS as usize];
    if let Map::Uneven { shift } = shape.map {
        for bucket in 1..shape.geometry.buckets as usize {
            let first = pairs.len() * bucket / shape.geometry.buckets as usize;
            separators[bucket - 1] = pairs[first].key.wrapping_sub(low) >> shift;
        }
    }
    separators
}

/// The bucket of each record.
fn buckets(shape: RangeShape, pairs: &[Pair], low: u64) -> impl Iterator<Item = (u64, Pair)> {
    let separators = separators(shape, pairs, low);
    let last = shape.geometry.buckets - 1;
    pairs.iter().map(move |&pair| {
        let distance = pair.key.wrapping_sub(low);
        let bucket = match shape.map {
            Map::Even { multiplier, shift } => Map::even_bucket(multiplier, shift, distance),
            Map::Uneven { shift } => {
                let is_below = |separator: &&u64| **separator <= distance >> shift;
                separators.iter().take_while(is_below).count() as u64
            }
        };
        (bucket.min(last), pair)
    })
}

/// How many records do not fit into their buckets.
fn outside(shape: RangeShape, pairs: &[Pair], low: u64) -> u64 {
    let mut counts = [0_u64; MAX_BUCKETS as usize];
    for (bucket, _) in buckets(shape, pairs, low) {
        counts[bucket as usize] += 1;
    }
    counts.iter().map(|count| count.saturating_sub(BUCKET_SLOTS)).sum()
}

fn write<'op, D: Domain>(
    context: Context<'op, D>,
    pairs: &[Pair],
    low: u64,
    shape: RangeShape,
) -> pando_pmem::Result<NewNode<'op, D>> {
    let bytes = shape.geometry.bytes();
    let mut block = context.guard.reserve(bytes)?;
    let words = image(pairs, low, shape, block.bytes());
    if let Some(mut all) = block.range_mut(0, bytes) {
        for (index, word) in words[..(bytes / 8) as usize].iter().enumerate() {
            all.write_u64(index * 8, *word);
        }
    }
    block.flush(0, bytes);
    let link = Link::new(block.off(), shape.map.hint());
    Ok(NewNode { block, link })
}

/// The words of a new leaf, in a block of `node_bytes` bytes.
fn image(pairs: &[Pair], low: u64, shape: RangeShape, node_bytes: u64) -> Image {
    let geometry = shape.geometry;
    let mut words = [0; MAX_LEAF_BYTES as usize / 8];
    let count = pairs.len() as u64;
    let header = Header { kind: Kind::Leaf, prefix_bytes: 0, count, node_bytes };
    words[0] = header.encode();
    words[STATUS_AT as usize / 8] = 0;
    words[SHAPE_AT as usize / 8] = shape.encode().encode();
    words[LOW_AT as usize / 8] = low.to_be();
    if let Map::Uneven { .. } = shape.map {
        let separators = separators(shape, pairs, low);
        for (index, separator) in separators.iter().take(geometry.buckets as usize - 1).enumerate()
        {
            words[SEPARATORS_AT as usize / 8 + index / 2] |= separator << (index % 2 * 32);
        }
    }
    let mut used = [0_u64; (MAX_LEAF_BYTES / LINE_BYTES) as usize];
    for (bucket, pair) in buckets(shape, pairs, low) {
        let mut lines = (0..geometry.key_lines()).map(|index| geometry.line_of(bucket, index));
        let Some(line) = lines.find(|&line| used[line as usize] < LINE_SLOTS) else { continue };
        let slot = (line * LINE_WORDS + used[line as usize]) as usize;
        used[line as usize] += 1;
        words[slot] = shape.key_words.first(pair.key.wrapping_sub(low), pair.value);
        words[slot + LINE_SLOTS as usize] = ValueWord::present(pair.value).0;
    }
    debug_assert_eq!(used.iter().sum::<u64>(), count, "a record has no slot");
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(keys: impl IntoIterator<Item = u64>) -> Vec<Pair> {
        keys.into_iter().map(|key| Pair { key, value: key }).collect()
    }

    fn found(pairs: &[Pair], bounds: Bounds) -> Option<RangeShape> {
        let geometry = Geometry::within(2048).expect("large enough");
        shape_for(geometry, KeyWords::up_to(MAX_DISTANCE), pairs, bounds, pairs.len() as u64)
    }

    #[test]
    fn even_keys_have_an_even_leaf() {
        let bounds = Bounds { low: 1000, high: Some(9700) };
        let shape = found(&pairs((0..87).map(|at| 1000 + at * 100)), bounds).expect("it fits");
        assert!(matches!(shape.map, Map::Even { .. }));
        // Also if the range is open, or much larger.
        for high in [None, Some(u64::MAX)] {
            let bounds = Bounds { high, ..bounds };
            let shape = found(&pairs((0..60).map(|at| 1000 + at * 100)), bounds).expect("it fits");
            assert!(matches!(shape.map, Map::Even { .. }), "{high:?}");
        }
    }

    #[test]
    fn uneven_keys_have_separators() {
        let bounds = Bounds { low: 0, high: Some(1 << 40) };
        let keys = (0..40).map(|at| at * 10).chain((0..40).map(|at| (1 << 36) + at * (1 << 33)));
        let pairs = pairs(keys);
        let shape = found(&pairs, bounds);
        // The first forty have one slice.
        assert_eq!(shape, None);
        let keys: Vec<_> = (0..80_u64).map(|at| 1 << (at / 4 + 12) | at << 8).collect();
        let pairs = super::tests::pairs(keys);
        let shape = found(&pairs, Bounds { low: 0, high: Some(1 << 33) }).expect("it fits");
        assert!(matches!(shape.map, Map::Uneven { .. }));
        assert_eq!(outside(shape, &pairs, 0), 0);
    }

    /// Two buckets and two overflow lines; nine records of the first bucket, one of the second.
    #[test]
    fn golden_leaf() {
        let pairs = pairs((0x1000..0x1009).chain([0x10F0]));
        let geometry = Geometry::within(512).expect("large enough");
        let key_words = KeyWords::up_to(0x100);
        let even = RangeShape { geometry, map: Map::even(geometry.buckets, 0x100), key_words };
        let words = image(&pairs, 0x1000, even, 512);
        let key = |distance: u64| distance + 1;
        let value = |value: u64| 1 << 57 | value;
        let mut wanted = [0; 256];
        wanted[0] = 0x0100_000A_0000_0200;
        // Marked; two overflow lines, two buckets, shift 11, multiplier 16, nine bits of distance.
        wanted[2] = 0x0000_A22E_0012_0000;
        wanted[3] = 0x1000_u64.to_be();
        for at in 0..9 {
            // Lines 2 and 3, and then the first overflow line.
            let slot = [16, 24, 48][at / 4] + at % 4;
            wanted[slot] = key(at as u64);
            wanted[slot + 4] = value(0x1000 + at as u64);
        }
        (wanted[32], wanted[36]) = (key(0xF0), value(0x10F0));
        assert_eq!(words, wanted, "{:x?}", &words[..64]);
    }

    #[test]
    fn capacities() {
        assert_eq!(
            [128, 256, 512, 1024, 1536, 2048, 65_536].map(capacity),
            [0, 5, 17, 40, 64, 87, 87]
        );
    }
}
