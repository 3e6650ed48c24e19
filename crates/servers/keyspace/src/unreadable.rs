//! What the sweep cannot remove, because a damaged page of a record store has it.

use std::collections::HashSet;

use crate::layout::CollectionId;

/// What stays until the next start. The sweep goes on with the rest.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    pub(crate) expiries: HashSet<Vec<u8>>,
    pub(crate) collections: HashSet<CollectionId>,
    pub(crate) spaces: HashSet<u8>,
}
