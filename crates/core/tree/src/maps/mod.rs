//! Named maps: the traits that let a pool hold an index under a name.
//!
//! * `kind.rs`: [`IndexKind`] and [`Tree`], the description of an index: its number and name, and
//!   how it is created, opened, walked and dropped. All operations on maps use these traits.
//! * `options.rs`: the options of a map, as a table for checks, storage and help.
//! * `audit.rs`: the report of an index to `check` and `stat`, `problem.rs`: its violated
//!   invariants; `unit.rs`: the next part of a dropped map to be freed.
//! * [`slots`]: the slots of the catalog and the headers of maps, on the medium.
//! * `catalog.rs`: [`Catalog`], the maps of a pool; each change of the catalog is one PMwCAS.
//! * `in_use.rs`: handles of maps that processes share.
//! * `shared_state.rs`: process memory that the handles of one index share.
//! * `teardown.rs`: the drop of a map, in one step, and the freeing of its blocks afterwards.

mod audit;
mod catalog;
mod in_use;
mod kind;
mod options;
mod problem;
mod shared_state;
pub mod slots;
mod teardown;
mod unit;

pub use audit::{Audit, Stat};
pub use catalog::{Catalog, MapError};
pub use in_use::{MapClaim, MapInUse};
pub use kind::{IndexKind, Tree};
pub use options::{
    Allowed, BadOption, IndexOptions, MAX_OPTIONS, OptionSpec, OptionType, OptionValues,
};
pub use problem::{Broken, Problem, ProblemClass};
pub use unit::{Change, KnownKind, NextUnit, Unit};
