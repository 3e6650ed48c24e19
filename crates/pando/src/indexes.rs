//! The indexes that a map can have, and the options of each.

use pando_tree::maps::OptionSpec;
use serde::Serialize;

use crate::engine;

/// An index that a map can have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct IndexInfo {
    /// Its name, as [`MapOptions::index`](crate::MapOptions::index) takes it.
    pub name: &'static str,
    /// A description in one line.
    pub what: &'static str,
    /// Its options.
    pub options: Vec<OptionInfo>,
}

/// An option of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OptionInfo {
    /// Its name, as [`MapOptions::set`](crate::MapOptions::set) takes it.
    pub name: &'static str,
    /// Its effect, in one line.
    pub what: &'static str,
    /// Its default.
    pub default: String,
    /// The allowed values.
    pub allowed: String,
}

/// The indexes that a map can have; the first is the default.
///
/// ```
/// let indexes = pando::indexes();
/// assert_eq!(indexes[0].name, "bztree");
/// assert!(indexes[0].options.iter().any(|option| option.name == "leaf_bytes"));
/// ```
pub fn indexes() -> Vec<IndexInfo> {
    let option = |option: &OptionSpec| OptionInfo {
        name: option.name,
        what: option.what,
        default: option.text(option.default),
        allowed: option.allowed.to_string(),
    };
    let info = |(name, what, options): (_, _, &[OptionSpec])| IndexInfo {
        name,
        what,
        options: options.iter().filter(|spec| !spec.is_experimental).map(option).collect(),
    };
    engine::described_kinds().map(info).collect()
}
