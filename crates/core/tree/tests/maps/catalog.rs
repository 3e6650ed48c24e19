// The catalog of named maps under crashes and threads; included once for each algorithm.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_tree::maps::slots::MapHeader;
use pando_pmem::layout::CATALOG_VERSION_OFF;
use pando_pmem::testing::{CutShort, active, folder, give_to, kill_after, room, stamped};
use pando_pmem::{CreateOptions, Domain, OpenPool, Pool, Process};
use pando_pmwcas::{Algorithm, Pmwcas};
use pando_tree::context::Context;
use pando_tree::maps::{Catalog, KnownKind, MapError, OptionValues, Unit};
use pando_tree::testing::named_blocks;

/// Blocks that a map's first block names, more than one operation frees.
const OWNED: u64 = 20;
const ROOT_BYTES: u64 = OWNED * 8;

fn options(mib: u64) -> CreateOptions {
    CreateOptions { max_bytes: mib << 20, initial_bytes: 0 }
}

fn over<D: Domain>(pool: Arc<Pool<D>>) -> Catalog<D> {
    Pmwcas::open(pool).unwrap().with_algorithm(ALGORITHM).into()
}

fn in_memory<D: Domain>(mib: u64) -> Catalog<D> {
    over(Pool::anonymous(&options(mib)).unwrap())
}

fn header(name: &str) -> MapHeader {
    MapHeader { name: name.into(), kind: 1, options: [0; 4], number: 0 }
}

fn find_or_create<D: Domain>(catalog: &Catalog<D>, name: &str) -> u64 {
    let guard = catalog.pool().pin().unwrap();
    let make_root = || Ok(stamped(&guard, ROOT_BYTES, 0));
    let entry = catalog.find_or_create_map(&guard, &header(name), &make_root).unwrap();
    entry.header_off
}

/// Gives the map blocks of its own.
fn fill<D: Domain>(catalog: &Catalog<D>, name: &str) {
    let guard = catalog.pool().pin().unwrap();
    let entry = catalog.find_map(&guard, name).unwrap().unwrap();
    let root = catalog.read(&guard, entry.root_off());
    for index in 0..OWNED {
        give_to(&guard, root + index * 8, stamped(&guard, 64, 1));
    }
}

fn next_unit<D: Domain>(context: Context<'_, D>, root_off: u64, _: &OptionValues) -> Unit {
    let root = context.read(root_off);
    Unit { owned: named_blocks(context, root, OWNED), ..Unit::of_block(root_off, root, 0, root) }
}

fn in_memory_with_kind() -> Catalog<Process> {
    in_memory::<Process>(1).with_kinds(vec![kind()])
}

fn kind<D: Domain>() -> KnownKind<D> {
    KnownKind { number: 1, options: &[], next_unit }
}

fn drop_it<D: Domain>(catalog: &Catalog<D>, name: &str) -> Result<(), MapError> {
    let guard = catalog.pool().pin().unwrap();
    let entry = catalog.find_map(&guard, name)?.unwrap();
    drop(guard);
    catalog.free_map(&kind(), &catalog.unlist_map(&entry)?, &|| false)
}

/// Each map has its header and its root, and nothing else is allocated.
fn check<D: Domain>(catalog: &Catalog<D>, most: usize) -> Vec<String> {
    let guard = catalog.pool().pin().unwrap();
    let maps = catalog.maps(&guard);
    let mut blocks = Vec::new();
    for map in &maps {
        let root = catalog.read(&guard, map.root_off());
        blocks.extend([map.header_off, root]);
        blocks.extend(named_blocks(Context::new(catalog, &guard), root, OWNED));
    }
    blocks.sort_unstable();
    drop(guard);
    let found: Vec<u64> = active(catalog.pool()).iter().map(|block| block.off).collect();
    assert_eq!(found, blocks);
    assert_eq!(room(catalog.pool(), 65_536), most);
    maps.into_iter().map(|map| map.header.unwrap().name).collect()
}

/// After it both copies of each header are equal.
fn settle<D: Domain>(catalog: &Catalog<D>) {
    let guard = catalog.pool().pin().unwrap();
    catalog.settle_headers(&guard).unwrap();
    for entry in catalog.maps(&guard) {
        assert!(!catalog.slots().has_damaged_copy(&guard, &entry));
    }
}

fn rename<D: Domain>(catalog: &Catalog<D>, from: &str, to: &str) -> Result<(), MapError> {
    let guard = catalog.pool().pin().unwrap();
    let entry = catalog.find_map(&guard, from)?.unwrap();
    catalog.rename_map(&guard, &entry, to).map(drop)
}

