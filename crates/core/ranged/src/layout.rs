//! The layout of a range leaf, and its words.
//!
//! ```text
//! byte    0        8        16       24       32
//! 0       header   status   shape    low      four flush counters
//! 64      separators, 4 bytes each                              (uneven leaves; else zero)
//! 128     bucket 0: two lines
//! 256     bucket 1: two lines
//! ...
//!         overflow lines                                        to node_bytes
//!
//! a line  key 0    key 1    key 2    key 3    value 0  value 1  value 2  value 3
//!
//! header  of every node (pando-inner)
//! status  as of an inner node: 60 frozen, when it is replaced; 59..0 writes to the closed leaf
//! shape   63..48 zero     47 one       46..44 overflow lines  43..40 buckets  39..34 shift
//!         33..29 multiplier, zero in an uneven leaf           28..23 shift of the separators
//!         22..17 distance bits D                              16..0 zero
//! low     the lowest key that the leaf may have, big-endian
//! counter 63..32 generation       31..0 writes in progress; counter i is that of lines 4 n + i
//! key     63..61 control  60..54 class  53..D version  D-1..0 distance from `low`, plus one
//! value   63..61 control  60 closed  59 versioned  58..57 state  56..0 lower bits of the value
//! state   0 empty   1 present   2 deleted   3 moved
//! hint    10 one    9..4 shift         3..0 multiplier minus 16; all ones in an uneven leaf
//! ```
//!
//! A key word is zero while its slot is free, and has all bits but those of control if it was free
//! when its leaf was closed. The *class* is the upper seven bits of the value. A change of the
//! class raises the *version*, and the value word is *versioned* until its key moves. No version
//! comes twice. Key and value words are words of PMwCAS, except that a key word leaves zero by a
//! plain CAS: no PMwCAS has a zero key word. Integers are little-endian, apart from `low`, which
//! serves as a separator too.
//!
//! A slot of a *bucket* has a key of its range. In an even leaf all buckets have equal ranges:
//! bucket = distance * multiplier / 2^shift, and the last one has the rest. In an uneven leaf, the
//! bucket is the number of separators that are not above the key's distance, shifted.

use pando_inner::layout::{HEADER_BYTES, Hint, Shape};
use pando_pmem::mutant;
use pando_pmwcas::CONTROL_BITS;

/// Bytes of a line.
pub(crate) const LINE_BYTES: u64 = 64;
/// Words of a line.
pub(crate) const LINE_WORDS: u64 = 8;
/// Slots of a line.
pub(crate) const LINE_SLOTS: u64 = 4;
/// Lines before the first bucket.
const HEAD_LINES: u64 = 2;
/// Lines of a bucket.
pub(crate) const BUCKET_LINES: u64 = 2;
/// Slots of a bucket.
pub(crate) const BUCKET_SLOTS: u64 = BUCKET_LINES * LINE_SLOTS;
/// Where the lowest key is.
pub(crate) const LOW_AT: u64 = 24;
/// Where the flush counters are.
pub(crate) const COUNTERS_AT: u64 = 32;
/// How many there are.
pub(crate) const COUNTERS: u64 = 4;
const _: () = assert!(LOW_AT + 8 <= COUNTERS_AT && COUNTERS_AT + COUNTERS * 8 <= SEPARATORS_AT);
/// Where the separators are.
pub(crate) const SEPARATORS_AT: u64 = 64;
/// The most bytes of a leaf.
pub const MAX_LEAF_BYTES: u64 = 2048;
/// The most buckets of a leaf.
pub(crate) const MAX_BUCKETS: u64 = 13;
/// The most slots of a leaf.
pub(crate) const MAX_SLOTS: usize = 120;
/// The most slots of overflow lines.
pub(crate) const MAX_OVERFLOW_SLOTS: u64 = 16;
/// The greatest distance of a key from the lowest one.
pub const MAX_DISTANCE: u64 = (1 << CLASS_SHIFT) - 3;

/// The key word of a slot that no key has.
pub(crate) const FREE: u64 = 0;
/// The key word of a slot that was free when its leaf was closed.
pub(crate) const KEY_CLOSED: u64 = !CONTROL_BITS;
const CLASS_SHIFT: u32 = 54;
/// No distance is greater, also if one is added.
pub(crate) const PLACE_MASK: u64 = (1 << CLASS_SHIFT) - 1;
const CLASS_MASK: u64 = 0x7F << CLASS_SHIFT;
const VALUE_BITS: u32 = 57;
const VALUE_MASK: u64 = (1 << VALUE_BITS) - 1;
const CLOSED: u64 = 1 << 60;
const VERSIONED: u64 = 1 << 59;
const STATE_SHIFT: u32 = 57;

