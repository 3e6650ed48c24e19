//! What is measured, as the harness sees it.
//!
//! An adapter implements [`Side`]; the harness is compiled against each of them, so that a call
//! costs what it would cost that library's user. [`Subject`] is the same thing with its type
//! forgotten: one virtual call a slice, none an operation.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

pub use pando_index::Order;

use crate::error::Fault;
use crate::record::Records;
pub use crate::record::Shape;
use crate::replay::parse::Operation;
use crate::replay::{self, Answer, Difference};
use crate::slice::{self, Outcome, Slice};
use crate::traces::runner::{self, Fault as TraceFault};
use crate::traces::{Step, Trace};
use crate::verify;

/// Why a side did not do what it was asked to.
pub type Refusal = Box<dyn std::error::Error + Send + Sync>;

/// An ordered map from byte strings to byte strings that many threads use at once; keys are
/// ordered bytewise.
pub trait Side: Send + Sync {
    /// Whether a get may miss a key while another thread replaces its value: a fault that the
    /// harness lives with for a peer, on record. Such misses are counted and reported, and each
    /// key has to be there when the slice is over.
    const REPLACING_HIDES_KEY: bool = false;

    /// Adds a record; false, with nothing changed, if its key is there.
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal>;

    /// Replaces the value of a key that the caller knows to be there.
    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal>;

    /// Calls `visit` with the value of `key` if it is there; whether it is.
    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal>;

    /// Removes a record; false if its key is absent.
    fn delete(&self, key: &[u8]) -> Result<bool, Refusal>;

    /// Visits up to `limit` records from `from`, included, upwards or downwards. Refuses (an error
    /// that says so) a direction that the map has not.
    fn scan(
        &self,
        from: &[u8],
        limit: u64,
        order: Order,
        visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Refusal>;

    /// The number of records, while nobody writes.
    fn count(&self) -> Result<u64, Refusal>;

    /// The bytes that the side takes, if it knows; otherwise the heap's growth is taken.
    fn footprint_bytes(&self) -> Option<u64> {
        None
    }

    /// The bytes that the side's files take, if it has any.
    fn file_bytes(&self) -> Option<u64> {
        None
    }
}

/// A side with its type forgotten.
pub trait Subject: Send + Sync {
    /// Runs one slice.
    fn run(&self, slice: &Slice<'_>) -> Result<Outcome, Fault>;

    /// Compares the number of records with what is due.
    fn check_count(&self, due: u64) -> Result<(), Fault>;

    /// Compares every record with those that are due.
    fn check_all(&self, records: Records, live: &Range<u64>) -> Result<(), Fault>;

    /// Does a part of a file of operations and compares its answers with those that are due.
    fn replay(&self, operations: &[Operation], due: &[Answer]) -> Result<Outcome, Difference>;

    /// Compares every record with those of the model of a replay.
    fn check_records(&self, model: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(), Difference>;

    /// Runs some steps of a trace; how long that took.
    fn run_steps(
        &self,
        trace: &Trace,
        steps: &[Step],
        threads: usize,
    ) -> Result<Duration, TraceFault>;

    /// Compares every record with those that the end of a trace leaves.
    fn check_trace(&self, trace: &Trace) -> Result<(), TraceFault>;

    /// See [`Side::footprint_bytes`].
    fn footprint_bytes(&self) -> Option<u64>;

    /// See [`Side::file_bytes`].
    fn file_bytes(&self) -> Option<u64>;
}

impl<S: Side> Subject for S {
    fn run(&self, slice: &Slice<'_>) -> Result<Outcome, Fault> {
        slice::run(self, slice)
    }

    fn check_count(&self, due: u64) -> Result<(), Fault> {
        verify::count(self, due)
    }

    fn check_all(&self, records: Records, live: &Range<u64>) -> Result<(), Fault> {
        verify::all(self, records, live)
    }

    fn replay(&self, operations: &[Operation], due: &[Answer]) -> Result<Outcome, Difference> {
        replay::part(self, operations, due)
    }

    fn check_records(&self, model: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(), Difference> {
        replay::check_records(self, model)
    }

    fn run_steps(
        &self,
        trace: &Trace,
        steps: &[Step],
        threads: usize,
    ) -> Result<Duration, TraceFault> {
        runner::run_steps(self, trace, steps, threads)
    }

    fn check_trace(&self, trace: &Trace) -> Result<(), TraceFault> {
        runner::check(self, trace)
    }

    fn footprint_bytes(&self) -> Option<u64> {
        Side::footprint_bytes(self)
    }

    fn file_bytes(&self) -> Option<u64> {
        Side::file_bytes(self)
    }
}
