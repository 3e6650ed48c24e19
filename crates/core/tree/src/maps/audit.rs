//! What an index tells to `check` and `stat`.

use pando_pmem::{Block, Domain};

use crate::context::Context;
use crate::value_block;

/// How an index is built and filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Levels from the entry to the leaves, both included.
    pub height: u64,
    /// Leaves: what holds records.
    pub leaves: u64,
    /// Inner nodes: what leads to leaves.
    pub inner_nodes: u64,
    /// Live records.
    pub records: u64,
    /// Bytes of all leaves.
    pub leaf_bytes: u64,
    /// Bytes of all inner nodes.
    pub inner_bytes: u64,
    /// Bytes of live records in leaves, metadata included.
    pub live_bytes: u64,
    /// Bytes of records in leaves that are deleted or superseded, or came to nothing.
    pub deleted_bytes: u64,
    /// Values that have blocks of their own.
    pub value_blocks: u64,
    /// Bytes of these blocks.
    pub value_block_bytes: u64,
}

/// Which invariant is violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemClass {
    /// A node or value is reachable, and its block is not allocated or is of another size.
    Block,
    /// A node's counts do not fit the node.
    Count,
    /// A separator does not ascend, or a key lies outside the range that they give its leaf.
    Separator,
    /// The records of a leaf do not ascend.
    Order,
    /// A leaf is not as deep as the others, or a node is in a state that it cannot be in.
    Structure,
}

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which one.
    pub class: ProblemClass,
    /// Offset of the node.
    pub node_off: u64,
    /// What is wrong.
    pub what: String,
}

/// All that a walk over an index finds; exact while nobody writes.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// Shape and fill.
    pub stat: Stat,
    /// Violated invariants.
    pub problems: Vec<Problem>,
    /// The blocks that the index reaches, each once.
    pub blocks: Vec<Block>,
}

impl Audit {
    /// Whether every invariant holds.
    pub fn is_consistent(&self) -> bool {
        self.problems.is_empty()
    }

    /// Takes in the value's block at `off`, which the node at `node_off` names; whether it can be
    /// one.
    pub fn value_block<D: Domain>(
        &mut self,
        context: Context<'_, '_, D>,
        node_off: u64,
        off: u64,
    ) -> bool {
        match value_block::check(context, off) {
            Ok(bytes) => {
                self.blocks.push(Block { off, bytes });
                self.stat.value_blocks += 1;
                self.stat.value_block_bytes += bytes;
                true
            }
            Err((class, what)) => {
                self.problem(class, node_off, what);
                false
            }
        }
    }

    /// Notes a violated invariant.
    pub fn problem(&mut self, class: ProblemClass, node_off: u64, what: impl Into<String>) {
        self.problems.push(Problem { class, node_off, what: what.into() });
    }
}
