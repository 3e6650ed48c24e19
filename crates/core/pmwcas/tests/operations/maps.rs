//! The catalog of named maps under crashes and threads.

use std::sync::atomic::Ordering;

use pando_pmem::catalog::MapHeader;
use pando_pmem::testing::{CutShort, give_to, kill_after};
use pando_pmem::{Domain, Guard, Process};
use pando_pmwcas::Pmwcas;
use pando_pmwcas::maps::{KnownKind, MapError, Settings, Unit};

use super::common::{active, crash, create, folder, in_memory, open, room, stamped};

/// Blocks that a map's first block names, more than one operation frees.
const OWNED: u64 = 20;
const ROOT_BYTES: u64 = OWNED * 8;

fn header(name: &str) -> MapHeader {
    MapHeader { name: name.into(), kind: 1, options: [0; 4] }
}

fn find_or_create<D: Domain>(pmwcas: &Pmwcas<D>, name: &str) -> u64 {
    let guard = pmwcas.pool().pin().unwrap();
    let make_root = || Ok(stamped(&guard, ROOT_BYTES, 0));
    let entry = pmwcas.find_or_create_map(&guard, &header(name), &make_root).unwrap();
    entry.header_off
}

/// Gives the map blocks of its own.
fn fill<D: Domain>(pmwcas: &Pmwcas<D>, name: &str) {
    let guard = pmwcas.pool().pin().unwrap();
    let entry = pmwcas.find_map(&guard, name).unwrap().unwrap();
    let root = pmwcas.read(&guard, entry.root_off());
    for index in 0..OWNED {
        give_to(&guard, root + index * 8, stamped(&guard, 64, 1));
    }
}

/// The blocks that the map's first block names.
fn owned<D: Domain>(pmwcas: &Pmwcas<D>, guard: &Guard<'_, D>, root: u64) -> Vec<u64> {
    let words = (0..OWNED).map(|index| pmwcas.read(guard, root + index * 8));
    words.filter(|&block| block != 0).collect()
}

fn next_unit<D: Domain>(
    pmwcas: &Pmwcas<D>,
    guard: &Guard<'_, D>,
    root_off: u64,
    _: &Settings,
) -> Unit {
    let root = pmwcas.read(guard, root_off);
    Unit { owned: owned(pmwcas, guard, root), ..Unit::of_block(root_off, root, 0, root) }
}

fn in_memory_with_kind() -> Pmwcas<Process> {
    let pmwcas = std::sync::Arc::into_inner(in_memory::<Process>(1)).unwrap();
    pmwcas.with_kinds(vec![kind()])
}

fn kind<D: Domain>() -> KnownKind<D> {
    KnownKind { number: 1, settings: &[], next_unit }
}

fn drop_it<D: Domain>(pmwcas: &Pmwcas<D>, name: &str) -> Result<(), MapError> {
    let guard = pmwcas.pool().pin().unwrap();
    let entry = pmwcas.find_map(&guard, name)?.unwrap();
    drop(guard);
    pmwcas.free_map(&kind(), &pmwcas.unlist_map(&entry)?, &|| false)
}

