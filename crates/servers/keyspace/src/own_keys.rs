//! Keys of the store's own records in the map `server`.

use crate::layout::CollectionId;

pub(crate) const RESTORING: &str = "restoring";
const EXPIRY: u8 = 0xA0;
const GARBAGE: u8 = 0xC0;
const RESERVE: u8 = 0xD0;
const OWN: u8 = 0xE0;
const INTENT: u8 = 0xF0;

pub(crate) fn expiry(at_ms: u64, head_key: &[u8]) -> Vec<u8> {
    [&[EXPIRY][..], &at_ms.to_be_bytes(), head_key].concat()
}

/// The expiry, and the head's key.
pub(crate) fn split_expiry(key: &[u8]) -> Option<(u64, &[u8])> {
    let (at_ms, head_key) = key.strip_prefix(&[EXPIRY])?.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*at_ms), head_key))
}

pub(crate) fn garbage(id: CollectionId) -> Vec<u8> {
    (u64::from(GARBAGE) << 56 | id).to_be_bytes().to_vec()
}

pub(crate) fn split_garbage(key: &[u8]) -> Option<CollectionId> {
    let word = u64::from_be_bytes(key.try_into().ok()?);
    (word >> 56 == u64::from(GARBAGE)).then_some(word & ((1 << 56) - 1))
}

pub(crate) fn own(name: &str) -> Vec<u8> {
    [&[OWN][..], name.as_bytes()].concat()
}

pub(crate) fn intent(number: u64) -> Vec<u8> {
    [&[INTENT][..], &number.to_be_bytes()].concat()
}

pub(crate) fn intent_reserve(number: u64) -> Vec<u8> {
    [&[RESERVE][..], &number.to_be_bytes()].concat()
}

pub(crate) const EXPIRIES: &[u8] = &[EXPIRY];
pub(crate) const GARBAGES: &[u8] = &[GARBAGE];
pub(crate) const RESERVES: &[u8] = &[RESERVE];
pub(crate) const INTENTS: &[u8] = &[INTENT];
