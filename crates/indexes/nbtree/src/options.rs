//! What a user may set of a tree.

use pando_tree::maps::{Allowed, Setting, Settings};

use crate::layout::MAX_SLOTS;
use crate::volatile::inner::MAX_CHILDREN;

/// The shape of a tree. Kept with the tree, so that it opens as it was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Records that a leaf has room for.
    pub leaf_slots: u32,
    /// Children that an inner node has at most.
    pub inner_children: u32,
}

/// What a user may set of an NBTree, in the order of the fields of [`Options`].
pub(crate) static SETTINGS: [Setting; 2] = [
    Setting {
        name: "leaf_slots",
        what: "records that a leaf has room for",
        default: MAX_SLOTS as u32,
        allowed: Allowed::Number(3..=MAX_SLOTS as u32),
    },
    Setting {
        name: "inner_children",
        what: "children that an inner node, in process memory, has at most",
        default: MAX_CHILDREN as u32,
        allowed: Allowed::Number(4..=MAX_CHILDREN as u32),
    },
];

impl From<&Settings> for Options {
    fn from(settings: &Settings) -> Self {
        Self {
            leaf_slots: settings.value("leaf_slots"),
            inner_children: settings.value("inner_children"),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::from(&Settings::new(&SETTINGS))
    }
}