/// Each map has its header and its root, and nothing else is allocated.
fn check<D: Domain>(pmwcas: &Pmwcas<D>, most: usize) -> Vec<String> {
    let guard = pmwcas.pool().pin().unwrap();
    let maps = pmwcas.maps(&guard);
    let mut blocks = Vec::new();
    for map in &maps {
        let root = pmwcas.read(&guard, map.root_off());
        blocks.extend([map.header_off, root]);
        blocks.extend(owned(pmwcas, &guard, root));
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
        let pmwcas = create::<CutShort>(&path);
        // Slabs of both sizes are there, so the room for others does not depend on the outcome.
        find_or_create(&pmwcas, "kept");
        fill(&pmwcas, "kept");
        for name in before {
            find_or_create(&pmwcas, name);
            fill(&pmwcas, name);
        }
        let most = room(pmwcas.pool(), 65_536);
        let finished = kill_after(writes, || work(&pmwcas)).is_some();
        crash(pmwcas);
        let pmwcas = open::<CutShort>(&path).with_kinds(vec![kind()]);
        let found: Vec<_> = pmwcas.maps(&pmwcas.pool().pin().unwrap());
        // Half of a map that is dropped is freed, and then the rest.
        let steps = std::cell::Cell::new(0);
        let two = || steps.replace(steps.get() + 1) >= 2;
        pmwcas.free_dropped(&two).unwrap();
        pmwcas.free_dropped(&|| false).unwrap();
        assert_eq!(pmwcas.maps(&pmwcas.pool().pin().unwrap()), found);
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
        let pmwcas = in_memory::<Process>(1);
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
    let pmwcas = in_memory::<Process>(4);
    let guard = pmwcas.pool().pin().unwrap();
    let make_root = || Ok(stamped(&guard, ROOT_BYTES, 0));
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

/// A version that refers to an operation that there is not would let each change fail for ever.
#[test]
fn a_damaged_version_of_the_catalog_hinders_no_change() {
    let pmwcas = in_memory_with_kind();
    for damage in [1 << 63 | 7 << 40 | 1, 1 << 62 | 0xFFFF, u64::MAX] {
        let version = pmwcas.pool().word(pmwcas.pool().catalog_version_off());
        version.store(damage, Ordering::Release);
        find_or_create(&pmwcas, "a map");
        fill(&pmwcas, "a map");
        version.store(damage, Ordering::Release);
        drop_it(&pmwcas, "a map").unwrap();
        assert!(active(pmwcas.pool()).is_empty());
    }
}

#[test]
fn threads_that_free_one_map_free_each_block_once() {
    for _ in 0..30 {
        let pmwcas = in_memory_with_kind();
        find_or_create(&pmwcas, "kept");
        fill(&pmwcas, "kept");
        find_or_create(&pmwcas, "dropped");
        fill(&pmwcas, "dropped");
        let entry = pmwcas.find_map(&pmwcas.pool().pin().unwrap(), "dropped").unwrap().unwrap();
        pmwcas.unlist_map(&entry).unwrap();
        let again = pmwcas.unlist_map(&entry).unwrap_err();
        assert!(matches!(again, MapError::Dropped { .. }), "{again}");
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let pmwcas = &pmwcas;
                scope.spawn(move || {
                    if thread == 2 {
                        // What is freed is taken at once, by a map that is being made.
                        find_or_create(pmwcas, "new");
                        fill(pmwcas, "new");
                    } else {
                        pmwcas.free_dropped(&|| false).unwrap();
                    }
                });
            }
        });
        assert_eq!(active(pmwcas.pool()).len() as u64, 2 * (2 + OWNED));
        assert!(!pmwcas.free_dropped(&|| false).unwrap());
    }
}

/// A newer version has dropped a map with settings that this one does not know.
#[test]
fn a_dropped_map_that_cannot_be_freed_keeps_no_other_one() {
    let pmwcas = in_memory_with_kind();
    let guard = pmwcas.pool().pin().unwrap();
    let make_root = || Ok(stamped(&guard, ROOT_BYTES, 0));
    let newer = MapHeader { options: [1, 0, 0, 0], ..header("newer") };
    let entries = [newer, header("known")]
        .map(|header| pmwcas.find_or_create_map(&guard, &header, &make_root).unwrap());
    entries.iter().for_each(|entry| drop(pmwcas.unlist_map(entry).unwrap()));
    drop(guard);
    assert!(pmwcas.free_dropped(&|| false).unwrap());
    let left = pmwcas.dropped_maps(&pmwcas.pool().pin().unwrap());
    assert_eq!(left.iter().map(|entry| entry.slot).collect::<Vec<_>>(), [entries[0].slot]);
    assert_eq!(active(pmwcas.pool()).len(), 2);
    // What cannot be freed gives no room, so nobody waits for it.
    assert!(!pmwcas.free_dropped(&|| false).unwrap());
}

#[test]
fn a_full_pool_drops_a_map_and_has_its_room() {
    let pmwcas = in_memory_with_kind();
    find_or_create(&pmwcas, "dropped");
    fill(&pmwcas, "dropped");
    let guard = pmwcas.pool().pin().unwrap();
    let all: Vec<_> = [65_536, 64]
        .into_iter()
        .flat_map(|bytes| std::iter::from_fn(|| guard.reserve(bytes).ok()).collect::<Vec<_>>())
        .collect();
    assert!(guard.reserve(64).is_err(), "the pool is full");
    drop_it(&pmwcas, "dropped").unwrap();
    drop(all);
    drop(guard);
    assert_eq!(active(pmwcas.pool()), []);
    assert!(pmwcas.maps(&pmwcas.pool().pin().unwrap()).is_empty());
}
