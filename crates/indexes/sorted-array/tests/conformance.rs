//! The conformance suite, and the array through the public API.

use pando::{MapOptions, Pool, PoolOptions};
use pando_pmem::{Adr, Domain, Process};
use pando_sorted_array::SortedArrays;

type Fixture<D> = pando_tree::testing::Fixture<D, SortedArrays>;

/// Each write copies the whole array.
fn fixture<D: Domain>() -> Fixture<D> {
    Fixture::anonymous(()).scaled(0.1)
}

pando_index::conformance_suite! {
    process => fixture::<Process>;
    adr => fixture::<Adr>;
}

/// An array of several batches, rewritten under scans.
#[test]
fn an_array_rewritten_under_scans() {
    pando_tree::testing::rewritten_under_scans::<SortedArrays>(());
}

#[test]
fn the_library_opens_checks_and_drops_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let pool = Pool::create(&path, &PoolOptions::new()).unwrap();
    let map = pool.map_with("small", &MapOptions::new().index("sorted-array")).unwrap();
    map.insert(b"ash", b"1").unwrap();
    map.insert(b"oak", b"2").unwrap();
    drop(map);
    pool.close().unwrap();

    let pool = Pool::open(&path, &PoolOptions::new()).unwrap();
    assert_eq!(pool.map("small").unwrap().get(b"oak").unwrap().as_deref(), Some(&b"2"[..]));
    let report = pool.check().unwrap();
    assert!(report.is_consistent(), "{report:?}");
    let stat = pool.stat().unwrap();
    let records = stat.maps[0].figures.as_ref().map(|figures| figures.records);
    assert_eq!((stat.maps[0].index.as_str(), records), ("sorted-array", Some(2)));
    pool.drop_map("small").unwrap();
    let report = pool.check().unwrap();
    assert!(report.is_consistent() && report.used_blocks == 0, "{report:?}");
}