/// A record: key and value as numbers, big-endian and little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    /// The key: numbers compare as the keys do.
    pub key: u64,
    /// The value.
    pub value: u64,
}

impl Pair {
    /// The record, if key and value have eight bytes.
    #[inline(always)]
    pub fn of(key: &[u8], value: &[u8]) -> Option<Self> {
        let (key, value) = (key.as_array::<8>()?, value.as_array::<8>()?);
        Some(Self { key: u64::from_be_bytes(*key), value: u64::from_le_bytes(*value) })
    }

    /// The bytes of the key and the value.
    #[inline(always)]
    pub fn record(self) -> [u8; 16] {
        let mut record = [0; 16];
        record[..8].copy_from_slice(&self.key.to_be_bytes());
        record[8..].copy_from_slice(&self.value.to_le_bytes());
        record
    }
}

/// Whether a key has the slot; also if its key word is being changed.
#[inline(always)]
pub(crate) fn is_taken(key_word: u64) -> bool {
    key_word != FREE && key_word != KEY_CLOSED
}

/// Whether two key words, or a key word and a value's first one, have the same class.
#[inline(always)]
pub(crate) fn is_same_class(left: u64, right: u64) -> bool {
    (left ^ right) & CLASS_MASK == 0
}

/// The key words of one leaf: how many of their bits the distance has. The version has the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyWords {
    distance_bits: u32,
}

impl KeyWords {
    /// Those of a leaf whose keys are at most so far from the lowest one.
    pub fn up_to(distance: u64) -> Self {
        // The greatest number of so many bits is in KEY_CLOSED, and in no other key word.
        let bits = u64::BITS - (distance.min(MAX_DISTANCE) + 2).leading_zeros();
        Self { distance_bits: bits }
    }

    #[inline(always)]
    fn mask(self) -> u64 {
        (1 << self.distance_bits) - 1
    }

    /// The greatest distance.
    #[inline(always)]
    pub fn most(self) -> u64 {
        self.mask() - 2
    }

    /// The first word of a slot that `distance` takes for `value`.
    #[inline(always)]
    pub fn first(self, distance: u64, value: u64) -> u64 {
        (value >> VALUE_BITS) << CLASS_SHIFT | (distance + 1)
    }

    /// Whether a key word is that of `distance`, in any class and version, and is not being
    /// changed.
    #[inline(always)]
    pub fn is_of(self, key_word: u64, distance: u64) -> bool {
        key_word & (CONTROL_BITS | self.mask()) == distance + 1
    }

    /// The distance plus one in a key word that is taken; at most [`PLACE_MASK`].
    #[inline(always)]
    pub fn place(self, key_word: u64) -> u64 {
        key_word & self.mask()
    }

    /// The distance in a key word that is taken; at most [`most`](Self::most), also in a damaged
    /// one.
    #[inline(always)]
    pub fn distance(self, key_word: u64) -> u64 {
        (key_word & self.mask()).wrapping_sub(1).min(self.most())
    }

    /// Whether this library writes such a key word to a slot that is taken.
    pub fn is_possible(self, key_word: u64) -> bool {
        self.is_of(key_word, self.distance(key_word))
    }

    /// Whether a key word has the first version.
    pub fn is_first(self, key_word: u64) -> bool {
        key_word & !CLASS_MASK & !self.mask() == 0
    }

    /// The word with the next version and the class of `first`; `None` if there is no version left.
    #[inline]
    pub fn next(self, key_word: u64, first: u64) -> Option<u64> {
        let raised = (key_word & !CLASS_MASK) + (1 << self.distance_bits);
        (raised & CLASS_MASK == 0).then_some(raised | first & CLASS_MASK)
    }
}

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The slot was taken, and nothing was written.
    Empty,
    /// The key is present.
    Present,
    /// The key was deleted.
    Deleted,
    /// A later slot of the key counts.
    Moved,
}

/// The value word of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueWord(pub u64);

impl ValueWord {
    pub const EMPTY: Self = Self(0);
    pub const DELETED: Self = Self(2 << STATE_SHIFT);
    pub const MOVED: Self = Self(3 << STATE_SHIFT);

