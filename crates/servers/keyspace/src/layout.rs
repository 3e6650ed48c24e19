//! Keys and values of the store's records.
//!
//! Keys of the server's map. A *head* is the record of a client's key. An *element* is a part of a
//! collection:
//!
//! ```text
//! byte      0      1 .. 7                     8 ..
//! head      space  hash of the key (56 bits)  key
//!
//! byte      0      1 .. 7                     8     9 .. 16               ..
//! element   0x80   collection (56 bits)       0     hash of the field     field        Field
//!                                             1     field                              Ordered
//!                                             2     ordered bits of score member       Scored
//! piece     0x80   string (56 bits)           3     index (9 .. 12)                    (no more)
//! ```
//!
//! A *piece* is a part of a long string, of [`PIECE_BYTES`]; `pieces.rs` defines which of its bytes
//! count.
//!
//! A *space* (0 to 127) holds the heads of one database. A record of the store (`spaces`, in
//! `lib.rs`) has the space of each database, so a database is flushed by giving it another space.
//! Heads are ordered by hash. So a cursor of SCAN is a hash, and one lock guards a range of hashes.
//! Numbers in keys are big-endian, in values little-endian.
//!
//! Value of a head:
//!
//! ```text
//! byte 0         kind (bits 3..0), bit 4: has an expiry time, bit 5: has memcached's flags and cas
//! 8 if bit 4     expiry time in milliseconds of the store's clock
//! 4 + 8 if bit 5 flags, cas
//! rest           a string: its bytes
//!                a collection: its number (8), its number of fields (8; all ones if it is open,
//!                see `counts.rs`)
//!                a long string (kind 5): its number (8), its number of bytes (8)
//! ```

use xxhash_rust::xxh3::xxh3_64;

use crate::failure::{Failure, Result};

/// The number of databases.
pub const DATABASES: u8 = 16;
/// The longest key and the longest field, in bytes.
pub const MAX_NAME_BYTES: usize = 32_000;
/// The number of spaces.
pub(crate) const SPACES: u8 = 128;
/// First byte of an element's key.
const ELEMENT: u8 = 0x80;
/// Bits of a hash.
pub const HASH_BITS: u32 = 56;
/// Bytes of a head's key before the client's key.
pub const HEAD_PREFIX_BYTES: usize = 8;
/// Bytes of an element's key before its field, at most.
pub const ELEMENT_PREFIX_BYTES: usize = 17;

/// Bytes of a piece of a long string. Four pieces, with their blocks' headers, fit into a chunk of
/// the pool.
pub const PIECE_BYTES: usize = 16_000;
/// In a pool, a longer string is stored in pieces, another string in its head.
pub(crate) const LONG_ABOVE_BYTES: usize = 2 * PIECE_BYTES;
/// The same in a record store, whose values are at most 16 KiB.
pub(crate) const LONG_ABOVE_BYTES_ON_DISK: usize = PIECE_BYTES;
/// The longest string, in bytes: the longest value of the map, which held whole strings in version
/// 1.
pub(crate) const MAX_LONG_BYTES: u64 = 1 << 30;
const _: () =
    assert!(MAX_LONG_BYTES / PIECE_BYTES as u64 <= u32::MAX as u64, "an index has four bytes");

/// The kind of a long string in its head. Clients see a string.
const LONG_STRING: u8 = 5;
const EXPIRES: u8 = 1 << 4;
const MEMCACHED: u8 = 1 << 5;
const KIND_MASK: u8 = 0xF;

/// The kind of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A string.
    String = 0,
    /// Fields with a value each.
    Hash = 1,
    /// Members.
    Set = 2,
    /// Members with a score each.
    SortedSet = 3,
    /// Fields with a value each, in the fields' order.
    RangeIndex = 4,
}

impl Kind {
    /// All kinds by their numbers, with their names for TYPE.
    const ALL: [(Self, &str); 5] = [
        (Self::String, "string"),
        (Self::Hash, "hash"),
        (Self::Set, "set"),
        (Self::SortedSet, "zset"),
        (Self::RangeIndex, "rangeindex"),
    ];

