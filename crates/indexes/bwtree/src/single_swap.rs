//! The steps of changes by single-word CAS (`single_word.rs`): one CAS of a mapping word, with the
//! blocks that it publishes and releases.

use pando_pmem::Domain;
use pando_tree::blocks::NewBlock;
use pando_tree::context::Context;
use pando_tree::index_kind;

use crate::context::{At, Pid};
use crate::layout::Link;
use crate::options::Options;
use crate::prepend::Prepared;
use crate::tree::BwTree;

/// Pages change by single-word CAS, one after the other.
#[derive(Clone, Copy, Debug)]
pub enum SingleWord {}

index_kind! {
    /// Bw-trees whose pages change by single-word CAS: for measurements, in a pool that need not
    /// survive a crash.
    pub enum CasBwTrees = 0xFFFF_0003, "bwtree-cas",
    "for measuring: the Bw-tree by single-word CAS, which no crash may interrupt",
    BwTree<D, SingleWord>, Options;
}

/// Activates the block for a word that will name it.
pub(crate) fn activate<D: Domain>(context: Context<'_, D>, block: NewBlock<'_, D>) -> u64 {
    let off = block.into_logged();
    context.pool().activate_logged(off);
    off
}

/// Takes back blocks that no other thread has seen.
pub(crate) fn take_back<D: Domain>(context: Context<'_, D>, blocks: &[u64]) {
    for &off in blocks.iter().filter(|&&off| off != 0) {
        if context.pool().deactivate(off).is_ok() {
            D::fence();
            context.pool().reuse(context.guard, off);
        }
    }
}

/// Frees blocks that are unreachable now.
pub(crate) fn free<D: Domain>(context: Context<'_, D>, blocks: impl Iterator<Item = u64>) {
    for off in blocks.filter(|&off| off != 0) {
        if context.pool().deactivate(off).is_ok() {
            D::fence();
            context.guard.retire(off);
        }
    }
}

/// The link of a delta, and its block, activated; zero if it has none.
pub(crate) fn given<D: Domain>(context: Context<'_, D>, delta: Prepared<'_, D>) -> (Link, u64) {
    match delta {
        Prepared::Beside(link) => (link, 0),
        Prepared::Block(link, block) => (link, activate(context, block)),
    }
}

pub(crate) fn swap<D: Domain>(context: Context<'_, D>, pid: Pid, from: u64, to: Link) -> bool {
    // The delta is durable before the link is.
    D::fence();
    context.pmwcas.compare_exchange(context.guard, pid, from, to.0).is_ok()
}

/// Changes the word of `at`, which publishes `blocks`, and frees `freed`.
pub(crate) fn exchange<D: Domain>(
    context: Context<'_, D>,
    at: At,
    to: Link,
    blocks: &[u64],
    freed: impl Iterator<Item = u64>,
) -> bool {
    let done = swap(context, at.pid, at.link.0, to);
    if done {
        free(context, freed)
    } else {
        take_back(context, blocks)
    }
    done
}