    #[inline(always)]
    pub fn present(value: u64) -> Self {
        Self(1 << STATE_SHIFT | value & VALUE_MASK)
    }

    #[inline(always)]
    pub fn state(self) -> State {
        match self.0 >> STATE_SHIFT & 3 {
            0 => State::Empty,
            1 => State::Present,
            2 => State::Deleted,
            _ => State::Moved,
        }
    }

    #[inline(always)]
    pub fn is_present(self) -> bool {
        self.0 & 3 << STATE_SHIFT == 1 << STATE_SHIFT
    }

    /// The value of a slot with this key word, if it is present.
    #[inline(always)]
    pub fn value(self, key_word: u64) -> Option<u64> {
        (self.state() == State::Present).then_some(self.whole(key_word))
    }

    /// The value of a slot with this key word, if it has one.
    #[inline(always)]
    pub fn whole(self, key_word: u64) -> u64 {
        (key_word & CLASS_MASK) >> CLASS_SHIFT << VALUE_BITS | self.0 & VALUE_MASK
    }

    /// Not zero if the slot is moved, versioned or being changed.
    #[inline(always)]
    pub fn unsettled_bits(self) -> u64 {
        // Of the states, only *moved* carries into the versioned bit.
        (self.0 | self.0.wrapping_add(1 << STATE_SHIFT)) & (VERSIONED | CONTROL_BITS)
    }

    /// Whether the key is present, and the word is neither versioned nor being changed.
    #[inline(always)]
    pub fn is_plain(self) -> bool {
        const OTHER_BITS: u64 = CLOSED | VALUE_MASK;
        self.0 & !OTHER_BITS == 1 << STATE_SHIFT
    }

    /// Whether the class of its slot was changed. The value counts only with the key word of its
    /// time.
    #[inline(always)]
    pub fn is_versioned(self) -> bool {
        self.0 & VERSIONED != 0
    }

    /// The same, for a reader.
    #[inline(always)]
    pub fn has_version(self) -> bool {
        self.is_versioned() && !mutant!("range-class-of-another-value")
    }

    pub fn versioned(self) -> Self {
        Self(self.0 | VERSIONED)
    }

    #[inline(always)]
    pub fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    pub fn closed(self) -> Self {
        Self(self.0 | CLOSED)
    }

    /// The same state and value, without the closed bit.
    pub fn opened(self) -> Self {
        Self(self.0 & !CLOSED)
    }
}

/// The number of lines of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub buckets: u64,
    pub overflow_lines: u64,
}

impl Geometry {
    /// A leaf of at most `bytes` bytes; `None` if it would have no bucket.
    pub fn within(bytes: u64) -> Option<Self> {
        let pairs_of_lines = bytes.min(MAX_LEAF_BYTES) / (2 * LINE_BYTES);
        let pairs_of_lines = pairs_of_lines.checked_sub(HEAD_LINES / 2)?;
        let of_overflow = match pairs_of_lines {
            0..2 => 0,
            2..5 => 1,
            _ => 2,
        };
        let buckets = pairs_of_lines - of_overflow;
        (buckets > 0).then_some(Self { buckets, overflow_lines: of_overflow * 2 })
    }

    pub fn bytes(self) -> u64 {
        self.lines() * LINE_BYTES
    }

    fn lines(self) -> u64 {
        HEAD_LINES + self.buckets * BUCKET_LINES + self.overflow_lines
    }

    #[inline(always)]
    pub fn slots(self) -> u64 {
        self.buckets * BUCKET_SLOTS + self.overflow_slots()
    }

    /// The most records of a new uneven leaf, and of a leaf that is filled in key order. More
    /// records with random keys are mostly uneven, and gets of uneven leaves are slower.
    pub fn most_records(self) -> u64 {
        self.slots() * 8 / 11
    }

    /// The most records of a new even leaf.
    pub fn most_even_records(self) -> u64 {
        self.slots() * 4 / 5
    }

    pub fn overflow_slots(self) -> u64 {
        self.overflow_lines * LINE_SLOTS
    }

    /// The first line of a bucket.
    #[inline(always)]
    pub fn bucket_line(self, bucket: u64) -> u64 {
        Self::first_line(bucket)
    }

    /// The first line of a bucket of any leaf.
    #[inline(always)]
    pub fn first_line(bucket: u64) -> u64 {
        HEAD_LINES + bucket * BUCKET_LINES
    }

    /// The number of lines in which a key may be.
    #[inline(always)]
    pub fn key_lines(self) -> u64 {
        BUCKET_LINES + self.overflow_lines
    }