    /// Its name for TYPE.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    fn decode(bits: u8) -> Option<Self> {
        Self::ALL.get(usize::from(bits)).map(|(kind, _)| *kind)
    }
}

/// The hash of a client's key or of a field. It is a part of the format and must never change.
#[inline]
pub fn hash_of(bytes: &[u8]) -> u64 {
    xxh3_64(bytes) >> (64 - HASH_BITS)
}

/// The key of a head.
#[inline]
pub(crate) fn head_key(space: u8, key: &[u8]) -> Vec<u8> {
    head_key_of_hash(space, hash_of(key), key)
}

/// The key of a head with a known hash.
#[inline]
pub(crate) fn head_key_of_hash(space: u8, hash: u64, key: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(HEAD_PREFIX_BYTES + key.len());
    full.extend_from_slice(&head_prefix(space, hash));
    full.extend_from_slice(key);
    full
}

/// The first bytes of the keys of all heads with that hash.
#[inline]
pub(crate) fn head_prefix(space: u8, hash: u64) -> [u8; HEAD_PREFIX_BYTES] {
    (u64::from(space) << HASH_BITS | hash).to_be_bytes()
}

/// Splits a head's key into space, hash and client's key; `None` if it is no head's.
pub(crate) fn split_head_key(full: &[u8]) -> Option<(u8, u64, &[u8])> {
    let (prefix, key) = full.split_first_chunk::<HEAD_PREFIX_BYTES>()?;
    let word = u64::from_be_bytes(*prefix);
    let space = (word >> HASH_BITS) as u8;
    (space < SPACES).then_some((space, word & ((1 << HASH_BITS) - 1), key))
}

/// The number of a collection or long string, 56 bits.
pub type CollectionId = u64;

/// An element's name in its collection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Element<'name> {
    /// A field of a hash, or a member of a set or a sorted set, ordered by hash.
    Field(&'name [u8]),
    /// A field of a range index, in its own order.
    Ordered(&'name [u8]),
    /// A member of a sorted set, ordered by its score.
    Scored(f64, &'name [u8]),
}

/// An order of a collection's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// [`Element::Field`].
    Fields = 0,
    /// [`Element::Ordered`].
    Ordered = 1,
    /// [`Element::Scored`].
    Scored = 2,
}

/// The first bytes of the keys of all elements of a collection.
pub(crate) fn collection_prefix(id: CollectionId) -> [u8; 8] {
    (u64::from(ELEMENT) << HASH_BITS | id).to_be_bytes()
}

/// The first bytes of the keys of all elements of a section.
pub(crate) fn section_prefix(id: CollectionId, section: Section) -> Vec<u8> {
    let mut prefix = collection_prefix(id).to_vec();
    prefix.push(section as u8);
    prefix
}

/// The section of the pieces of a long string.
const PIECES: u8 = 3;

/// The key of a piece of a long string.
pub(crate) fn piece_key(id: CollectionId, index: u32) -> Vec<u8> {
    let mut key = Vec::with_capacity(13);
    key.extend_from_slice(&collection_prefix(id));
    key.push(PIECES);
    key.extend_from_slice(&index.to_be_bytes());
    key
}

/// The index in the key of a piece.
pub(crate) fn split_piece_key(full: &[u8]) -> Option<u32> {
    let index = full.get(8..)?.strip_prefix(&[PIECES])?;
    Some(u32::from_be_bytes(index.try_into().ok()?))
}

/// The key of an element.
pub(crate) fn element_key(id: CollectionId, element: Element<'_>) -> Vec<u8> {
    let (section, name) = match element {
        Element::Field(name) => (Section::Fields, name),
        Element::Ordered(name) => (Section::Ordered, name),
        Element::Scored(_, name) => (Section::Scored, name),
    };
    let mut key = Vec::with_capacity(ELEMENT_PREFIX_BYTES + name.len());
    key.extend_from_slice(&collection_prefix(id));
    key.push(section as u8);
    match element {
        Element::Field(name) => key.extend_from_slice(&hash_of(name).to_be_bytes()),
        Element::Ordered(_) => {}
        Element::Scored(score, _) => key.extend_from_slice(&ordered_bits(score).to_be_bytes()),
    }
    key.extend_from_slice(name);
    key
}

/// The collection in the key of an element; `None` if it is no element's.
pub(crate) fn split_collection(full: &[u8]) -> Option<CollectionId> {
    let word = u64::from_be_bytes(*full.first_chunk()?);
    ((word >> HASH_BITS) as u8 == ELEMENT).then_some(word & ((1 << HASH_BITS) - 1))
}

/// The name in the key of an element, and the score of a scored one.
pub(crate) fn split_element_key(full: &[u8]) -> Option<Element<'_>> {
    let (section, rest) = full.get(8..)?.split_first()?;
    match section {
        0 => Some(Element::Field(rest.get(8..)?)),
        1 => Some(Element::Ordered(rest)),
        2 => {
            let (bits, member) = rest.split_first_chunk::<8>()?;
            Some(Element::Scored(score_of_bits(u64::from_be_bytes(*bits)), member))
        }
        _ => None,
    }
}

