//! How a thread knows that a state is durable, without a second swap.
//!
//! A state written by a change of one node has the dirty bit, and keeps it. The header has the
//! *durable version*, in the same line: the version of a state that was written back and fenced. If
//! that is the state's own version, the state is durable, whatever its dirty bit says.
//!
//! # Protocol
//!
//! | step | thread | what a crash leaves |
//! | --- | --- | --- |
//! | the state of version v is swapped for one of v + 1, dirty | the writer | either |
//! | the line is written back; **fence** | the writer | the later one |
//! | v + 1 is stored as the durable version; return | the writer | the same; what the version says is true |
//!
//! If a thread finds a dirty state and a durable version that differs from the state's
//! ([`settled`]), it makes the state durable before it continues, by a read of the PMwCAS, which
//! also clears the bit. The reason may be that the writer is not done or has stopped, that a store
//! of an earlier version by another thread came late, or that a crash has lost the last store. In
//! each case the cost is one write-back.
//!
//! Why no state is taken for durable that is not: a thread stores a version only after it has
//! fenced a state of that version, under the guard by which it found the node. A node's
//! versions never return, so no other state has this version. The node is not allocated again
//! before that guard is dropped. The version reaches the medium no earlier than its state, since it
//! is stored after the fence. It is stored and not swapped: a late store is true for an earlier
//! state, and says nothing of the present one.
//!
//! Why a store: a swap waits for the fence before it, and a store does not. The thread continues
//! with the search for its next key ([`descent`](crate::descent)) while the line is written back.
//!
//! A PMwCAS expects words without the dirty bit, and writes back a word that has it. So a thread
//! that has found a state durable clears the bit before it passes the state to a PMwCAS
//! ([`Node::expect`]).
//!
//! A state written by a PMwCAS is clean, unless other threads helped the operation: then it is
//! dirty until it is written back (phase 2 of its RDCSS). It may be taken for durable before that.
//! A dead state has the version of the one before it, which may be the durable version; and a
//! failed operation puts the old state back, which may have the durable version too. Both are
//! durable. For the dead state, the status was durable before the dead state was written, and the
//! descriptor stays until its owner has written the target back; so recovery puts the dead state
//! where the medium has the reference. The old state is one that was passed to `expect`.
//!
//! In a domain without write-backs there is no dirty bit, and the durable version stays zero.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Words, mutant};
use pando_pmwcas::{CONTROL_BITS, DIRTY, Descriptor};

use crate::layout::{HEADER_AT, Header};
use crate::node::{Changed, Context, Node};
use crate::state::State;

/// The state in `word`, if it is valid for a node with these words, and durable.
#[inline(always)]
pub(crate) fn settled<D: Domain>(words: &Words<'_, D>, word: u64) -> Option<State> {
    if word & CONTROL_BITS == 0 {
        return Some(State(word));
    }
    if !D::needs_write_back() || word & CONTROL_BITS != DIRTY {
        return None;
    }
    let state = State(word & !DIRTY);
    // Acquire: pairs with the store after the fence.
    let header = words.at(HEADER_AT / 8, Ordering::Acquire);
    (Header::durable_version_of(header) == state.version()).then_some(state)
}

impl<D: Domain> Node<'_, D> {
    /// The state, durable.
    #[inline(always)]
    pub fn state(&self, context: Context<'_, D>) -> State {
        // Acquire: pairs with the swap that wrote it; its writer's stores to cells are visible.
        let word = self.words.at(0, Ordering::Acquire);
        match settled(&self.words, word) {
            Some(state) => state,
            None => State(context.read(self.off)),
        }
    }

    /// Returns an error if the state is not `state`, which is durable.
    #[inline(always)]
    pub fn still(&self, context: Context<'_, D>, state: State) -> Result<(), Changed> {
        // Acquire: as in `state`.
        let word = self.words.at(0, Ordering::Acquire);
        if word & !DIRTY == state.0 || self.state(context) == state { Ok(()) } else { Err(Changed) }
    }

    /// Makes the node's first line durable, after `state` was written there, and stores the
    /// durable version.
    #[inline(always)]
    pub fn make_durable(&self, context: Context<'_, D>, state: State) {
        if !D::needs_write_back() {
            return;
        }
        if !mutant!("wbtree-state-not-flushed") {
            context.pool().word(self.off).flush();
        }
        if !mutant!("wbtree-state-not-fenced") {
            D::fence();
        }
        let header =
            Header { level: self.level, kind: self.kind, node_bytes: context.shape.node_bytes };
        // Release: a thread that sees it knows that the fence is done.
        let word = context.pool().word(self.off + HEADER_AT);
        word.store(header.encode_with(state.version()), Ordering::Release);
    }

    /// Makes the operation depend on the node's state `from`, which is durable, and exchange it
    /// for `to`.
    pub fn expect(
        &self,
        context: Context<'_, D>,
        operation: &mut Descriptor<'_, '_, D>,
        from: State,
        to: State,
    ) -> pando_pmwcas::Result<()> {
        context.pmwcas.clear_dirty(self.off, from.0);
        operation.add_word(self.off, from.0, to.0)
    }
}
