//! The catalog of named maps under crashes and threads.

use pando_pmem::catalog::MapHeader;
use pando_pmem::testing::{CutShort, kill_after};
use pando_pmem::{Domain, Process};
use pando_pmwcas::Pmwcas;
use pando_pmwcas::maps::MapError;

use super::common::{active, crash, create, folder, in_memory, open, room, stamped};

const SEAL: u64 = 16;

fn header(name: &str) -> MapHeader {
    MapHeader { name: name.into(), kind: 1, options: [1, 2, 3, 4] }
}

fn find_or_create<D: Domain>(pmwcas: &Pmwcas<D>, name: &str) -> u64 {
    let guard = pmwcas.pool().pin().unwrap();
    let make_root = || Ok(stamped(&guard, 64, 0));
    pmwcas.find_or_create_map(&guard, &header(name), &make_root).unwrap().header_off
}

fn drop_it<D: Domain>(pmwcas: &Pmwcas<D>, name: &str) -> Result<(), MapError> {
    let guard = pmwcas.pool().pin().unwrap();
    let entry = pmwcas.find_map(&guard, name).unwrap().unwrap();
    let root = pmwcas.read(&guard, entry.root_off());
    pmwcas.drop_map(&guard, &entry, root, Some((root + SEAL, 0, 1)))
}

/// Each map has its header and its root, and nothing else is allocated.
fn check<D: Domain>(pmwcas: &Pmwcas<D>, most: usize) -> Vec<String> {
    let guard = pmwcas.pool().pin().unwrap();
    let maps = pmwcas.maps(&guard);
    let mut blocks = Vec::new();
    for map in &maps {
        blocks.extend([map.header_off, pmwcas.read(&guard, map.root_off())]);
    }
    blocks.sort_unstable();
    drop(guard);
    assert_eq!(active(pmwcas.pool()), blocks);
    assert_eq!(room(pmwcas.pool(), 65_536), most);
    maps.into_iter().map(|map| map.header.unwrap().name).collect()
}

fn crash_everywhere(before: &[&str], work: fn(&Pmwcas<CutShort>), after: &[&str]) {
    let folder = folder();
    for writes in 0.. {
        let path = folder.path().join("pool");
        let pmwcas = create::<CutShort>(&path, &[]);
        // Slabs of both sizes are there, so the room for others does not depend on the outcome.
        find_or_create(&pmwcas, "kept");
        for name in before {
            find_or_create(&pmwcas, name);
        }
        let most = room(pmwcas.pool(), 65_536);
        let finished = kill_after(writes, || work(&pmwcas)).is_some();
        crash(pmwcas);
        let pmwcas = open::<CutShort>(&path, &[]);
        let found = check(&pmwcas, most);
        let found: Vec<&str> =
            found.iter().map(String::as_str).filter(|&name| name != "kept").collect();
        assert!(found == after || (!finished && found == before), "killed at {writes}: {found:?}");
        drop(pmwcas);
        std::fs::remove_file(&path).unwrap();
        if finished {
            return;
        }
    }
}

#[test]
fn a_crash_at_every_write_of_creating_a_map() {
    let create_one = |pmwcas: &Pmwcas<CutShort>| {
        find_or_create(pmwcas, "new");
    };
    crash_everywhere(&[], create_one, &["new"]);
}

#[test]
fn a_crash_at_every_write_of_dropping_a_map() {
    crash_everywhere(&["old"], |pmwcas| drop_it(pmwcas, "old").unwrap(), &[]);
}

#[test]
fn threads_that_give_one_name_get_one_map() {
    for _ in 0..50 {
        let pmwcas = in_memory::<Process>(1, &[]);
        let found: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| find_or_create(&pmwcas, "one"))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(found.iter().all(|&off| off == found[0]), "{found:x?}");
        assert_eq!(active(pmwcas.pool()).len(), 2, "the losers' blocks leaked");
    }
}

#[test]
fn names_out_of_range_and_a_full_catalog_are_refused() {
    let pmwcas = in_memory::<Process>(4, &[]);
    let guard = pmwcas.pool().pin().unwrap();
    let make_root = || Ok(stamped(&guard, 64, 0));
    for name in [String::new(), "x".repeat(256)] {
        let refused = pmwcas.find_or_create_map(&guard, &header(&name), &make_root).unwrap_err();
        assert!(matches!(refused, MapError::BadName { .. }), "{refused}");
    }
    find_or_create(&pmwcas, &"x".repeat(255));
    for index in 1..1024 {
        find_or_create(&pmwcas, &format!("map {index}"));
    }
    let refused = pmwcas.find_or_create_map(&guard, &header("more"), &make_root).unwrap_err();
    assert!(matches!(refused, MapError::CatalogFull), "{refused}");
    assert_eq!(active(pmwcas.pool()).len(), 2048);
    drop_it(&pmwcas, "map 500").unwrap();
    assert!(matches!(drop_it(&pmwcas, "map 501"), Ok(())));
    find_or_create(&pmwcas, "more");
    assert_eq!(active(pmwcas.pool()).len(), 2046);
}
