//! Ranges of a sorted set by rank, by score, and by member; visits of the members of a range.
//!
//! Members are in order of their scores. The begin of a range of scores is found at once. A rank is
//! counted from the nearer end, member by member, because the map keeps no counts. In a range by
//! member, members are in their own order if all scores are equal, as Redis requires. Otherwise all
//! members are visited.

use std::ops::{Bound, ControlFlow};

use pando::Order;
use pando_keyspace::Transaction;
use pando_keyspace::collection::{ALL, Bounds, Collection, ENOUGH, ON, bound_of_name};
use pando_keyspace::failure::{Result, fail};
use pando_keyspace::layout::ordered_bits;

use super::super::integers;
use super::{member, score};

/// The meaning of the ends of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Rank,
    Score,
    Lex,
}

impl By {
    /// The kind in the suffix of a command's name, in lower case; by rank without a suffix.
    pub(super) fn named(command: &[u8]) -> Self {
        match command {
            _ if command.ends_with(b"byscore") => Self::Score,
            _ if command.ends_with(b"bylex") => Self::Lex,
            _ => Self::Rank,
        }
    }
}

/// A range.
#[derive(Clone, Copy, Debug)]
pub(super) enum Range<'text> {
    /// From one rank to another. Negative ranks count from the end.
    Rank(i64, i64),
    /// From one score to another.
    Score(Bound<f64>, Bound<f64>),
    /// From one member to another; `None` is an empty range.
    Lex(Option<Bounds<'text>>),
}

/// The option LIMIT.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// The number of members to skip; a negative one skips all.
    pub offset: i64,
    /// The number of members after that; a negative one means all.
    pub count: i64,
}

impl Limit {
    /// No limit.
    pub(super) const NONE: Self = Self { offset: 0, count: -1 };
}

impl<'text> Range<'text> {
    /// Parses the range from `low` to `high`.
    pub(super) fn parse(by: By, low: &'text [u8], high: &'text [u8]) -> Result<Self> {
        match by {
            By::Rank => Ok(Self::Rank(integers::integer(low)?, integers::integer(high)?)),
            By::Score => {
                let end = |text: &[u8]| match text {
                    [b'(', text @ ..] => score::parse_end(text).map(Bound::Excluded),
                    text => score::parse_end(text).map(Bound::Included),
                };
                let ends = end(low).zip(end(high));
                let (low, high) = ends.ok_or(fail("ERR min or max is not a float"))?;
                Ok(Self::Score(low, high))
            }
            By::Lex => {
                for text in [low, high] {
                    if !matches!(text, [b'-' | b'+'] | [b'(' | b'[', ..]) {
                        return Err(fail("ERR min or max not valid string range item"));
                    }
                }
                if low == b"+" || high == b"-" {
                    return Ok(Self::Lex(None));
                }
                let end = |text: &'text [u8]| match text {
                    [b'(', name @ ..] => Bound::Excluded(name),
                    [b'[', name @ ..] => Bound::Included(name),
                    _ => Bound::Unbounded,
                };
                let (low, high) = (end(low), end(high));
                Ok(Self::Lex(Some((bound_of_name(low, true), bound_of_name(high, false)))))
            }
        }
    }

    /// Visits the members of the range, in ascending or descending order. In descending order,
    /// ranks count from the end, too.
    pub(super) fn visit(
        self,
        transaction: &Transaction<'_>,
        set: &Collection<'_>,
        is_reverse: bool,
        limit: Limit,
        mut visit: impl FnMut(&[u8], f64) -> Result<()>,
    ) -> Result<()> {
        let order = if is_reverse { Order::Descending } else { Order::Ascending };
        let mut to_pass = if limit.offset < 0 { i64::MAX } else { limit.offset };
        let mut to_show = if limit.count < 0 { i64::MAX } else { limit.count };
        if to_show == 0 || limit.offset < 0 {
            return Ok(());
        }
        let mut show = |name: &[u8], score: f64| {
            if to_pass > 0 {
                to_pass -= 1;
                return ON;
            }
            to_show -= 1;
            visit(name, score)?;
            if to_show == 0 { ENOUGH } else { ON }
        };
        match self {
            Self::Rank(first, last) => visit_ranks(transaction, set, (first, last), order, show),
            Self::Score(low, high) => {
                let edge = |score: f64| ordered_bits(score).to_be_bytes();
                let behind = |score: f64| ordered_bits(score).saturating_add(1).to_be_bytes();
                let low = match low {
                    Bound::Included(score) => edge(score),
                    Bound::Excluded(score) => behind(score),
                    Bound::Unbounded => [0; 8],
                };
                let high = match high {
                    Bound::Included(score) => behind(score),
                    Bound::Excluded(score) => edge(score),
                    Bound::Unbounded => [0xFF; 8],
                };
                let bounds = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
                member::visit(transaction, set, bounds, order, show)
            }
            Self::Lex(None) => Ok(()),
            Self::Lex(Some((low, high))) => match only_score(transaction, set)? {
                Some(score) => {
                    let prefix = ordered_bits(score).to_be_bytes();
                    let behind = ordered_bits(score).saturating_add(1).to_be_bytes();
                    let full = |end: Bound<&[u8]>| end.map(|name| [&prefix, name].concat());
                    let low = match full(low) {
                        Bound::Unbounded => Bound::Included(prefix.to_vec()),
                        low => low,
                    };
                    let high = match full(high) {
                        Bound::Unbounded => Bound::Excluded(behind.to_vec()),
                        high => high,
                    };
                    let bounds =
                        (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
                    member::visit(transaction, set, bounds, order, show)
                }
                None => member::visit(transaction, set, ALL, order, |name, score| {
                    let is_above = match low {
                        Bound::Included(low) => name >= low,
                        Bound::Excluded(low) => name > low,
                        Bound::Unbounded => true,
                    };
                    let is_below = match high {
                        Bound::Included(high) => name <= high,
                        Bound::Excluded(high) => name < high,
                        Bound::Unbounded => true,
                    };
                    if is_above && is_below { show(name, score) } else { ON }
                }),
            },
        }
    }

    /// The members of the range with their scores.
    pub(super) fn collect(
        self,
        transaction: &Transaction<'_>,
        set: &Collection<'_>,
        is_reverse: bool,
        limit: Limit,
    ) -> Result<Vec<(Vec<u8>, f64)>> {
        let mut members = Vec::new();
        self.visit(transaction, set, is_reverse, limit, |name, score| {
            members.push((name.to_vec(), score));
            Ok(())
        })?;
        Ok(members)
    }

    /// The number of members in the range.
    pub(super) fn count(self, transaction: &Transaction<'_>, set: &Collection<'_>) -> Result<u64> {
        let mut members = 0;
        self.visit(transaction, set, false, Limit::NONE, |_, _| {
            members += 1;
            Ok(())
        })?;
        Ok(members)
    }
}

