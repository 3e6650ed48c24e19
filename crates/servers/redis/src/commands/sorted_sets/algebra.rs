//! Operations on several sorted sets, or sets, whose members have the score 1: ZUNION, ZINTER,
//! ZDIFF, their forms that store the result, ZINTERCARD.
//!
//! The result is built in memory. Scores are added in Redis's order, beginning with the smallest
//! set, so that the rounding is the same.

use std::collections::BTreeMap;

use pando::Order;
use pando_keyspace::Transaction;
use pando_keyspace::collection::{ALL, Collection, ENOUGH, ON, name_of};
use pando_keyspace::failure::{Result, fail_with};
use pando_keyspace::layout::{Element, Kind, Section, ordered_bits};

use super::super::integers;
use super::super::set_algebra::Operation;
use super::{member, score, store_members, write_members};
use crate::commands::command::{Command, Context, commands};
use crate::errors::SYNTAX;
use crate::spec::Arguments;

pub(in super::super) static COMMANDS: &[Command] = commands! {
    ["sorted-set": (READ), NUMBERED]
    "zunion", -3, "6.2.0", run, "Add multiple sorted sets";
    "zinter", -3, "6.2.0", run, "Intersect multiple sorted sets";
    "zdiff", -3, "6.2.0", run, "Subtract multiple sorted sets";
    "zintercard", -3, "7.0.0", run,
        "Intersect multiple sorted sets and return the cardinality of the result";
    ["sorted-set": (WRITE | DENYOOM), STORED_NUMBERED]
    "zunionstore", -4, "2.0.0", run,
        "Add multiple sorted sets and store the resulting sorted set in a new key";
    "zinterstore", -4, "2.0.0", run,
        "Intersect multiple sorted sets and store the resulting sorted set in a new key";
    "zdiffstore", -4, "6.2.0", run,
        "Subtract multiple sorted sets and store the resulting sorted set in a new key";
};

/// The way to combine the scores of one member.
#[derive(Clone, Copy, Debug)]
enum Aggregate {
    Sum,
    Least,
    Greatest,
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Sum => zero_if_none(one + other),
            Self::Least if other < one => other,
            Self::Greatest if other > one => other,
            _ => one,
        }
    }
}

/// Redis replaces the sum of both infinities by zero.
fn zero_if_none(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// A source of the operation.
struct Source<'key> {
    set: Option<Collection<'key>>,
    weight: f64,
}

impl Source<'_> {
    fn count(&self) -> u64 {
        self.set.as_ref().map_or(0, Collection::count)
    }

    /// The score of a member, without its weight.
    fn score_of(&self, transaction: &Transaction<'_>, name: &[u8]) -> Result<Option<f64>> {
        let Some(set) = &self.set else { return Ok(None) };
        match set.kind() {
            Kind::Set => Ok(set.has(transaction, Element::Field(name))?.then_some(1.0)),
            _ => member::score_of(transaction, set, name),
        }
    }

    fn visit(
        &self,
        transaction: &Transaction<'_>,
        mut visit: impl FnMut(&[u8], f64) -> Result<std::ops::ControlFlow<()>>,
    ) -> Result<()> {
        let Some(set) = &self.set else { return Ok(()) };
        set.visit(transaction, Section::Fields, ALL, Order::Ascending, |element, value| {
            let score = if set.kind() == Kind::Set { 1.0 } else { member::decode(value)? };
            visit(name_of(element), score)
        })
    }
}

/// The arguments of a command.
struct Request<'key> {
    operation: Operation,
    sources: Vec<Source<'key>>,
    aggregate: Aggregate,
    with_scores: bool,
    limit: u64,
}

/// The use of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Reply,
    Store,
    Count,
}

