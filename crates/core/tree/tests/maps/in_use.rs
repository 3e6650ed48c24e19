//! Handles of maps that processes share. A second handle of the pool stands for a second process.

use std::path::Path;
use std::sync::Arc;

use pando_pmem::testing::{CutShort, between, folder, stamped};
use pando_pmem::{CreateOptions, OpenPool, Pool};
use pando_tree::context::Context;
use pando_tree::maps::slots::MapHeader;
use pando_tree::maps::{Catalog, KnownKind, MapError, OptionValues, Unit};

/// A domain that counts the accesses of a thread.
type Tested = CutShort<false>;

fn shared(path: &Path) -> Arc<Catalog<Tested>> {
    let options = OpenPool { shared: true, ..OpenPool::default() };
    let catalog = Catalog::open(Pool::open(path, &options).unwrap()).unwrap();
    Arc::new(catalog.with_kinds(vec![KnownKind { number: 1, options: &[], next_unit }]))
}

fn next_unit(context: Context<'_, Tested>, root_off: u64, _: &OptionValues) -> Unit {
    let root = context.read(root_off);
    Unit::of_block(root_off, root, 0, root)
}

fn create_map(catalog: &Catalog<Tested>, name: &str) {
    let header = MapHeader { name: name.to_owned(), kind: 1, options: [0; 4], number: 0 };
    let guard = catalog.pool().pin().unwrap();
    let make_root = || Ok(stamped(&guard, 64, 0));
    catalog.find_or_create_map(&guard, &header, &make_root).unwrap();
}

fn two_processes(folder: &Path) -> (Arc<Catalog<Tested>>, Arc<Catalog<Tested>>) {
    let path = folder.join("pool");
    let create = CreateOptions { max_bytes: 8 << 20, initial_bytes: 0 };
    drop(Pool::<Tested>::create(&path, &create).unwrap());
    (shared(&path), shared(&path))
}

/// Takes the map out of the catalog, if no process has a handle of it.
fn take_out(catalog: &Catalog<Tested>) {
    let entry = catalog.find_map(&catalog.pool().pin().unwrap(), "map").unwrap().unwrap();
    if let Ok(_claim) = catalog.claim(&entry) {
        catalog.unlist_map(&entry).unwrap();
        catalog.free_dropped(&|| false).unwrap();
    }
}

/// Another process takes the map out of the catalog between any two accesses of one that opens it.
#[test]
fn a_map_that_is_found_to_use_is_there() {
    let folder = folder();
    let (opens, drops) = two_processes(folder.path());
    let (mut found, mut gone) = (0, 0);
    for access in 0.. {
        create_map(&drops, "map");
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

/// The slot and the header's block of a map that was found are another map's when it is claimed.
#[test]
fn a_map_in_the_place_of_the_one_that_was_found_is_not_claimed() {
    let folder = folder();
    let (claims, drops) = two_processes(folder.path());
    create_map(&drops, "map");
    let find = |name| claims.find_map(&claims.pool().pin().unwrap(), name).unwrap();
    let entry = find("map").unwrap();
    for _ in 0..100 {
        take_out(&drops);
        (0..5).for_each(|_| drops.pool().reclaim().unwrap());
        create_map(&drops, "other");
        let other = find("other").unwrap();
        if other.word == entry.word {
            let claimed = claims.claim(&entry).map(drop);
            assert!(matches!(claimed, Err(MapError::Dropped { .. })), "{claimed:?}");
            drop(claims.claim(&other).unwrap());
            return;
        }
        drops.rename_map(&drops.pool().pin().unwrap(), &other, "map").unwrap();
    }
    panic!("no other map got the same place");
}
