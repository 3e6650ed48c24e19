//! The wB+-Trees of Chen and Jin: B+-trees for persistent memory whose nodes are changed by one
//! atomic write.
//!
//! They use `pando-tree`, `pando-pmwcas` and `pando-pmem`, and implement the contract of
//! `pando-index`. Their whole state is in blocks of the pool, reachable from one entry word.
//!
//! # The paper's trees, and the differences
//!
//! A node has cells in any order, and a word, its *state*, that says which are live. An insert
//! writes a free cell and then the state; a delete writes only the state. The order of the cells is
//! in a slot array: in the state itself (slot-only), beside a bitmap in the state (slot+bitmap), or
//! nowhere (bitmap-only). The three trees of the paper's table 2 are the three values of the
//! option `leaf`; fixed and variable keys (4.6) are those of `records`.
//!
//! The paper's trees have one writer. These have any number, and no thread waits:
//!
//! * **The state is swapped, with a version.** A writer decides by one state and swaps that state.
//!   If another thread has changed it, the writer looks again. A reader reads the state before and
//!   after it reads cells.
//! * **A free cell is claimed before it is written** (`claim.rs`), by a bit in a word that is not
//!   durable.
//! * **The fence is a cell.** One cell has the highest key of a node and the next node, and the
//!   state says which cell. So a split is a swap of one state too, and needs no redo log: the new
//!   state moves half of the records, the fence and the sibling pointer at once. A second swap
//!   gives the new node a cell in the parent. Before that it is found through the fence, as in a
//!   B-link tree. Merges change three states by one PMwCAS (`smo/`).
//! * **Leaves also have a pointer to the left**, for scans backwards, which is exact while a leaf
//!   lives: a change of its left neighbour changes the pointer by the same PMwCAS (`smo/`). A write
//!   of a record does not touch it.
//! * **Slots say for which state they are** (`slots.rs`). The paper first clears a valid bit,
//!   durably, which costs an insert a write-back and a fence, and a delete two of each.
//! * **Keys with blocks have a slice**, their first eight bytes, in the cell. The paper's cells
//!   have only a pointer to the key, and each comparison follows it.
//! * **A store, not a swap, records that a state is durable** (`durable.rs`), and cells in the
//!   state's own line are written back with it (`put.rs`): a swap waits for the write-backs
//!   before it, and a store does not.
//! * **The descent needs no pin** (`descent.rs`), for the same reason.
//!
//! An insert takes two write-backs and two fences, a delete one of each, in every kind of node: as
//! in the paper's slot-only and bitmap-only nodes. In these, with fixed records, two of three
//! inserts take one of each. If blocks are allocated or freed, the state is swapped by a PMwCAS
//! that owns them.
//!
//! There is no recovery: PMwCAS settles the operations in progress, and everything else needs no
//! repair. Slots of another state are rewritten on use.
//!
//! * `layout.rs`: the bytes of nodes; `state.rs`, `slots.rs`, `order.rs`: the words that change.
//! * `node.rs`: reads of nodes; `claim.rs`: who may write a cell; `put.rs`: which cell;
//!   `commit.rs`: the one atomic write; `durable.rs`: when it is durable; `build.rs`: new nodes and
//!   blocks.
//! * `search.rs`: the search for a key in a node. `descent.rs`: the fast descent; `tree.rs`: the
//!   complete one. `write.rs`: inserts, updates, deletes; `smo/`: splits, merges, copies.
//!   `cursor.rs`: scans. `audit.rs`: the walk for `check` and `stat`; `teardown.rs`: the blocks of
//!   a dropped tree. `index.rs`: the tree as a map of a pool; `options.rs`: its options.
//!
//! The trees that the paper compares with are in `pando-papers`.

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
