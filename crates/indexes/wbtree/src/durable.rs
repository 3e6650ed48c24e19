//! How it is known that a state is durable, without a swap that says so.
//!
//! A state that a change of one node has put in place has the dirty bit, and keeps it. The header
//! has the *durable version*, in the same line: the version of a state that was written back and
//! fenced. If that is the state's own version, the state is durable, whatever its dirty bit says.
//!
//! # Protocol
//!
//! | step | who | what a crash leaves |
//! | --- | --- | --- |
//! | the state of version v is swapped for one of v + 1, dirty | the writer | either |
//! | the line is written back; **fence** | the writer | the later one |
//! | v + 1 is stored as the durable version; return | the writer | the same; what the version says is true |
//!
//! Who finds a dirty state and another durable version than its own ([`settled`]) makes the state
//! durable before it goes on, by a read of the PMwCAS, which also clears the bit: its writer is not
//! done, or has stopped, or another's store of an earlier version came late, or a crash has taken
//! the last store back. In each case that costs a write-back and no more.
//!
//! Why no state is taken for durable that is not: a thread stores a version only after it has
//! fenced a state of that version, under the guard by which it found the node; a node's versions
//! never return, so no other state has it; and the node is not allocated anew before that guard is
//! dropped. The version reaches the medium no earlier than its state, being stored behind the
//! fence. It is stored and not swapped: one that comes late says of an earlier state what was true,
//! and of the one that is there nothing.
//!
//! Why a store: a swap waits for the fence before it, and a store does not. The thread goes on, and
//! looks for its next key ([`descent`](crate::descent)) while the line is on its way.
//!
//! A PMwCAS wants its words without the bit, and writes back again what has it. So who has found a
//! state durable takes the bit away before it gives the state to one ([`Node::expect`]).
//!
//! What a PMwCAS puts in place is clean, unless others helped it: then it is dirty until it is
//! written back (phase 2 of its RDCSS). It may be taken for durable before that: a dead state has
//! the version of the one before it, which may be the durable version; so may the version of the
//! old state, which a failed operation puts back. Both are durable. The status was, before the dead
//! state came, and the descriptor stands until its owner has written the target back, so that a
//! recovery puts the dead state where the medium has the reference. The old state is one that
//! `expect` was given.
//!
//! Where nothing is written back there is no dirty bit, and the durable version stays zero.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Words, mutant};
use pando_pmwcas::{CONTROL_BITS, DIRTY, Descriptor};

use crate::layout::{HEADER_AT, Header};
use crate::node::{Changed, Context, Node};
use crate::state::State;

/// The state in the word `word` of the node with these words, if it is one, and durable.
#[inline(always)]
pub(crate) fn settled<D: Domain>(words: &Words<'_, D>, word: u64) -> Option<State> {
    if word & CONTROL_BITS == 0 {
        return Some(State(word));
    }
    if !D::WRITE_BACK || word & CONTROL_BITS != DIRTY {
        return None;
    }
    let state = State(word & !DIRTY);
    // Acquire: with the store behind the fence.
    let header = words.at(HEADER_AT / 8, Ordering::Acquire);
    (Header::durable_version_of(header) == state.version()).then_some(state)
}

impl<D: Domain> Node<'_, D> {
    /// The state, durable.
    #[inline(always)]
    pub fn state(&self, context: Context<'_, D>) -> State {
        // Acquire: with the swap that put it there; what its writer wrote to cells is seen.
        let word = self.words.at(0, Ordering::Acquire);
        match settled(&self.words, word) {
            Some(state) => state,
            None => State(context.read(self.off)),
        }
    }

    /// An error if the state is another than `state`, which is durable.
    #[inline(always)]
    pub fn still(&self, context: Context<'_, D>, state: State) -> Result<(), Changed> {
        // Acquire: as in `state`.
        let word = self.words.at(0, Ordering::Acquire);
        if word & !DIRTY == state.0 || self.state(context) == state { Ok(()) } else { Err(Changed) }
    }

    /// Makes the node's first line durable, in which `state` was put in place, and says so.
    #[inline(always)]
    pub fn make_durable(&self, context: Context<'_, D>, state: State) {
        if !D::WRITE_BACK {
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
        // Release: who sees it knows what the fence was for.
        let word = context.pool().word(self.off + HEADER_AT);
        word.store(header.encode_with(state.version()), Ordering::Release);
    }

    /// Makes the operation depend on the node's state `from`, which is durable, and exchange it for
    /// `to`.
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
