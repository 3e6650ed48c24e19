//! PANDO.APPLY: conditions and writes of several keys in one commit, with a receipt.
//!
//! The receipt of a batch is (session, sequence) and the SHA-256 of the batch. It lies in the map
//! of the first key, is committed with the batch, and moves with that key. If the batch is sent
//! again, the receipt answers. A session keeps the receipts of its 128 highest sequences in a map,
//! and its sequences ascend. A map that has receipts and no records stays as a key.
//!
//! | sequence | receipt | effect |
//! | --- | --- | --- |
//! | above all | none | applied if the conditions hold |
//! | one that is kept | of the same batch | none; the reply is REPEATED |
//! | one that is kept | of another batch | an error |
//! | another one | none | an error: it may have been applied before |

use sha2::{Digest, Sha256};

use super::access::{Keys, check_key, check_value, commit, integer, is_ignored, send, store};
use super::failure::{Failure, Result};
use super::read::receipts;
use crate::layout::{Kind, receipt_key, receipts_of, sequence_of};
use crate::payload::{Edit, put_edit};
use crate::redis::Ctx;
use crate::store::Changed;

/// Receipts that a session keeps.
const KEPT: usize = 128;

const USAGE: Failure = Failure::Usage(
    "PANDO.APPLY numkeys key [key ...] [RECEIPT session sequence] operation [operation ...]; an \
     operation is SET index field value, DEL index field, IF index field value or IFABSENT index \
     field, where index is the place of the key, from 1",
);

/// The place of a key.
fn index(word: &[u8], keys: usize) -> Result<usize> {
    let found = integer(word)?;
    let place = usize::try_from(found).ok().and_then(|index| index.checked_sub(1));
    place.filter(|&place| place < keys).ok_or(Failure::Index(found, keys))
}

pub fn apply(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<()> {
    let is = |word: &[u8], wanted: &str| word.eq_ignore_ascii_case(wanted.as_bytes());
    let Some((count, rest)) = words.split_first() else { return Err(USAGE) };
    let count = usize::try_from(integer(count)?).map_err(|_| USAGE)?;
    if count == 0 || rest.len() < count {
        return Err(USAGE);
    }
    let (names, operations) = rest.split_at(count);
    let (receipt, operations) = match operations {
        [word, session, sequence, rest @ ..] if is(word, "RECEIPT") => {
            let sequence = u64::try_from(integer(sequence)?).ok().filter(|&of| of > 0);
            let is_session = (1..=255).contains(&session.len());
            let sequence = sequence.filter(|_| is_session).ok_or(Failure::Session)?;
            (Some((*session, sequence)), rest)
        }
        rest => (None, rest),
    };
    if operations.is_empty() {
        return Err(USAGE);
    }
    if is_ignored(ctx, &[]) {
        ctx.reply_simple("APPLIED");
        return Ok(());
    }
    let store = store()?;
    let mut keys = Keys::default();
    let places: Vec<_> = names.iter().map(|name| keys.place(ctx, name)).collect::<Result<_>>()?;
    let mut changes = keys.changes;

    let mut holds = true;
    let mut rest = operations;
    while let [operation, at, key, behind @ ..] = rest {
        let place = places[index(at, count)?];
        check_key(key)?;
        let (behind, value) = match behind {
            [value, behind @ ..] if is(operation, "SET") || is(operation, "IF") => {
                check_value(value)?;
                (behind, Some(*value))
            }
            behind if is(operation, "DEL") || is(operation, "IFABSENT") => (behind, None),
            _ => return Err(USAGE),
        };
        if is(operation, "SET") || is(operation, "DEL") {
            let edit = Edit { kind: Kind::Record, key, value };
            changes[place].changes.add(edit);
        } else {
            // Conditions look at the maps before the batch.
            holds &= changes[place].value(&store, key)?.as_deref() == value;
        }
        rest = behind;
    }
    if !rest.is_empty() {
        return Err(USAGE);
    }

    if let Some((session, sequence)) = receipt {
        let mut sum = Sha256::new();
        for word in words {
            sum.update((word.len() as u64).to_le_bytes());
            sum.update(word);
        }
        let digest = sum.finalize();
        let kept = match &changes[0].stub {
            Some(stub) => receipts(&store, stub, &receipts_of(session))?,
            None => Vec::new(),
        };
        let of = |key: &[u8]| sequence_of(key);
        if let Some((_, found)) = kept.iter().find(|(key, _)| of(key) == Some(sequence)) {
            if found.as_slice() != &digest[..] {
                return Err(Failure::Sequence(sequence));
            }
            ctx.reply_simple("REPEATED");
            return Ok(());
        }
        if kept.first().is_some_and(|(key, _)| of(key) > Some(sequence)) {
            return Err(Failure::Sequence(sequence));
        }
        let first = &mut changes[0].changes;
        let key = receipt_key(session, sequence);
        first.add(Edit { kind: Kind::Receipt, key: &key, value: Some(&digest) });
        for (key, _) in kept.iter().skip(KEPT - 1) {
            first.add(Edit { kind: Kind::Receipt, key, value: None });
        }
    }
    if !holds {
        ctx.reply_simple("CONDITION");
        return Ok(());
    }
    let all = commit(ctx, &store, &changes, "pando.apply")?;
    let payloads: Vec<(&[u8], Vec<u8>)> = changes
        .iter()
        .zip(&all)
        .filter(|(_, changed)| changed.is_change)
        .map(|(change, _)| {
            let mut payload = Vec::new();
            change.changes.iter().for_each(|edit| put_edit(&mut payload, edit));
            (change.name, payload)
        })
        .collect();
    if !payloads.is_empty() {
        let words: Vec<&[u8]> =
            payloads.iter().flat_map(|(name, payload)| [*name, payload.as_slice()]).collect();
        send(ctx, "PANDO.LOAD", &words);
    }
    let emptied = |changed: &Changed| changed.is_change && changed.head.is_empty();
    for (change, _) in changes.iter().zip(&all).filter(|(_, changed)| emptied(changed)) {
        send(ctx, "DEL", &[change.name]);
    }
    ctx.reply_simple("APPLIED");
    Ok(())
}