    /// Line `index` of the lines in which a key of `bucket` may be. Each bucket begins at another
    /// overflow line, so that they do not all search the same one.
    #[inline(always)]
    pub fn line_of(self, bucket: u64, index: u64) -> u64 {
        match index.checked_sub(BUCKET_LINES) {
            None => self.bucket_line(bucket) + index,
            Some(further) => {
                let line = (bucket + further) % self.overflow_lines.max(1);
                self.bucket_line(self.buckets) + line
            }
        }
    }

    /// The overflow lines.
    #[inline(always)]
    pub fn overflow_lines_at(self) -> std::ops::Range<u64> {
        self.bucket_line(self.buckets)..self.lines()
    }

    /// All lines with slots.
    pub fn slot_lines(self) -> std::ops::Range<u64> {
        HEAD_LINES..self.lines()
    }
}

/// The function from distances to buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Map {
    /// Equal ranges; the multiplier is 16 to 31.
    Even { multiplier: u64, shift: u32 },
    /// Separators; distances are shifted before they are compared with one.
    Uneven { shift: u32 },
}

impl Map {
    /// Equal ranges of `buckets` buckets up to the distance `span`, as far as a multiplier of five
    /// bits allows.
    pub fn even(buckets: u64, span: u64) -> Self {
        let span = u128::from(span.clamp(1, MAX_DISTANCE + 1));
        let scaled = |shift: u32| {
            let doubled = (u128::from(buckets) << (shift + 1)) / span;
            doubled.div_ceil(2)
        };
        // At most 13 * 2^62 / 2^54 is above 16, and 1 * 2^shift / 1 reaches 16 at four.
        let shift = (0..62).find(|&shift| scaled(shift + 1) > 31).unwrap_or(62);
        Self::Even { multiplier: scaled(shift).clamp(16, 31) as u64, shift }
    }

    /// The bucket of an even leaf.
    #[inline(always)]
    pub fn even_bucket(multiplier: u64, shift: u32, distance: u64) -> u64 {
        // Below 2^54 * 2^5.
        (distance * multiplier) >> shift
    }

    /// The hint of the links to a leaf.
    pub fn hint(self) -> Hint {
        match self {
            Self::Even { multiplier, shift } => {
                Hint::Leaf(HINT | (shift as u16) << 4 | (multiplier - 16) as u16)
            }
            Self::Uneven { .. } => Hint::Leaf(UNKNOWN_HINT),
        }
    }
}

const HINT: u16 = 1 << 10;
const UNKNOWN_HINT: u16 = HINT | 0x3FF;

/// Where the predicted bucket of a leaf begins, by the hint of its link and the distance of the key
/// from the leaf's lower bound; `None` if it is not the hint of a range leaf.
#[inline(always)]
pub fn predicted_at(hint: u16, distance: u64) -> Option<u64> {
    if hint & HINT == 0 {
        return None;
    }
    let (multiplier, shift) = (u64::from(hint & 15) + 16, u32::from(hint >> 4 & 0x3F));
    // As `Map::even_bucket`, but no bound of the distance is known.
    let bucket = (distance.wrapping_mul(multiplier) >> shift).min(MAX_BUCKETS - 1);
    Some((HEAD_LINES + bucket * BUCKET_LINES) * LINE_BYTES)
}

/// The third word of a range leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeShape {
    pub geometry: Geometry,
    pub map: Map,
    pub key_words: KeyWords,
}

const MARK: u64 = 1 << 31;

impl RangeShape {
    pub fn encode(self) -> Shape {
        let Geometry { buckets, overflow_lines } = self.geometry;
        let map = match self.map {
            Map::Even { multiplier, shift } => u64::from(shift) << 18 | multiplier << 13,
            Map::Uneven { shift } => u64::from(shift) << 7,
        };
        let distance_bits = u64::from(self.key_words.distance_bits) << 1;
        let sorted_at = MARK | overflow_lines << 28 | buckets << 24 | map | distance_bits;
        Shape { slots: 0, sorted_at, record_bytes: 0 }
    }

    /// Checked: `None` if it is the shape of another leaf, or none that any code writes.
    #[inline(always)]
    pub fn decode(shape: Shape) -> Option<Self> {
        if shape.slots != 0 {
            return None;
        }
        let word = ShapeWord::of(shape.sorted_at)?;
        let map = match word.multiplier() {
            0 => Map::Uneven { shift: word.separator_shift() },
            multiplier => Map::Even { multiplier, shift: word.shift() },
        };
        Some(Self { geometry: word.geometry(), map, key_words: word.key_words() })
    }
}

