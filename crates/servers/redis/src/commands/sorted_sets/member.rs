//! Members of a sorted set. Each is two elements: one by hash, whose value is the score, and one by
//! score. So lookups by member and by score are both fast.

use std::ops::ControlFlow;

use pando::Order;
use pando_keyspace::Transaction;
use pando_keyspace::collection::{Bounds, Collection};
use pando_keyspace::failure::{Failure, Result};
use pando_keyspace::layout::{Element, Section};

/// Decodes a score from the value of an element.
pub(super) fn decode(value: &[u8]) -> Result<f64> {
    value.try_into().map(f64::from_le_bytes).map_err(|_| Failure::Damaged)
}

/// The score of a member.
pub(super) fn score_of(
    transaction: &Transaction<'_>,
    set: &Collection<'_>,
    member: &[u8],
) -> Result<Option<f64>> {
    set.get(transaction, Element::Field(member), |value| value.map(decode).transpose())?
}

/// Visits members in order of their scores.
pub(super) fn visit(
    transaction: &Transaction<'_>,
    set: &Collection<'_>,
    bounds: Bounds<'_>,
    order: Order,
    mut visit: impl FnMut(&[u8], f64) -> Result<ControlFlow<()>>,
) -> Result<()> {
    set.visit(transaction, Section::Scored, bounds, order, |element, _| match element {
        Element::Scored(score, member) => visit(member, score),
        _ => Err(Failure::Damaged),
    })
}