fn crash_everywhere(before: &[&str], work: fn(&Catalog<CutShort>), after: &[&str]) {
    let folder = folder();
    for writes in 0.. {
        let path = folder.path().join("pool");
        let catalog = over(Pool::<CutShort>::create(&path, &options(1)).unwrap());
        // Slabs of both sizes are there, so the room for others does not depend on the outcome.
        find_or_create(&catalog, "kept");
        fill(&catalog, "kept");
        for name in before {
            find_or_create(&catalog, name);
            fill(&catalog, name);
        }
        let most = room(catalog.pool(), 65_536);
        let finished = kill_after(writes, || work(&catalog)).is_some();
        catalog.into_pool().abandon();
        let catalog = over(Pool::<CutShort>::open(&path, &OpenPool::default()).unwrap()).with_kinds(vec![kind()]);
        let found: Vec<_> = catalog.maps(&catalog.pool().pin().unwrap());
        settle(&catalog);
        // Half of a map that is dropped is freed, and then the rest.
        let steps = std::cell::Cell::new(0);
        let two = || steps.replace(steps.get() + 1) >= 2;
        catalog.free_dropped(&two).unwrap();
        catalog.free_dropped(&|| false).unwrap();
        assert_eq!(catalog.maps(&catalog.pool().pin().unwrap()), found);
        let found = check(&catalog, most);
        let found: Vec<&str> =
            found.iter().map(String::as_str).filter(|&name| name != "kept").collect();
        assert!(found == after || (!finished && found == before), "killed at {writes}: {found:?}");
        drop(catalog);
        std::fs::remove_file(&path).unwrap();
        if finished {
            return;
        }
    }
}

#[test]
fn a_crash_at_every_write_of_creating_a_map() {
    let create_one = |catalog: &Catalog<CutShort>| {
        find_or_create(catalog, "new");
    };
    crash_everywhere(&[], create_one, &["new"]);
}

#[test]
fn a_crash_at_every_write_of_dropping_a_map() {
    crash_everywhere(&["old"], |catalog| drop_it(catalog, "old").unwrap(), &[]);
}

#[test]
fn a_crash_at_every_write_of_renaming_a_map() {
    let rename_one = |catalog: &Catalog<CutShort>| rename(catalog, "old", "new").unwrap();
    crash_everywhere(&["old"], rename_one, &["new"]);
}

#[test]
fn a_thread_that_reads_finds_a_map_by_one_of_its_two_names() {
    let catalog = in_memory::<Process>(1);
    let header_off = find_or_create(&catalog, "one");
    std::thread::scope(|scope| {
        let renamed = scope.spawn(|| {
            for _ in 0..2_000 {
                rename(&catalog, "one", "two").unwrap();
                rename(&catalog, "two", "one").unwrap();
            }
        });
        while !renamed.is_finished() {
            let maps = catalog.maps(&catalog.pool().pin().unwrap());
            assert_eq!((maps.len(), maps[0].header_off), (1, header_off));
            let name = &maps[0].header.as_ref().unwrap().name;
            assert!(name == "one" || name == "two", "{name}");
        }
    });
}

#[test]
fn a_name_that_a_map_has_is_refused() {
    let catalog = in_memory::<Process>(1);
    find_or_create(&catalog, "one");
    find_or_create(&catalog, "two");
    assert!(matches!(rename(&catalog, "one", "two"), Err(MapError::Exists { .. })));
    assert!(matches!(rename(&catalog, "one", ""), Err(MapError::BadName { .. })));
    assert!(matches!(rename(&catalog, "one", &"x".repeat(256)), Err(MapError::BadName { .. })));
    let guard = catalog.pool().pin().unwrap();
    let entry = catalog.find_map(&guard, "one").unwrap().unwrap();
    drop_it(&catalog, "one").unwrap();
    let dropped = catalog.rename_map(&guard, &entry, "three").unwrap_err();
    assert!(matches!(dropped, MapError::Dropped { .. }), "{dropped}");
}

/// The copy that decides is damaged: until it is whole, the other one must keep the old name.
#[test]
fn a_map_with_a_damaged_copy_of_its_header_is_renamed() {
    let catalog = in_memory::<Process>(1);
    let header_off = find_or_create(&catalog, "old");
    for copy in [64, 384] {
        let word = catalog.pool().word(header_off + copy + 72);
        word.store(word.load(Ordering::Relaxed) ^ 1, Ordering::Relaxed);
        rename(&catalog, "old", "new").unwrap();
        rename(&catalog, "new", "old").unwrap();
        settle(&catalog);
    }
}

#[test]
fn threads_that_give_one_name_get_one_map() {
    for _ in 0..50 {
        let catalog = in_memory::<Process>(1);
        let found: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| find_or_create(&catalog, "one"))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(found.iter().all(|&off| off == found[0]), "{found:x?}");
        assert_eq!(active(catalog.pool()).len(), 2, "the losers' blocks leaked");
    }
}

#[test]
fn names_out_of_range_and_a_full_catalog_are_refused() {
    let catalog = in_memory::<Process>(4);
    let guard = catalog.pool().pin().unwrap();
    let make_root = || Ok(stamped(&guard, ROOT_BYTES, 0));
    for name in [String::new(), "x".repeat(256)] {
        let refused = catalog.find_or_create_map(&guard, &header(&name), &make_root).unwrap_err();
        assert!(matches!(refused, MapError::BadName { .. }), "{refused}");
    }
    find_or_create(&catalog, &"x".repeat(255));
    for index in 1..1024 {
        find_or_create(&catalog, &format!("map {index}"));
    }
    let refused = catalog.find_or_create_map(&guard, &header("more"), &make_root).unwrap_err();
    assert!(matches!(refused, MapError::CatalogFull), "{refused}");
    assert_eq!(active(catalog.pool()).len(), 2048);
    drop_it(&catalog, "map 500").unwrap();
    assert!(matches!(drop_it(&catalog, "map 501"), Ok(())));
    find_or_create(&catalog, "more");
    assert_eq!(active(catalog.pool()).len(), 2046);
}

