//! One suite that every index passes, in every persistence domain.
//!
//! An index crate says how to make a fresh, empty index, and gets a named `#[test]` for each case:
//!
//! ```
//! use pando_index::RangeIndex;
//! use pando_index::conformance::{Reference, Subject};
//!
//! struct Fresh(Reference);
//!
//! impl Subject for Fresh {
//!     fn index(&self) -> &dyn RangeIndex {
//!         &self.0
//!     }
//!
//!     // And `check`, if the index has invariants, and blocks that may leak.
//! }
//!
//! mod reference {
//!     pando_index::conformance_suite!(|| super::Fresh(super::Reference::default()));
//! }
//! ```
//!
//! `crates/indexes/bztree/tests/tree/conformance.rs` does so for each domain, with pages of several
//! sizes.
//!
//! Make the pages small: the suite needs splits and merges, which are rare in pages of hundreds of
//! records. A pool that can grow to 512 MiB is large enough for every case.
//!
//! * All random numbers come from one seed, which each case prints; `PANDO_SEED=<seed>` replays it.
//!   (The scheduler still decides how the threads of a race meet.)
//! * `PANDO_CONFORMANCE_SCALE=<factor>` multiplies the work, 1 by default; 0.1 and 20 are both
//!   useful.
//! * [`Subject::check`] runs at the end of every case, when no thread uses the index any more.
//!
//! The suite itself is tested: on [`Reference`], which must pass, and on copies of it with one
//! mutant each, which must fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

use random::Random;
use trial::Trial;

mod batches;
pub mod between;
mod bytes;
mod churn;
mod compare;
mod counters;
mod cursors;
mod edges;
mod generate;
pub mod history;
mod linearizability;
mod model;
mod moving_ranges;
mod race;
mod races;
mod random;
mod ranges;
mod reference;
mod refusals;
pub mod rewritten;
mod stamped;
mod trial;

pub use reference::Reference;
pub use trial::{Factory, Subject};

/// One named case of the suite.
pub struct Case {
    /// The name of the test that [`conformance_suite`](crate::conformance_suite) makes of it.
    pub name: &'static str,
    run: fn(&mut Trial<'_>),
}

/// Every case, the simplest first.
pub static CASES: &[Case] = crate::conformance_suite!(@list table ());

/// Runs the case of that name; panics, like a test, if the index fails it.
pub fn run_case(name: &str, factory: &dyn Factory) {
    run(case_of_name(name), factory, true);
}

/// Whether the index fails the case of that name. For mutants: it does not search for a smaller
/// sequence of operations that fails too.
pub fn notices(name: &str, factory: &dyn Factory) -> bool {
    let case = case_of_name(name);
    catch_unwind(AssertUnwindSafe(|| run(case, factory, false))).is_err()
}

fn case_of_name(name: &str) -> &'static Case {
    let case = CASES.iter().find(|case| case.name == name);
    case.unwrap_or_else(|| panic!("the suite has no case {name:?}"))
}

fn run(case: &Case, factory: &dyn Factory, shrinks: bool) {
    let seed = random::base_seed();
    // The test harness captures this, and shows it with a failure.
    eprintln!("{}: replay with PANDO_SEED={seed}", case.name);
    let scale = random::scale() * factory.create().scale();
    (case.run)(&mut Trial { factory, random: Random::new(seed), shrinks, scale });
}

/// Makes a `#[test]` for each case of the suite; see [`conformance`](crate::conformance).
///
/// The argument is an expression that is a [`Factory`](crate::conformance::Factory): a closure
/// or the path of a function that returns a fresh [`Subject`](crate::conformance::Subject).
/// Each use needs a module of its own; a list of `module => factory;` makes them.
#[macro_export]
macro_rules! conformance_suite {
    (@list $form:ident ($($argument:tt)*)) => {
        $crate::conformance_suite! {
            @$form ($($argument)*)
            empty_key: edges::empty_key,
            empty_value: edges::empty_value,
            bytewise_order: edges::bytewise_order,
            longest_key: edges::longest_key,
            key_too_long: edges::key_too_long,
            value_too_long: edges::value_too_long,
            value_of_20_mebibytes: edges::value_of_20_mebibytes,
            one_giant_record: edges::one_giant_record,
            long_shared_prefix: edges::long_shared_prefix,
            refusals_change_nothing: refusals::refusals_change_nothing,
            model_few_keys: model::few_keys,
            model_adversarial_bytes: model::adversarial_bytes,
            model_integers: model::integers,
            model_long_prefixes: model::long_prefixes,
            model_mixed_keys: model::mixed_keys,
            one_key_inserted_and_removed: churn::one_key_inserted_and_removed,
            one_key_updated: churn::one_key_updated,
            filled_and_emptied: churn::filled_and_emptied,
            scans_over_an_emptied_index: churn::scans_over_an_emptied_index,
            every_pair_of_bounds: ranges::every_pair_of_bounds,
            long_bounds: ranges::long_bounds,
            cursors_across_changes: cursors::cursors_across_changes,
            many_open_cursors: cursors::many_open_cursors,
            batches_like_single_upserts: batches::like_single_upserts,
            batches_end_at_an_error: batches::end_at_an_error,
            batches_beside_writers: batches::beside_writers,
            race_disjoint_inserts: races::disjoint_inserts,
            race_same_inserts: races::same_inserts,
            race_same_removes: races::same_removes,
            race_insert_and_remove: races::insert_and_remove,
            race_private_models: races::private_models,
            race_counters: counters::counters_of_8_bytes,
            race_counters_of_all_sizes: counters::counters_of_all_sizes,
            race_torn_values: counters::torn_values,
            ranges_under_writers: moving_ranges::ranges_under_writers,
            linearizable_histories: linearizability::linearizable_histories,
        }
    };
    (@table () $($name:ident: $function:path,)*) => {
        &[$(Case { name: stringify!($name), run: $function },)*]
    };
    (@tests ($factory:expr) $($name:ident: $function:path,)*) => {
        $(
            #[test]
            fn $name() {
                $crate::conformance::run_case(stringify!($name), &$factory);
            }
        )*
    };
    ($($module:ident => $factory:expr;)+) => {
        $(
            mod $module {
                use super::*;
                $crate::conformance_suite!($factory);
            }
        )+
    };
    ($factory:expr) => {
        $crate::conformance_suite! { @list tests ($factory) }
    };
}

/// Makes a `#[test]` for each line `fn name => body;`: a table of tests that differ in one
/// expression.
#[macro_export]
macro_rules! tests {
    ($($(#[$note:meta])* fn $name:ident => $body:expr;)+) => {
        $(
            $(#[$note])*
            #[test]
            fn $name() {
                $body
            }
        )+
    };
}
