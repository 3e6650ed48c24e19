//! A tombstone that meets the release of its snapshot.

use pando_index::RangeIndex;
use pando_index::conformance::Reference;
use pando_log::LogOptions;
use pando_pmem::{CreateOptions, Pool, Process, layout};

use super::*;
use crate::snapshots::SnapshotOptions;

/// The index has no part in this, so none is compiled for it.
#[derive(Default)]
struct OneMap(Reference);

impl Maps for OneMap {
    type Lent<'maps> = &'maps dyn RangeIndex;

    fn map(&self, _: u64) -> Option<&dyn RangeIndex> {
        Some(&self.0)
    }
}

/// The snapshot leaves the list after a thread has found that it needs the tombstone, and before
/// the thread hands the tombstone over: no access of the pool lies between the two. So the snapshot
/// here leaves the list and still says that it needs the tombstone.
#[test]
fn a_tombstone_that_meets_the_release_of_its_snapshot_is_noted_again() {
    let pool = Pool::<Process>::anonymous(&CreateOptions::default()).expect("memory");
    let log = Log::without_files(pool, layout::LOG_OFF, LogOptions::default()).expect("a log");
    let component = TransactionComponent::open(log, OneMap::default()).expect("opens");
    let guard = component.pin().expect("a slot");
    let entry = component.snapshots.register::<Process>(SnapshotOptions::default(), true);
    let listed = component.snapshots.all(component.log(), &guard);
    let is_held = |key: &[u8]| {
        let stamp = Stamp::new(64, 64).removed_if(true);
        let tombstone = Tombstone { map: 0, key: key.to_vec(), stamp };
        component.is_held(&guard, &listed, &tombstone)
    };
    assert!(is_held(b"early"));
    assert_eq!((entry.tombstones(), component.tombstones.is_empty()), (1, true));
    component.snapshots.take_out(&entry);
    assert!(is_held(b"late"));
    assert_eq!((entry.tombstones(), component.tombstones.is_empty()), (0, false));
}

/// A snapshot may hold the tombstone. If each scan noted it again, each commit would hand it to the
/// snapshot again.
#[test]
fn a_scan_notes_what_it_passes_only_without_a_snapshot() {
    let pool = Pool::<Process>::anonymous(&CreateOptions::default()).expect("memory");
    let log = Log::without_files(pool, layout::LOG_OFF, LogOptions::default()).expect("a log");
    let component = TransactionComponent::open(log, OneMap::default()).expect("opens");
    let value = Stamp::new(64, 64).removed_if(true).encode();
    let pass = || component.version_of_copy(0, (b"key", &value), 64).expect("reads");
    let entry = component.snapshots.register::<Process>(SnapshotOptions::default(), false);
    assert!(pass().value.is_none());
    assert!(component.tombstones.is_empty());
    component.snapshots.take_out(&entry);
    assert!(pass().value.is_none());
    assert!(!component.tombstones.is_empty());
}