/// Bits of a score whose order as numbers is the order of scores. Both zeros have the same bits.
pub fn ordered_bits(score: f64) -> u64 {
    let bits = if score == 0.0 { 0 } else { score.to_bits() };
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// The score of [`ordered_bits`].
pub(crate) fn score_of_bits(bits: u64) -> f64 {
    f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits })
}

/// What memcached stores with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memcached {
    /// The client's flags.
    pub flags: u32,
    /// A number that changes with every write; `memcached/item.rs` defines its upper bits.
    pub cas: u64,
}

/// The number of a collection's fields in its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// This number.
    Known(u64),
    /// The process keeps the number; see `counts.rs`.
    Open,
}

impl Count {
    const OPEN_BITS: u64 = u64::MAX;

    fn of_bits(bits: u64) -> Self {
        if bits == Self::OPEN_BITS { Self::Open } else { Self::Known(bits) }
    }

    fn bits(self) -> u64 {
        match self {
            Self::Known(count) => count,
            Self::Open => Self::OPEN_BITS,
        }
    }
}

/// A string in pieces. Exactly one head refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongString {
    /// The number in the keys of its pieces, unique among collections and long strings.
    pub id: CollectionId,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The content of a head, without the expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'value> {
    /// A string's bytes.
    String(&'value [u8]),
    /// A string in pieces.
    Long(LongString),
    /// A collection's kind, number and count.
    Collection(Kind, CollectionId, Count),
}

impl Content<'_> {
    /// The number of the records that belong to the head, if there are any.
    pub(crate) fn id(&self) -> Option<CollectionId> {
        match self {
            Self::String(_) => None,
            Self::Long(long) => Some(long.id),
            Self::Collection(_, id, _) => Some(*id),
        }
    }
}

/// A head's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'value> {
    /// The expiry, in milliseconds of the store's clock.
    pub expires_at: Option<u64>,
    /// The data of memcached, if memcached wrote the value.
    pub memcached: Option<Memcached>,
    /// The content.
    pub content: Content<'value>,
}

impl<'value> Head<'value> {
    /// A string without an expiry.
    pub fn string(bytes: &'value [u8]) -> Self {
        Self { expires_at: None, memcached: None, content: Content::String(bytes) }
    }

    /// The kind of the value.
    pub fn kind(&self) -> Kind {
        match self.content {
            Content::String(_) | Content::Long(_) => Kind::String,
            Content::Collection(kind, ..) => kind,
        }
    }

    /// The kind in the encoded head.
    fn kind_bits(&self) -> u8 {
        match self.content {
            Content::Long(_) => LONG_STRING,
            _ => self.kind() as u8,
        }
    }

