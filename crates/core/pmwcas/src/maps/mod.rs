//! Named maps: what an index is to be so that a pool can hold it under a name.
//!
//! * `kind.rs`: [`IndexKind`], what an index says of itself: its number and name, how it begins, is
//!   opened, looked at and dropped. All that is done with maps in general is done through it.
//! * `settings.rs`: what a user may set of a map, as a table that drives checking, storing and
//!   help.
//! * `audit.rs`: what an index tells to `check` and `stat`.
//! * `catalog.rs`: changes of the pool's catalog, each one PMwCAS.
//! * `teardown.rs`: dropping a map, by one step, and freeing its blocks afterwards.

mod audit;
mod catalog;
mod kind;
mod settings;
mod teardown;

pub use audit::{Audit, Problem, ProblemClass, Stat};
pub use catalog::MapError;
pub use kind::IndexKind;
pub use settings::{Allowed, BadSetting, MAX_SETTINGS, Setting, Settings};
pub use teardown::{Change, KnownKind, NextUnit, Unit};
