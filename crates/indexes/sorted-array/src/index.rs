//! The array as an index of a pool: `RangeIndex`, `Tree` and `IndexKind`.

use std::ops::Deref;

use pando_index::{Error, Intent, Limits, RangeIndex, Result, Upserted};
use pando_pmem::{Domain, Guard, mutant};
use pando_pmwcas::Policy;
use pando_tree::blocks::Reserved;
use pando_tree::checked::undamaged;
use pando_tree::context::Context;
use pando_tree::handle::Handle;
use pando_tree::index_kind;
use pando_tree::index_operations;
use pando_tree::maps::{Audit, ProblemClass, Stat, Tree, Unit};
use pando_tree::room::{Tries, nothing_to_give};

use crate::array::{self, Array, HEADER_BYTES, MAX_ARRAY_BYTES};

const LIMITS: Limits = Limits { max_key_bytes: 255, max_value_bytes: 32 << 20 };

/// A sorted array in a pool.
#[derive(Debug)]
pub struct SortedArray<D: Domain>(Handle<D, ()>);

impl<D: Domain> Deref for SortedArray<D> {
    type Target = Handle<D, ()>;

    fn deref(&self) -> &Handle<D, ()> {
        &self.0
    }
}

/// The array would become too long.
#[derive(Debug, thiserror::Error)]
#[error(
    "the array would take {found_bytes} bytes, and takes at most {MAX_ARRAY_BYTES}; use another \
     index, such as bztree"
)]
struct ArrayTooLong {
    found_bytes: u64,
}

/// The new value of a write; `None` for a remove.
type Change<'new> = Option<&'new [u8]>;

impl<D: Domain> SortedArray<D> {
    /// The present array.
    pub(crate) fn array<'guard>(&self, guard: &'guard Guard<'_, D>) -> (u64, Array<'guard, D>) {
        let off = self.catalog.read(guard, self.root_off);
        (off, Array::at(guard, off))
    }

    fn put(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> Result<Upserted> {
        LIMITS.check_value(value)?;
        let was_there = self.replace_record(key, |found| {
            intent.check(found)?;
            Ok(Some(value))
        })?;
        Ok(if was_there { Upserted::Updated } else { Upserted::Inserted })
    }

    /// Removes the record; returns whether it was present. If `expected` is given, a record with
    /// another value is an error.
    fn delete(&self, key: &[u8], expected: Option<&[u8]>) -> Result<bool> {
        self.replace_record(key, |found| match (found, expected) {
            (Some(found), Some(expected)) if found != expected => Err(Error::ValueMismatch),
            _ => Ok(None),
        })
    }

    /// Changes the value of `key` to the result of `decide`, unless that is an error. Returns
    /// whether the key was present.
    fn replace_record<'new>(
        &self,
        key: &[u8],
        decide: impl Fn(Option<&[u8]>) -> Result<Change<'new>>,
    ) -> Result<bool> {
        LIMITS.check_key(key)?;
        self.until_done(Tries::Few, nothing_to_give, |guard| {
            let (old, array) = self.array(guard);
            let block = array.copy();
            let mut records =
                Array::<D>::decode(&block).map_err(|what| Error::Storage(what.into()))?;
            let found = records.binary_search_by(|(other, _)| (*other).cmp(key));
            let change = decide(found.ok().map(|place| records[place].1))?;
            match (found, change) {
                (Ok(place), Some(value)) => records[place].1 = value,
                (Ok(place), None) => drop(records.remove(place)),
                (Err(place), Some(value)) => records.insert(place, (key, value)),
                (Err(_), None) => return undamaged(guard).map(|()| Some(false)),
            }
            let replace = || self.replace(self.context(guard), old, &array::encode(&records));
            // A remove takes room too, but frees more.
            let is_replaced = match change {
                Some(_) => guard.without_reserve(replace),
                None => guard.with_reserve(replace),
            }?;
            Ok(is_replaced.then_some(found.is_ok()))
        })
    }

    /// Replaces the array at `old` by `content`; fails if another write has replaced it.
    fn replace(&self, context: Context<'_, D>, old: u64, content: &[u8]) -> Result<bool> {
        let found_bytes = content.len() as u64;
        if found_bytes > MAX_ARRAY_BYTES {
            return Err(Error::storage(ArrayTooLong { found_bytes }));
        }
        let block = new_block(context, content).map_err(Error::storage)?;
        context.publish(|operation| {
            let root = operation.reserve_entry(self.root_off, old, Policy::FreeOne)?;
            operation.activate(root, block);
            Ok(true)
        })
    }
}

/// A block with this content, written and flushed.
fn new_block<'op, D: Domain>(context: Context<'op, D>, content: &[u8]) -> Reserved<'op, D> {
    let bytes = content.len() as u64;
    let mut block = context.guard.reserve(bytes)?;
    block.write(0, content);
    if !mutant!("array-not-flushed") {
        block.flush(0, bytes);
    }
    Ok(block)
}

impl<D: Domain> RangeIndex for SortedArray<D> {
    fn limits(&self) -> Limits {
        LIMITS
    }

    index_operations!();

    fn len(&self) -> Result<u64> {
        let guard = self.pin()?;
        Ok(self.array(&guard).1.len)
    }
}

impl<D: Domain> Tree for SortedArray<D> {
    type Domain = D;
    type Options = ();

    fn first_block<'op>(context: Context<'op, D>, (): ()) -> Reserved<'op, D> {
        new_block(context, &array::empty())
    }

    fn open(handle: Handle<D, ()>) -> Self {
        Self(handle)
    }

    fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        LIMITS.check_key(key)?;
        let guard = self.pin()?;
        let (_, array) = self.array(&guard);
        Ok(array.find(key).ok().map(|place| visit(&array.value(place))))
    }

    fn walk(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Audit> {
        let guard = self.pin()?;
        let off = self.catalog.read(&guard, self.root_off);
        let mut audit = Audit::default();
        let Some(bytes) = audit.block(guard.pool(), off, HEADER_BYTES, "the array") else {
            return Ok(audit);
        };
        let array = Array::at(&guard, off);
        if array.bytes > bytes {
            let found = array.bytes;
            let what = format!("the array says {found} bytes, its block has {bytes}");
            audit.problem(ProblemClass::Count, off, what);
            return Ok(audit);
        }
        let block = array.copy();
        match Array::<D>::decode(&block) {
            Ok(records) => {
                if records.is_sorted_by(|left, right| left.0 < right.0) {
                    records.iter().for_each(|(key, value)| visit(key, value));
                } else {
                    audit.problem(ProblemClass::Order, off, "the keys do not ascend");
                }
                audit.stat = Stat {
                    height: 1,
                    leaves: 1,
                    records: records.len() as u64,
                    leaf_bytes: bytes,
                    live_bytes: array.bytes,
                    ..Stat::default()
                };
            }
            Err(what) => audit.problem(ProblemClass::Count, off, what),
        }
        Ok(audit)
    }

    fn next_unit(context: Context<'_, D>, root_off: u64, (): ()) -> Unit {
        let off = context.read(root_off);
        match context.pool().active_block(off) {
            Some(_) => Unit::of_block(root_off, off, 0, off),
            None => Unit::passed_over(root_off, off),
        }
    }
}

index_kind! {
    /// Sorted arrays.
    pub enum SortedArrays = 0xFFFF_0001, "sorted-array",
    "an example: one sorted array, copied on every write",
    SortedArray<D>, ();
}