    /// Decodes the value of a head that was searched for.
    #[inline]
    pub(crate) fn decode_found(value: Option<&'value [u8]>) -> Result<Option<Self>> {
        value.map(|value| Self::decode(value).ok_or(Failure::Damaged)).transpose()
    }

    /// Decodes a head; `None` if it is damaged.
    #[inline]
    pub(crate) fn decode(value: &'value [u8]) -> Option<Self> {
        let (&first, mut rest) = value.split_first()?;
        let mut take_word = |bytes: usize| {
            let (word, behind) = rest.split_at_checked(bytes)?;
            rest = behind;
            let mut whole = [0; 8];
            whole[..bytes].copy_from_slice(word);
            Some(u64::from_le_bytes(whole))
        };
        let expires_at = if first & EXPIRES != 0 { Some(take_word(8)?) } else { None };
        let memcached = if first & MEMCACHED != 0 {
            Some(Memcached { flags: take_word(4)? as u32, cas: take_word(8)? })
        } else {
            None
        };
        let content = match first & KIND_MASK {
            LONG_STRING => {
                let long = LongString { id: take_word(8)?, bytes: take_word(8)? };
                let is_long =
                    (LONG_ABOVE_BYTES_ON_DISK as u64 + 1..=MAX_LONG_BYTES).contains(&long.bytes);
                (is_long && long.id >> HASH_BITS == 0 && rest.is_empty())
                    .then_some(Content::Long(long))?
            }
            bits => match Kind::decode(bits)? {
                Kind::String => Content::String(rest),
                kind => Content::Collection(kind, take_word(8)?, Count::of_bits(take_word(8)?)),
            },
        };
        Some(Self { expires_at, memcached, content })
    }

