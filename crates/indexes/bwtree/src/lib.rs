//! The Bw-tree of Levandoski, Lomet and Sengupta (sections III and IV of their paper). Its
//! structure changes by PMwCAS (section 6.2 of the PMwCAS paper), so the same code serves volatile
//! and persistent memory, and the index has no recovery of its own.
//!
//! It uses `pando-tree`, `pando-pmwcas` and `pando-pmem`, and implements the contract of
//! `pando-index`. Its whole state is in blocks of the pool, reachable from one entry word.
//!
//! A *PID* is the number of a page: the offset of its word in the *mapping table*, which names the
//! newest record of the page. Changes are *deltas*, prepended to the page's *base*; the base and
//! its deltas are a *chain*. The *side link* of a page names its right neighbour, whose range
//! begins at the page's *high key*.
//!
//! * [`layout`](mod@layout): the bytes of pages, deltas and the mapping table. `table.rs`: the
//!   mapping table, and the life of a PID.
//! * `page.rs`: reads of base pages and deltas; `gather.rs`: the content of chains; `build.rs`:
//!   construction of pages; `prepend.rs`: deltas. `context.rs`: keys, values and damage.
//! * `search.rs`: the search for a key. `write.rs`: writes of records, consolidation. `smo.rs`:
//!   decides on splits and prepares them; `merge.rs`: decides on merges, with the protocol.
//! * `style.rs`: the interface of changes of pages; `multi_word.rs`: by PMwCAS, with the protocol;
//!   with the feature `papers`: `single_word.rs`: by CAS; `single_merge.rs`: merges by CAS;
//!   `single_swap.rs`: their steps.
//! * `races.rs`: how often changes lose a race.
//! * `stored.rs`: trees whose pages are in a store, and may be absent from the pool: states and
//!   evictions; `load.rs`: loads; `captures.rs`: how pages are written, with the protocol;
//!   `marshal.rs`: whole or as deltas; `residence.rs`: what differs for such trees; `pages.rs`:
//!   numbers of pages, and where they are; `image.rs`, `image_delta.rs`: the bytes of a page in the
//!   store; `image_check.rs`: whether such pages are one tree; `visits.rs`: how often leaves are
//!   used.
//! * `cursor.rs`: scans in both directions. `audit.rs`: the walk for `check` and `stat`.
//!   `teardown.rs`: the blocks of a dropped tree. `index.rs`: the tree as a map of a pool;
//!   `options.rs`: its options.
//!
//! Keys have at most 32 KiB, values 1 GiB. Where the paper is silent, or where this code differs
//! from it, the top of the file says so. The main differences: a page has its low key, and its high
//! key is the low key of its right neighbour; deltas stand beside their base; splits and merges are
//! one step.

mod audit;
mod blind;
mod build;
mod captures;
mod changes;
mod context;
mod cursor;
mod gather;
mod image;
mod image_check;
mod image_delta;
mod index;
mod layout;
mod load;
mod marshal;
mod merge;
mod multi_word;
mod options;
mod page;
mod pages;
mod prepend;
mod races;
mod residence;
mod search;
#[cfg(feature = "papers")]
mod single_merge;
#[cfg(feature = "papers")]
mod single_swap;
#[cfg(feature = "papers")]
mod single_word;
mod smo;
mod stored;
mod style;
mod table;
mod teardown;
mod tree;
mod visits;
mod write;

pub use captures::Captured;
pub use image_check::check_images;
pub use layout::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use marshal::{PageWrite, Picture, Pictured};
pub use options::Options;
pub use pages::{AccessOf, PageError, PageSource, SourceError, StoredPage, is_too_late};
pub use races::{Race, Races};
#[cfg(feature = "papers")]
pub use single_swap::{CasBwTrees, SingleWord};
pub use stored::{PagePlace, PageSeen, PageState, Stored, StoredBwTrees};
pub use tree::{BwTree, BwTrees, MultiWord};
