//! wB+-Trees (Chen and Jin; `wbtree.txt`): B+-trees for persistent memory whose nodes are changed
//! by one atomic write.
//!
//! It stands on `pando-pmwcas` and `pando-pmem`, and keeps the contract of
//! `pando-index`. It owns nothing but blocks of the pool, reached from one entry word.
//!
//! # The paper's trees, and what is different
//!
//! A node has cells in any order, and a word, its *state*, that says which are live. An insert
//! writes a free cell and then the state; a delete writes only the state. What orders the cells is
//! a slot array: in the state itself (slot-only), beside a bitmap in the state (slot+bitmap), or
//! not there (bitmap-only). The three trees of the paper's table 2 are the three values of the
//! option `leaf`; fixed and variable keys (4.6) those of `records`.
//!
//! The paper's trees have one writer. These have any number, and nobody waits:
//!
//! * **The state is swapped, with a version.** A writer decides by one state and swaps that state;
//!   if another was faster it looks again. A reader looks at the state before and after it has
//!   looked at cells.
//! * **A free cell is claimed before it is written** (`claim.rs`), by a bit in a word that is not
//!   durable.
//! * **The fence is a cell.** The highest key of a node and the next node stand in a cell, and the
//!   state says in which. So a split is a swap of one state too, and needs no redo log: what the
//!   state says moves half of the records, the fence and the sibling pointer at once. The new node
//!   gets its place in the parent by a second swap; until then it is found through the fence, as in
//!   a B-link tree. Merges change three states by one PMwCAS (`smo/`).
//! * **Leaves have a pointer to the left too**, for scans backwards, which is exact while a leaf
//!   lives: what changes its left neighbour changes the pointer by the same PMwCAS (`smo/`). A
//!   write of a record does not touch it.
//! * **Slots say for which state they are** (`slots.rs`). The paper clears a valid bit first,
//!   durably, which costs an insert a write-back and a fence, and a delete two of each.
//! * **Keys with blocks have a slice**, their first eight bytes, in the cell. The paper's cells
//!   have only a pointer to the key, and each comparison follows it.
//!
//! * **That a state is durable is stored, not swapped** (`durable.rs`), and cells in the state's
//!   own line are written back with it (`put.rs`): a swap waits for the write-backs before it, and
//!   a store does not.
//! * **The way down needs no pin** (`descent.rs`), for the same reason.
//!
//! An insert takes two write-backs and two fences, a delete one of each, in every kind of node: as
//! in the paper's slot-only and bitmap-only nodes. In these, with fixed records, two of three
//! inserts take one of each. With blocks to allocate or to free the state is swapped by a PMwCAS
//! that owns them.
//!
//! There is no recovery: PMwCAS settles what was under way, and everything else is found as it is.
//! Slots that are of another state are written anew on use.
//!
//! * `layout.rs`: nodes drawn byte by byte; `state.rs`, `slots.rs`, `order.rs`: the words that
//!   change.
//! * `node.rs`: nodes as they are read; `claim.rs`: who may write a cell; `put.rs`: which;
//!   `commit.rs`: the one atomic write; `durable.rs`: when it is durable; `build.rs`: nodes and
//!   blocks as they are made.
//! * `search.rs`: how a key is found in a node. `descent.rs`: the undisturbed descent; `tree.rs`:
//!   any. `write.rs`: inserts, updates, deletes; `smo/`: splits, merges, copies. `cursor.rs`:
//!   scans. `audit.rs`: what `check` and `stat` see; `teardown.rs`: the end of a tree. `index.rs`:
//!   the tree as a map of a pool; `options.rs`: what can be set of it.
//!
//! What the paper compares its trees with is in `pando-papers`.

mod audit;
mod build;
mod claim;
mod commit;
mod cursor;
mod descent;
mod durable;
mod index;
mod layout;
mod node;
mod options;
mod order;
mod put;
mod search;
mod slots;
mod smo;
mod state;
mod teardown;
mod tree;
mod write;

pub use index::WbTrees;
pub use layout::{FIXED_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES, NodeKind};
pub use options::{Options, RecordBytes};
pub use tree::WbTree;
