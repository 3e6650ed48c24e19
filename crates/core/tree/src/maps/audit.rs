//! The report of an index to `check` and `stat`.

use std::collections::HashSet;

use pando_pmem::{Block, Domain, Pool};

use super::problem::{Problem, ProblemClass};
use crate::context::Context;
use crate::record_block::{self, KeyLength};
use crate::value_block;

/// The shape and fill of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Levels from the entry to the leaves, both included.
    pub height: u64,
    /// Leaves: nodes with records.
    pub leaves: u64,
    /// Inner nodes: nodes that lead to leaves.
    pub inner_nodes: u64,
    /// Live records.
    pub records: u64,
    /// Bytes of all leaves.
    pub leaf_bytes: u64,
    /// Bytes of all inner nodes.
    pub inner_bytes: u64,
    /// Bytes of live records in leaves, metadata included.
    pub live_bytes: u64,
    /// Bytes in leaves of records that are deleted or superseded, and of aborted writes.
    pub deleted_bytes: u64,
    /// Values that have blocks of their own.
    pub value_blocks: u64,
    /// Bytes of these blocks.
    pub value_block_bytes: u64,
}

/// The findings of a walk over an index; exact while no thread writes.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// Shape and fill.
    pub stat: Stat,
    /// Violated invariants.
    pub problems: Vec<Problem>,
    /// The blocks that the index reaches, each once.
    pub blocks: Vec<Block>,
    /// Their offsets.
    reached: HashSet<u64>,
}

impl Audit {
    /// Whether every invariant holds.
    pub fn is_consistent(&self) -> bool {
        self.problems.is_empty()
    }

    /// Adds the block at `off`; returns its size. Returns `None`, and adds a problem, if the block
    /// is not allocated, is smaller than `least_bytes`, or was added before.
    pub fn block<D: Domain>(
        &mut self,
        pool: &Pool<D>,
        off: u64,
        least_bytes: u64,
        what: &str,
    ) -> Option<u64> {
        let bytes = pool.active_block(off).filter(|&bytes| bytes >= least_bytes);
        let Some(bytes) = bytes else {
            let what = format!("the block of {what} is not allocated, or is too small");
            self.problem(ProblemClass::Block, off, what);
            return None;
        };
        if !self.reached.insert(off) {
            self.problem(ProblemClass::Block, off, format!("the block of {what} is reached twice"));
            return None;
        }
        self.blocks.push(Block { off, bytes });
        Some(bytes)
    }

    /// Adds the value's block at `off`, which the node at `node_off` names; returns whether it can
    /// be one.
    pub fn value_block<D: Domain>(
        &mut self,
        context: Context<'_, D>,
        node_off: u64,
        off: u64,
    ) -> bool {
        if let Err((class, what)) = value_block::check(context, off) {
            self.problem(class, node_off, what);
            return false;
        }
        let bytes = self.block(context.pool(), off, value_block::HEADER_BYTES, "a value");
        if let Some(bytes) = bytes {
            self.stat.value_blocks += 1;
            self.stat.value_block_bytes += bytes;
        }
        bytes.is_some()
    }

    /// Adds the record's block at `off`; returns its size, its key and its value.
    pub fn record_block<D: Domain>(
        &mut self,
        pool: &Pool<D>,
        off: u64,
        order: KeyLength,
    ) -> Option<(u64, Vec<u8>, Vec<u8>)> {
        match order.load(pool, off) {
            Ok((key, value)) => {
                let bytes = self.block(pool, off, record_block::HEADER_BYTES, "a record")?;
                Some((bytes, key, value))
            }
            Err((class, what)) => {
                self.problem(class, off, what);
                None
            }
        }
    }

    /// Adds a violated invariant.
    pub fn problem(&mut self, class: ProblemClass, node_off: u64, what: impl Into<String>) {
        self.problems.push(Problem { class, node_off, what: what.into() });
    }
}
