//! Values that show if they are torn: an 8-byte stamp, repeated to any length from 8 bytes on.

/// Lengths from the smallest stamped value to some that are longer than a page.
pub(super) const LENGTHS: [usize; 7] = [8, 16, 40, 300, 1_000, 4_099, 12_000];

/// The value of `length` bytes with `stamp`.
pub(super) fn stamped(stamp: u64, length: usize) -> Vec<u8> {
    assert!(length >= 8, "a stamp takes 8 bytes");
    let mut value = Vec::with_capacity(length + 8);
    while value.len() < length {
        value.extend_from_slice(&stamp.to_le_bytes());
    }
    value.truncate(length);
    value
}

/// The stamp of `value`; panics if the value is torn.
pub(super) fn stamp_of(value: &[u8]) -> u64 {
    let Some(first) = value.first_chunk::<8>() else {
        panic!("torn: a stamped value of only {} bytes", value.len());
    };
    if let Some(at) = (8..value.len()).find(|&at| value[at] != first[at % 8]) {
        let (length, found) = (value.len(), value[at]);
        panic!("torn: byte {at} of {length} is {found:#04x}, the stamp is {first:02x?}");
    }
    u64::from_le_bytes(*first)
}
