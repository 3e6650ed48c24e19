//! Mutants: deliberate bugs in the source, which show that the tests would find a mistake.
//!
//! [`mutant!`](crate::mutant) marks the place of one. Without the feature `mutants` it is the
//! constant `false`, and the compiler drops the bug. With the feature, the variable [`VARIABLE`]
//! names the mutant of a process; without the variable, a process has none.
//!
//! `crates/testing/crashlab/src/mutate/mutants.txt` lists all of them, and which test hunts each.

/// `true` in a process that has this mutant; the constant `false` without the feature `mutants`.
///
/// Each name occurs at one place in the sources.
#[cfg(feature = "mutants")]
#[doc(hidden)]
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        $crate::mutants::is_selected($name)
    };
}

/// `true` in a process that has this mutant; the constant `false` without the feature `mutants`.
///
/// Each name occurs at one place in the sources.
#[cfg(not(feature = "mutants"))]
#[doc(hidden)]
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        false
    };
}

/// The environment variable that names the mutant of a process. It is read once.
pub const VARIABLE: &str = "PANDO_MUTANT";

/// Whether this process has the mutant `name`.
#[cfg(feature = "mutants")]
pub fn is_selected(name: &str) -> bool {
    use std::sync::LazyLock;

    static SELECTED: LazyLock<Option<String>> = LazyLock::new(|| std::env::var(VARIABLE).ok());
    SELECTED.as_deref() == Some(name)
}
