//! Inner nodes of a B+-tree whose leaves any index may define, and their modifications, each by one
//! PMwCAS. They are those of the BzTree (Arulraj, Levandoski, Minhas and Larson, sections 4 and 5).
//!
//! It uses `pando-tree`, `pando-pmwcas` and `pando-pmem`. Its whole state is in blocks of the pool,
//! reachable from one entry word.
//!
//! * [`layout`](mod@layout): the bytes of inner nodes, and what leaves have in common with them.
//!   `slices.rs`: the bytes in which keys differ, side by side.
//! * `node.rs`: reads of nodes. `content.rs`: construction of inner nodes.
//! * `descent.rs`: the way from the root to a leaf. `numbers.rs`: the same for keys of eight bytes.
//!   `guess.rs`: where in a node it probably leads.
//! * `install.rs`: how new nodes are installed. `split.rs`, `merge.rs`: splits and merges.
//! * `audit.rs`: the walk for `check` and `stat`; `teardown.rs`: the blocks of a dropped tree.
//!
//! # Protocol
//!
//! An index builds the nodes that replace a leaf, and says which words *seal* the leaf: words that
//! have one value while nobody can change its records, and get another one in the PMwCAS that
//! replaces it. This crate adds the words of the nodes above.
//!
//! An inner node changes in two ways: a child is replaced, which raises the version in the node's
//! status; or the node itself is replaced, which freezes it. Both have its status as a word of the
//! PMwCAS. So a copy of an inner node is exact if the status at installation is the same as before
//! the copy was made. (In the paper, the status of an inner node has no version; there a child
//! replaced between copy and installation would be lost.) A frozen inner node is never reachable
//! from its parent, so no thread needs to help.
//!
//! | modification | words of the PMwCAS | blocks that it owns |
//! | --- | --- | --- |
//! | replace leaf N under P by one | seal of N, child of P: N to N', status of P: next version | N or N' |
//! | split leaf N under P, P under G | seal of N, status of P: frozen, child of G: P to P', status of G: next | P or P', N, N', O; or up to five nodes like O |
//! | merge leaves L, N under P | the same, and the seal of L | P or P', L, N, M |
//! | split inner P under G, G under H | status of P, of G: frozen, child of H: G to G', status of H: next | G or G', P, P', Q |
//! | merge inner P, Q under G | status of P, Q, G: frozen, child of H: G to G', status of H: next | G or G', P, Q, M |
//! | any of these at the root | the entry word instead of child and status | the same |
//!
//! The operation owns blocks by the policies of its entries, so neither a failure nor a crash leaks
//! one. If the root is left with one child, that child becomes the root in the same PMwCAS.

mod audit;
mod content;
mod descent;
mod guess;
mod install;
pub mod layout;
mod merge;
mod node;
mod numbers;
pub mod slices;
mod split;
mod teardown;

pub use audit::walk;
pub use content::{InnerContent, NewNode, write_slices};
pub use descent::{Fence, Fenced, Path, Step, Upper};
pub use install::{Anchor, Gone, Outcome, Parent, Progress};
pub use merge::MOST_RACES;
pub use node::{Inner, Leaves, Node, Probe, each_searched};
pub use split::{MOST_MORE, Parts, separator_between, separator_bytes};
pub use teardown::next_unit;
