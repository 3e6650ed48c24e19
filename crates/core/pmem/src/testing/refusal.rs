//! Resources that run out at a chosen request. A request that allocation makes is refused to one
//! thread, once or from then on, so that a test can fail the N-th request for every N.

use std::cell::Cell;

/// A resource that can be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// A block, from [`Guard::reserve`](crate::Guard::reserve), as in a full pool.
    Block,
    /// Room in the pool's file, one request for each part, as in a full file system.
    FileRoom,
    /// A hole in the pool's file, as in a file system without holes.
    Hole,
    /// A sync of the pool's file, as on a disk that fails.
    Sync,
}

/// Which requests of a thread are refused.
#[derive(Clone, Copy)]
struct Plan {
    resource: Resource,
    /// Requests that are granted before.
    granted: u64,
    /// Requests that are refused after these.
    refused: u64,
}

thread_local! {
    static PLAN: Cell<Option<Plan>> = const { Cell::new(None) };
}

/// Runs `work`, and grants this thread's first `granted` requests for `resource`, and refuses the
/// next `count`. Returns the result, and whether any request was refused.
pub fn refuse<R>(
    resource: Resource,
    granted: u64,
    count: u64,
    work: impl FnOnce() -> R,
) -> (R, bool) {
    PLAN.set(Some(Plan { resource, granted, refused: count }));
    let result = work();
    let left = PLAN.take().map_or(count, |plan| plan.refused);
    (result, left < count)
}

/// Whether requests of this thread may be refused: it runs within [`refuse`].
pub fn may_refuse() -> bool {
    PLAN.get().is_some()
}

/// Whether this request is refused.
pub(crate) fn is_refused(resource: Resource) -> bool {
    let Some(plan) = PLAN.get().filter(|plan| plan.resource == resource) else { return false };
    let now = plan.granted == 0 && plan.refused > 0;
    PLAN.set(Some(if now {
        Plan { refused: plan.refused - 1, ..plan }
    } else {
        Plan { granted: plan.granted.saturating_sub(1), ..plan }
    }));
    now
}