/// A version that refers to an operation that does not exist would make each change fail.
#[test]
fn a_damaged_version_of_the_catalog_hinders_no_change() {
    let catalog = in_memory_with_kind();
    for damage in [1 << 63 | 7 << 40 | 1, 1 << 62 | 0xFFFF, u64::MAX] {
        let version = catalog.pool().word(CATALOG_VERSION_OFF);
        version.store(damage, Ordering::Release);
        find_or_create(&catalog, "a map");
        fill(&catalog, "a map");
        version.store(damage, Ordering::Release);
        drop_it(&catalog, "a map").unwrap();
        assert!(active(catalog.pool()).is_empty());
    }
}

#[test]
fn threads_that_free_one_map_free_each_block_once() {
    for _ in 0..30 {
        let catalog = in_memory_with_kind();
        find_or_create(&catalog, "kept");
        fill(&catalog, "kept");
        find_or_create(&catalog, "dropped");
        fill(&catalog, "dropped");
        let entry = catalog.find_map(&catalog.pool().pin().unwrap(), "dropped").unwrap().unwrap();
        catalog.unlist_map(&entry).unwrap();
        let again = catalog.unlist_map(&entry).unwrap_err();
        assert!(matches!(again, MapError::Dropped { .. }), "{again}");
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let catalog = &catalog;
                scope.spawn(move || {
                    if thread == 2 {
                        // What is freed is taken at once, by a map that is being made.
                        find_or_create(catalog, "new");
                        fill(catalog, "new");
                    } else {
                        catalog.free_dropped(&|| false).unwrap();
                    }
                });
            }
        });
        assert_eq!(active(catalog.pool()).len() as u64, 2 * (2 + OWNED));
        assert!(!catalog.free_dropped(&|| false).unwrap());
    }
}

/// A newer version has dropped a map with settings that this one does not know.
#[test]
fn a_dropped_map_that_cannot_be_freed_keeps_no_other_one() {
    let catalog = in_memory_with_kind();
    let guard = catalog.pool().pin().unwrap();
    let make_root = || Ok(stamped(&guard, ROOT_BYTES, 0));
    let newer = MapHeader { options: [1, 0, 0, 0], ..header("newer") };
    let entries = [newer, header("known")]
        .map(|header| catalog.find_or_create_map(&guard, &header, &make_root).unwrap());
    entries.iter().for_each(|entry| drop(catalog.unlist_map(entry).unwrap()));
    drop(guard);
    assert!(catalog.free_dropped(&|| false).unwrap());
    let left = catalog.dropped_maps(&catalog.pool().pin().unwrap());
    assert_eq!(left.iter().map(|entry| entry.slot).collect::<Vec<_>>(), [entries[0].slot]);
    assert_eq!(active(catalog.pool()).len(), 2);
    // A map that cannot be freed gives no room, so no operation waits for it.
    assert!(!catalog.free_dropped(&|| false).unwrap());
}

#[test]
fn a_full_pool_drops_a_map_and_has_its_room() {
    let catalog = in_memory_with_kind();
    find_or_create(&catalog, "dropped");
    fill(&catalog, "dropped");
    let guard = catalog.pool().pin().unwrap();
    let all: Vec<_> = [65_536, 64]
        .into_iter()
        .flat_map(|bytes| std::iter::from_fn(|| guard.reserve(bytes).ok()).collect::<Vec<_>>())
        .collect();
    assert!(guard.reserve(64).is_err(), "the pool is full");
    drop_it(&catalog, "dropped").unwrap();
    drop(all);
    drop(guard);
    assert_eq!(active(catalog.pool()), []);
    assert!(catalog.maps(&catalog.pool().pin().unwrap()).is_empty());
}

#[test]
fn no_map_gets_the_number_of_another_one() {
    let catalog = in_memory_with_kind();
    let numbered = |name: &str| {
        let guard = catalog.pool().pin().unwrap();
        let make_root = || Ok(stamped(&guard, ROOT_BYTES, 0));
        let header = MapHeader { number: MapHeader::NEW_NUMBER, ..header(name) };
        let entry = catalog.find_or_create_map(&guard, &header, &make_root).unwrap();
        let found = catalog.find_map(&guard, name).unwrap().unwrap();
        assert_eq!(found, entry);
        entry.header.unwrap().number
    };
    find_or_create(&catalog, "plain");
    let numbers = [numbered("first"), numbered("second")];
    assert_eq!(numbers, [numbered("first"), numbered("second")]);
    drop_it(&catalog, "second").unwrap();
    assert!(numbers[0] > 0 && numbers[0] < numbers[1] && numbers[1] < numbered("third"));
}