/// The bits of the third word of a range leaf: a get decodes only what it uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShapeWord(u64);

impl ShapeWord {
    /// Checked, as [`RangeShape::decode`]: bits 47 to 16 of the third word, or more.
    #[inline(always)]
    pub fn of(bits: u64) -> Option<Self> {
        let word = Self(bits);
        let is_possible = bits >> MARK.ilog2() == 1
            && word.buckets() > 0
            && matches!(word.distance_bits(), 2..=CLASS_SHIFT);
        is_possible.then_some(word)
    }

    #[inline(always)]
    pub fn buckets(self) -> u64 {
        self.0 >> 24 & 15
    }

    #[inline(always)]
    pub fn geometry(self) -> Geometry {
        Geometry { buckets: self.buckets(), overflow_lines: self.0 >> 28 & 7 }
    }

    /// Zero in an uneven leaf.
    #[inline(always)]
    pub fn multiplier(self) -> u64 {
        self.0 >> 13 & 31
    }

    #[inline(always)]
    pub fn shift(self) -> u32 {
        (self.0 >> 18 & 63) as u32
    }

    #[inline(always)]
    pub fn separator_shift(self) -> u32 {
        (self.0 >> 7 & 63) as u32
    }

    #[inline(always)]
    fn distance_bits(self) -> u32 {
        (self.0 >> 1 & 63) as u32
    }

    #[inline(always)]
    pub fn key_words(self) -> KeyWords {
        KeyWords { distance_bits: self.distance_bits() }
    }
}

