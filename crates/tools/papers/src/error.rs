//! Why an experiment gave no figures.

use pando_bench::systems::BuildError;

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
    /// Delays are asked of an experiment that has no durable system, or that counts.
    #[error("{name} has no system that a slower medium could be emulated for; {those} have")]
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
    /// A comparison of systems failed.
    #[error(transparent)]
    Compare(#[from] pando_bench::error::Error),
}