/// The score of all members, if they have the same score.
fn only_score(transaction: &Transaction<'_>, set: &Collection<'_>) -> Result<Option<f64>> {
    let mut ends = [None; 2];
    for (end, order) in ends.iter_mut().zip([Order::Ascending, Order::Descending]) {
        member::visit(transaction, set, ALL, order, |_, score| {
            *end = Some(score);
            ENOUGH
        })?;
    }
    Ok(ends[0].filter(|_| ends[0] == ends[1]))
}

fn visit_ranks(
    transaction: &Transaction<'_>,
    set: &Collection<'_>,
    (first, last): (i64, i64),
    order: Order,
    mut show: impl FnMut(&[u8], f64) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let count = i64::try_from(set.count()).unwrap_or(i64::MAX);
    let from_begin = |rank: i64| if rank < 0 { rank.saturating_add(count) } else { rank };
    let (first, last) = (from_begin(first).max(0), from_begin(last).min(count - 1));
    if first > last {
        return Ok(());
    }
    let wanted = last - first + 1;
    if first <= count - 1 - last {
        let (mut to_pass, mut left) = (first, wanted);
        return member::visit(transaction, set, ALL, order, |name, score| {
            if to_pass > 0 {
                to_pass -= 1;
                return ON;
            }
            left -= 1;
            let shown = show(name, score)?;
            Ok(if left == 0 { ControlFlow::Break(()) } else { shown })
        });
    }
    let opposite = match order {
        Order::Ascending => Order::Descending,
        Order::Descending => Order::Ascending,
    };
    let mut to_pass = count - 1 - last;
    let mut members = Vec::new();
    member::visit(transaction, set, ALL, opposite, |name, score| {
        if to_pass > 0 {
            to_pass -= 1;
            return ON;
        }
        members.push((name.to_vec(), score));
        if members.len() as i64 == wanted { ENOUGH } else { ON }
    })?;
    for (name, score) in members.iter().rev() {
        if show(name, *score)?.is_break() {
            break;
        }
    }
    Ok(())
}