impl<'key> Request<'key> {
    /// Parses the number of keys, the keys, and the options.
    fn parse(
        context: &Context<'_, '_>,
        words: &[&'key [u8]],
        operation: Operation,
        purpose: Purpose,
        name: &str,
    ) -> Result<Self> {
        let number = integers::integer(words[0])?;
        let number =
            usize::try_from(number).ok().filter(|&number| number > 0).ok_or_else(|| {
                fail_with(format!("ERR at least 1 input key is needed for '{name}' command"))
            })?;
        let (keys, mut rest) = words[1..].split_at_checked(number).ok_or(SYNTAX)?;
        let mut sources = Vec::with_capacity(keys.len());
        for key in keys {
            let kinds = [Kind::SortedSet, Kind::Set];
            let set = Collection::find_any(context.transaction, context.space, key, &kinds)?;
            sources.push(Source { set, weight: 1.0 });
        }
        let (mut aggregate, mut with_scores, mut limit) = (Aggregate::Sum, false, u64::MAX);
        let may_weigh = operation != Operation::Difference && purpose != Purpose::Count;
        while let Some((word, behind)) = rest.split_first() {
            match word.to_ascii_lowercase().as_slice() {
                b"weights" if may_weigh && behind.len() >= number => {
                    let (weights, behind) = behind.split_at(number);
                    for (source, weight) in sources.iter_mut().zip(weights) {
                        source.weight = score::parse_weight(weight)?;
                    }
                    rest = behind;
                }
                b"aggregate" if may_weigh && !behind.is_empty() => {
                    aggregate = match behind[0].to_ascii_lowercase().as_slice() {
                        b"sum" => Aggregate::Sum,
                        b"min" => Aggregate::Least,
                        b"max" => Aggregate::Greatest,
                        _ => return Err(SYNTAX),
                    };
                    rest = &behind[1..];
                }
                b"withscores" if purpose == Purpose::Reply => {
                    with_scores = true;
                    rest = behind;
                }
                b"limit" if purpose == Purpose::Count && !behind.is_empty() => {
                    limit = integers::limit(behind[0])?;
                    rest = &behind[1..];
                }
                _ => return Err(SYNTAX),
            }
        }
        if operation != Operation::Difference {
            sources.sort_by_key(Source::count);
        }
        Ok(Self { operation, sources, aggregate, with_scores, limit })
    }

    /// The members of the result with their scores, in order of the scores.
    fn carry_out(&self, transaction: &Transaction<'_>) -> Result<Vec<(Vec<u8>, f64)>> {
        let Some((first, others)) = self.sources.split_first() else { return Ok(Vec::new()) };
        let mut members = BTreeMap::new();
        match self.operation {
            Operation::Union => {
                for source in &self.sources {
                    source.visit(transaction, |name, score| {
                        let score = zero_if_none(source.weight * score);
                        match members.get_mut(name) {
                            Some(sum) => *sum = self.aggregate.of(*sum, score),
                            None => drop(members.insert(name.to_vec(), score)),
                        }
                        ON
                    })?;
                }
            }
            Operation::Intersection => first.visit(transaction, |name, score| {
                let mut score = zero_if_none(first.weight * score);
                for other in others {
                    let Some(found) = other.score_of(transaction, name)? else { return ON };
                    score = self.aggregate.of(score, other.weight * found);
                }
                members.insert(name.to_vec(), score);
                if members.len() as u64 == self.limit { ENOUGH } else { ON }
            })?,
            Operation::Difference => first.visit(transaction, |name, score| {
                for other in others {
                    if other.score_of(transaction, name)?.is_some() {
                        return ON;
                    }
                }
                members.insert(name.to_vec(), score);
                ON
            })?,
        }
        let mut members: Vec<(Vec<u8>, f64)> = members.into_iter().collect();
        // The sort is stable, so members with equal scores keep their order.
        members.sort_by_key(|(_, score)| ordered_bits(*score));
        Ok(members)
    }
}

fn run(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let name = String::from_utf8_lossy(arguments[0]).to_ascii_lowercase();
    let purpose = match name.as_str() {
        name if name.ends_with("store") => Purpose::Store,
        name if name.ends_with("card") => Purpose::Count,
        _ => Purpose::Reply,
    };
    let words = &arguments[1 + usize::from(purpose == Purpose::Store)..];
    let request = Request::parse(context, words, Operation::of(arguments[0]), purpose, &name)?;
    let members = request.carry_out(context.transaction)?;
    match purpose {
        Purpose::Reply => {
            let members = members.iter().map(|(name, score)| (name, *score));
            write_members(context.reply, members, request.with_scores);
        }
        Purpose::Store => return store_members(context, arguments, &members),
        Purpose::Count => context.reply.count(members.len() as u64),
    }
    Ok(())
}
