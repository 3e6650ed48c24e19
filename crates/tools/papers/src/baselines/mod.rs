//! What the wB+-Trees are compared with (paper, sections 3.1, 3.2 and 5.1): B+-trees whose leaves
//! are sorted, unsorted, or unsorted with a bitmap, under undo-redo logging or shadowing, and the
//! volatile prefetching B+-tree.
//!
//! They are for the figures and for table 3, not for users: one writer, keys of eight bytes or in
//! blocks of their own, values of eight bytes, no merges. They write, write back and fence as the
//! paper's procedures do, in that order. But nothing is read after a crash: a log is written and
//! never replayed. Its ring begins again without a checkpoint, which the paper does not count
//! either. Nodes come from spans that are given back with the tree.
//!
//! ```text
//! node    byte 0    8         16 ..
//!         number    next      entries: key, value         a leaf; a bitmap in place of the number
//!         number    child     entries: key, child         an inner node; the first child has no key
//! ```
//!
//! * `scheme.rs`: the seven, by name. `log.rs`: the procedures of figures 5 and 6. `tree.rs`:
//!   search, and writes in place under a log. `shadow.rs`: writes by copies (figure 7).

mod log;
mod scheme;
mod shadow;
mod tree;

pub use scheme::{BASELINES, Leaves, Scheme};
pub use tree::Baseline;
