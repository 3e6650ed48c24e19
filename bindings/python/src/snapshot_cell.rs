//! A snapshot that keeps its pool.

use pando::{Pool, Snapshot};
use self_cell::self_cell;

self_cell!(
    pub struct SnapshotCell {
        owner: Pool,
        #[covariant]
        dependent: Snapshot,
    }
);
