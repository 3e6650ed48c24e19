//! Named maps: what an index is to be so that a pool can hold it under a name.
//!
//! * `kind.rs`: [`IndexKind`] and [`Tree`], what an index says of itself: its number and name, how
//!   it begins, is opened, looked at and dropped. All that is done with maps goes through them.
//! * `options.rs`: what a user may set of a map, as a table that drives checking, storing and
//!   help.
//! * `audit.rs`: the report of an index to `check` and `stat`, `problem.rs`: its violated
//!   invariants; `unit.rs`: the next part of a dropped map to be freed.
//! * `catalog.rs`: [`Catalog`], the maps of a pool; each change of the catalog is one PMwCAS.
//! * `shared_state.rs`: what the handles of one index share in process memory.
//! * `teardown.rs`: dropping a map, by one step, and freeing its blocks afterwards.

mod audit;
mod catalog;
mod kind;
mod options;
mod problem;
mod shared_state;
mod teardown;
mod unit;

pub use audit::{Audit, Stat};
pub use catalog::{Catalog, MapError};
pub use kind::{IndexKind, Tree};
pub use options::{
    Allowed, BadOption, IndexOptions, MAX_OPTIONS, OptionSpec, OptionType, OptionValues,
};
pub use problem::{Broken, Problem, ProblemClass};
pub use unit::{Change, KnownKind, NextUnit, Unit};
