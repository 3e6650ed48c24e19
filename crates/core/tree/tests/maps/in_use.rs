//! Handles of maps that processes share. A second handle of the pool stands for a second process.

use std::path::Path;
use std::sync::Arc;

use pando_pmem::catalog::MapHeader;
use pando_pmem::testing::{CutShort, between, folder, stamped};
use pando_pmem::{CreateOptions, OpenPool, Pool};
use pando_tree::maps::Catalog;

/// A domain that counts the accesses of a thread.
type Tested = CutShort<false>;

fn shared(path: &Path) -> Arc<Catalog<Tested>> {
    let options = OpenPool { shared: true, ..OpenPool::default() };
    Arc::new(Catalog::open(Pool::open(path, &options).unwrap()).unwrap())
}

fn create_map(catalog: &Catalog<Tested>) {
    let header = MapHeader { name: "map".to_owned(), kind: 1, options: [0; 4], number: 0 };
    let guard = catalog.pool().pin().unwrap();
    let make_root = || Ok(stamped(&guard, 64, 0));
    catalog.find_or_create_map(&guard, &header, &make_root).unwrap();
}

/// Takes the map out of the catalog, if no process has a handle of it.
fn take_out(catalog: &Catalog<Tested>) {
    let entry = catalog.find_map(&catalog.pool().pin().unwrap(), "map").unwrap().unwrap();
    if catalog.pool().claim_map(entry.slot).unwrap() {
        catalog.unlist_map(&entry).unwrap();
        // Its blocks stay allocated: no index is known here that could free them.
        catalog.clear_slot(entry.slot);
        catalog.pool().unclaim_map(entry.slot);
    }
}

/// Another process takes the map out of the catalog between any two accesses of one that opens it.
#[test]
fn a_map_that_is_found_to_use_is_there() {
    let folder = folder();
    let path = folder.path().join("pool");
    let create = CreateOptions { max_bytes: 8 << 20, initial_bytes: 0 };
    drop(Pool::<Tested>::create(&path, &create).unwrap());
    let (opens, drops) = (shared(&path), shared(&path));
    let (mut found, mut gone) = (0, 0);
    for access in 0.. {
        create_map(&drops);
        let mut used = None;
        let other = Arc::clone(&drops);
        let has_run = between(
            access,
            move || take_out(&other),
            || {
                used = opens.find_to_use("map").unwrap();
            },
        );
        match used {
            Some((entry, _in_use)) => {
                let guard = opens.pool().pin().unwrap();
                assert_eq!(opens.read(&guard, entry.slot_off()), entry.word, "access {access}");
                assert!(!drops.pool().claim_map(entry.slot).unwrap());
                found += 1;
            }
            None => gone += 1,
        }
        if !has_run {
            break;
        }
    }
    assert!(found > 0 && gone > 0, "{found} times found, {gone} times gone");
}
