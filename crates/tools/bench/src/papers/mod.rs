//! The experiments of the five papers, by name: `bztree:fig4`, `pmwcas:fig5`, and so on.
//!
//! Each gives the paper's figures beside ours, and says what differs in machine and method. The
//! paper's figures are those that its text states; where a plot shows more than the text says, the
//! plot is not read off, because a figure that is guessed to be one is worse than none.
//!
//! Sizes are small enough for a laptop unless they are asked to be larger; all that is compared is
//! interleaved and checked as everywhere in this crate.
//!
//! | file | what |
//! | --- | --- |
//! | [`catalogue`] | the one table of all experiments |
//! | [`experiment`] | what such an entry says, and how it is run |
//! | [`outcome`] | what a run gives: lines of paper and ours, as a table and as JSON lines |
//! | [`arrays`] | PMwCAS alone on arrays of words |
//! | [`sizes`] | how many words each PMwCAS of a tree operation has |
//! | [`pcm`] | the medium of the wB+-Tree paper's simulator |
//! | [`pmwcas`], [`bztree`], [`nbtree`], [`bwtree`], [`wbtree`] | the experiments of those papers that can be run today |

pub mod arrays;
pub mod bwtree;
pub mod bztree;
pub mod catalogue;
pub mod command;
pub mod experiment;
pub mod nbtree;
pub mod outcome;
pub mod pcm;
pub mod pmwcas;
pub mod sizes;
pub mod wbtree;

pub use catalogue::{EXPERIMENTS, find};
pub use experiment::{Built, Experiment, Settings, run};
pub use outcome::Outcome;

use crate::sides::BuildError;

/// Why an experiment gave no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No experiment has this name.
    #[error("there is no experiment {name:?}; `paper` without a name lists all {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// How many there are.
        known: usize,
    },
    /// Delays are asked of an experiment that has no durable side, or that counts.
    #[error("{name} has no side that a slower medium could be emulated for; {those} have")]
    NoMedium {
        /// The experiment.
        name: &'static str,
        /// Those that have one.
        those: String,
    },
    /// An array has fewer words than one operation changes.
    #[error("an array of {found} words; operations of this run need at least {least}")]
    SmallArray {
        /// What was asked for.
        found: u64,
        /// The least that will do.
        least: u64,
    },
    /// The words of an array do not add up.
    #[error(
        "the {words} words of an array add up to {found}; {due} are due: an operation was lost or done twice"
    )]
    WrongSum {
        /// Words of the array.
        words: u64,
        /// What they add up to.
        found: u64,
        /// What the successful operations added.
        due: u64,
    },
    /// Something was refused.
    #[error("{what}: {source}")]
    Refused {
        /// What was.
        what: &'static str,
        /// The reason given.
        source: BuildError,
    },
    /// A thread panicked; its message is on standard error.
    #[error("a thread panicked")]
    Panicked,
    /// A comparison of sides failed.
    #[error(transparent)]
    Compare(#[from] crate::error::Error),
}
