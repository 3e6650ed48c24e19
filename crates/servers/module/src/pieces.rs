//! Writes the records of a map as pieces (`payload.rs`).

use pando::{Error, Scan};

use crate::layout::{Kind, client_key};
use crate::payload::{Edit, PIECE_BYTES, put_edit};

/// Hands the pieces of a map to `sink`, and returns the numbers of records and receipts.
pub fn write<E: From<Error>>(
    records: Scan<'_>,
    receipts: Scan<'_>,
    mut sink: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(u64, u64), E> {
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    let mut counts = [0; 2];
    for ((kind, mut scan), count) in
        [(Kind::Record, records), (Kind::Receipt, receipts)].into_iter().zip(&mut counts)
    {
        while let Some((key, value)) = scan.next_record()? {
            let key = client_key(key);
            // A piece is never much longer than it has to be for one record.
            if !piece.is_empty() && piece.len() + key.len() + value.len() > PIECE_BYTES {
                sink(&piece)?;
                piece.clear();
            }
            put_edit(&mut piece, Edit { kind, key, value: Some(value) });
            *count += 1;
        }
    }
    if !piece.is_empty() {
        sink(&piece)?;
    }
    let [records, receipts] = counts;
    Ok((records, receipts))
}
