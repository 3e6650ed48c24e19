//! PMwCAS alone: threads change random words of an array in a pool, several at once (PMwCAS paper,
//! section 7.3 and figure 5).
//!
//! An operation picks words at random, reads each, and adds one to all of them by one PMwCAS. It is
//! not repeated if another thread came first, so *operations a second* are those that succeeded and
//! the *success rate* is their share of the attempts. A small array is high contention.
//!
//! It is checked: at the end the words must add up to what the successful operations added.
//!
//! | file | what |
//! | --- | --- |
//! | [`mod@array`] | the array in its pool, one operation, the sum |
//! | [`mod@slice`] | threads on an array, timed, or counted in the counting domain |
//! | [`plan`] | rounds over domains: the interleaving, and the rows |
//! | [`report`] | the rows as a table and as JSON lines |

pub mod array;
pub mod plan;
pub mod report;
pub mod slice;

pub use plan::{Plan, Row, run};