const _: () = {
    assert!(HEADER_BYTES == LOW_AT && LOW_AT + 8 <= LINE_BYTES);
    assert!(SEPARATORS_AT + (MAX_BUCKETS - 1) * 4 <= HEAD_LINES * LINE_BYTES);
    assert!(CLOSED | VERSIONED | 3 << STATE_SHIFT | VALUE_MASK == !CONTROL_BITS);
    assert!(CLASS_MASK & CONTROL_BITS == 0 && CLASS_MASK >> CLASS_SHIFT == u64::MAX >> VALUE_BITS);
    assert!((MAX_BUCKETS * BUCKET_SLOTS + MAX_OVERFLOW_SLOTS) as usize == MAX_SLOTS);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_words() {
        let value = 0xA912_3456_789A_BCDE;
        let key_words = KeyWords::up_to(0x12_3456);
        let key = key_words.first(0x12_3456, value);
        assert_eq!(key, 0x1500_0000_0012_3457);
        assert!(key_words.is_of(key, 0x12_3456) && !key_words.is_of(key, 0x12_3457));
        assert_eq!(key_words.distance(key), 0x12_3456);
        assert_eq!(key_words.next(key, key_words.first(0, 1)), Some(0x0000_0000_0032_3457));
        let word = ValueWord::present(value);
        assert_eq!(word.0, 0x0312_3456_789A_BCDE);
        assert_eq!(word.value(key), Some(value));
        assert_eq!(word.closed().0, 0x1312_3456_789A_BCDE);
        assert_eq!(word.closed().value(key), Some(value));
        assert_eq!(word.versioned().0, 0x0B12_3456_789A_BCDE);
        assert_eq!(word.versioned().value(key), Some(value));
        assert_eq!(KEY_CLOSED, 0x1FFF_FFFF_FFFF_FFFF);
        for settled in [ValueWord::EMPTY, word, ValueWord::DELETED] {
            assert_eq!((settled.unsettled_bits(), settled.closed().unsettled_bits()), (0, 0));
        }
        let control = ValueWord(1 << 61);
        let all = ValueWord(u64::MAX);
        for word in [ValueWord::MOVED, ValueWord::MOVED.closed(), word.versioned(), control, all] {
            assert_ne!(word.unsettled_bits(), 0, "{word:?}");
        }
        for (word, state) in [
            (ValueWord::EMPTY, State::Empty),
            (word, State::Present),
            (ValueWord::DELETED, State::Deleted),
            (ValueWord::MOVED, State::Moved),
        ] {
            assert_eq!((word.state(), word.closed().state()), (state, state));
        }
        let geometry = Geometry { buckets: 13, overflow_lines: 4 };
        let map = Map::Even { multiplier: 21, shift: 45 };
        let even = RangeShape { geometry, map, key_words };
        assert_eq!(even.encode().encode(), 0x0000_CDB6_A02A_0000);
        let uneven = RangeShape { map: Map::Uneven { shift: 26 }, ..even };
        assert_eq!(uneven.encode().encode(), 0x0000_CD00_0D2A_0000);
        for shape in [even, uneven] {
            assert_eq!(RangeShape::decode(shape.encode()), Some(shape));
        }
        assert_eq!(even.map.hint(), Hint::Leaf(0x6D5));
        assert_eq!(uneven.map.hint(), Hint::Leaf(0x7FF));
        assert_eq!(RangeShape::decode(Shape { slots: 0, sorted_at: 24, record_bytes: 0 }), None);
    }

    /// No key word of a slot is that of another distance, or comes twice, or is free or closed.
    #[test]
    fn versions_end_before_a_key_word_repeats() {
        for distance in [0, 1, 2, 5, 6, 1000, MAX_DISTANCE >> 6, MAX_DISTANCE] {
            let key_words = KeyWords::up_to(distance);
            assert!(key_words.most() >= distance && key_words.most() <= MAX_DISTANCE);
            for distance in [0, distance / 2, distance, key_words.most()] {
                let classes = [0, u64::MAX, 1 << 63];
                let mut word = key_words.first(distance, u64::MAX);
                let mut last = None;
                for turn in 0..100 {
                    assert!(is_taken(word) && word & CONTROL_BITS == 0);
                    assert!(key_words.is_of(word, distance));
                    assert_eq!(key_words.distance(word), distance);
                    assert!(!key_words.is_of(word, distance ^ 1));
                    assert!(!key_words.is_of(word | 1 << 61, distance));
                    let version = word & !CLASS_MASK;
                    assert!(last.is_none_or(|last| last < version), "{word:x}");
                    last = Some(version);
                    let first = key_words.first(0, classes[turn % 3]);
                    match key_words.next(word, first) {
                        Some(next) => assert!(is_same_class(next, first)),
                        None => break,
                    }
                    word = key_words.next(word, first).expect("as before");
                }
            }
            let beyond = key_words.most() + 1;
            assert!(!key_words.is_of(FREE, distance) && !key_words.is_of(KEY_CLOSED, distance));
            assert!(key_words.is_of(KEY_CLOSED, beyond), "why that is too far");
        }
    }

    #[test]
    fn leaves_of_each_size() {
        let of = |bytes| Geometry::within(bytes).map(|found| (found.buckets, found.overflow_lines));
        let found = [128, 255, 256, 512, 1000, 1024, 1536, 2048, 4096].map(of);
        let wanted = [
            None,
            None,
            Some((1, 0)),
            Some((2, 2)),
            Some((4, 4)),
            Some((5, 4)),
            Some((9, 4)),
            Some((13, 4)),
            Some((13, 4)),
        ];
        assert_eq!(found, wanted);
        for bytes in (256..=2048).step_by(128) {
            let geometry = Geometry::within(bytes).expect("large enough");
            assert_eq!(geometry.bytes(), bytes);
            assert!(geometry.slots() as usize <= MAX_SLOTS && geometry.buckets <= MAX_BUCKETS);
            for bucket in 0..geometry.buckets {
                let mut lines: Vec<_> =
                    (0..geometry.key_lines()).map(|at| geometry.line_of(bucket, at)).collect();
                lines.sort_unstable();
                lines.dedup();
                assert_eq!(lines.len() as u64, geometry.key_lines());
                assert!(lines.iter().all(|line| geometry.slot_lines().contains(line)));
            }
        }
    }

    /// Buckets of an even leaf have about the same range.
    #[test]
    fn even_buckets_are_even() {
        for buckets in 1..=MAX_BUCKETS {
            for span in (4..=56).flat_map(|bit| [1 << bit, (1 << bit) / 3 * 4, (1_u64 << bit) - 1])
            {
                let span = span.min(MAX_DISTANCE + 1);
                let Map::Even { multiplier, shift } = Map::even(buckets, span) else {
                    panic!("it is even")
                };
                assert!((16..32).contains(&multiplier), "{buckets} buckets, span {span}");
                let last = Map::even_bucket(multiplier, shift, span - 1);
                let off = (last as f64 + 1.0) / buckets as f64;
                assert!((0.6..1.5).contains(&off) || span < 64, "{buckets}, {span}: {last}");
            }
        }
    }
}