    /// The encoded head, which [`decode`](Self::decode) reads.
    #[inline]
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = Vec::new();
        self.encode_into(&mut value);
        value
    }

    /// Appends the encoded head to `value`.
    #[inline]
    pub(crate) fn encode_into(&self, value: &mut Vec<u8>) {
        let body_bytes = match self.content {
            Content::String(bytes) => bytes.len(),
            Content::Long(_) | Content::Collection(..) => 16,
        };
        value.reserve(21 + body_bytes);
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        value.push(
            self.kind_bits()
                | flag(self.expires_at.is_some(), EXPIRES)
                | flag(self.memcached.is_some(), MEMCACHED),
        );
        if let Some(at) = self.expires_at {
            value.extend_from_slice(&at.to_le_bytes());
        }
        if let Some(Memcached { flags, cas }) = self.memcached {
            value.extend_from_slice(&flags.to_le_bytes());
            value.extend_from_slice(&cas.to_le_bytes());
        }
        match self.content {
            Content::String(bytes) => value.extend_from_slice(bytes),
            Content::Long(LongString { id, bytes }) => {
                value.extend_from_slice(&id.to_le_bytes());
                value.extend_from_slice(&bytes.to_le_bytes());
            }
            Content::Collection(_, id, count) => {
                value.extend_from_slice(&id.to_le_bytes());
                value.extend_from_slice(&count.bits().to_le_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn golden_records() {
        let key = head_key(3, b"oak");
        assert_eq!(key, [&[3][..], &hash_of(b"oak").to_be_bytes()[1..], b"oak"].concat());
        assert_eq!(
            hash_of(b"oak"),
            0x00AC_083B_8913_4670,
            "the hash is on the medium and must not change"
        );
        assert_eq!(Head::string(b"tree").encode(), b"\x00tree");
        let full = Head {
            expires_at: Some(0x0102),
            memcached: Some(Memcached { flags: 7, cas: 9 }),
            content: Content::Collection(Kind::SortedSet, 5, Count::Known(6)),
        };
        let mut expected = vec![0x33];
        for (word, bytes) in [(0x0102u64, 8), (7, 4), (9, 8), (5, 8), (6, 8)] {
            expected.extend_from_slice(&word.to_le_bytes()[..bytes]);
        }
        assert_eq!(full.encode(), expected);
        let open =
            Head { content: Content::Collection(Kind::Set, 5, Count::Open), ..Head::string(b"") };
        assert_eq!(open.encode(), b"\x02\x05\0\0\0\0\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF");
        let element = element_key(0x0A, Element::Scored(1.0, b"m"));
        assert_eq!(element, b"\x80\0\0\0\0\0\0\x0A\x02\xBF\xF0\0\0\0\0\0\0m");
        let long = LongString { id: 5, bytes: 0x0001_0203 };
        let head = Head { content: Content::Long(long), ..Head::string(b"") };
        assert_eq!(head.encode(), b"\x05\x05\0\0\0\0\0\0\0\x03\x02\x01\0\0\0\0\0");
        assert_eq!(head.kind().name(), "string");
        for (number, (kind, _)) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
        assert_eq!(piece_key(0x0A, 0x0102), b"\x80\0\0\0\0\0\0\x0A\x03\0\0\x01\x02");
        assert_eq!(split_piece_key(&piece_key(0x0A, 0x0102)), Some(0x0102));
        assert_eq!(
            (PIECE_BYTES, LONG_ABOVE_BYTES, LONG_ABOVE_BYTES_ON_DISK),
            (16_000, 32_000, 16_000),
            "they are on the medium and must not change"
        );
    }

    #[test]
    fn damaged_heads_are_refused() {
        for value in [&b""[..], b"\x0F", b"\x10abc", b"\x21abcd", b"\x01short"] {
            assert_eq!(Head::decode(value), None, "{value:?}");
        }
    }

    #[test]
    fn damaged_heads_of_long_strings_are_refused() {
        let encoded = |id: u64, bytes: u64| {
            let content = Content::Long(LongString { id, bytes });
            Head { content, ..Head::string(b"") }.encode()
        };
        let least = LONG_ABOVE_BYTES_ON_DISK as u64 + 1;
        let intact = encoded(5, least);
        assert!(Head::decode(&intact).is_some() && Head::decode(&encoded(5, 1 << 30)).is_some());
        for bytes in [0, least - 1, (1 << 30) + 1, u64::MAX] {
            assert_eq!(Head::decode(&encoded(5, bytes)), None, "{bytes} bytes");
        }
        assert_eq!(Head::decode(&encoded(1 << HASH_BITS, least)), None);
        assert_eq!(Head::decode(&[&intact[..], b"x"].concat()), None);
        assert_eq!(Head::decode(&intact[..intact.len() - 1]), None);
        assert_eq!(split_piece_key(&element_key(5, Element::Field(b"1234"))), None);
        assert_eq!(split_piece_key(&piece_key(5, 7)[..12]), None);
    }

    proptest! {
        #[test]
        fn scores_keep_their_order(a: f64, b: f64) {
            prop_assume!(!a.is_nan() && !b.is_nan());
            prop_assert_eq!(a.partial_cmp(&b), Some(ordered_bits(a).cmp(&ordered_bits(b))));
            prop_assert_eq!(score_of_bits(ordered_bits(a)), a);
        }

        #[test]
        fn elements_come_back(name: Vec<u8>, score: f64, id in 0u64..1 << HASH_BITS) {
            prop_assume!(!score.is_nan());
            for element in [
                Element::Field(&name),
                Element::Ordered(&name),
                Element::Scored(score, &name),
            ] {
                let key = element_key(id, element);
                prop_assert_eq!(split_element_key(&key), Some(element));
                prop_assert_eq!(split_head_key(&key), None);
            }
        }

        #[test]
        fn heads_come_back(
            expires_at: Option<u64>, memcached: Option<(u32, u64)>, string: Option<Vec<u8>>, id: u64, count: u64,
        ) {
            let head = Head {
                expires_at,
                memcached: memcached.map(|(flags, cas)| Memcached { flags, cas }),
                content: match &string {
                    Some(bytes) => Content::String(bytes),
                    None => Content::Collection(Kind::Hash, id, Count::of_bits(count)),
                },
            };
            let value = head.encode();
            prop_assert_eq!(Head::decode(&value), Some(head));
        }
    }
}
