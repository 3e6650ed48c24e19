//! The catalog: maps that are dropped, also in full pools, and damage. No damaged map disappears,
//! and no new map takes its place.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pando::{DomainChoice, Error, Map, MapInfo, MapOptions, Pool, PoolOptions, ProblemClass};

const CATALOG_OFF: u64 = 24_576;
const HEADER_COPY_BITS: u64 = 320 * 8;
/// Bits of a copy of a header before the name, and some of the name.
const NAME_BITS: u64 = 64 * 8 + 40;
/// Catalog slot of the map that is damaged, between two others.
const SLOT: u64 = 1;

/// A closed pool with three maps, and the offset of the second map's header in its file.
struct Fixture {
    _folder: tempfile::TempDir,
    path: PathBuf,
    header_off: u64,
}

impl Fixture {
    fn new(kind: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool");
        let pool = Pool::create(&path, &options().max_bytes(1 << 20)).unwrap();
        pool.map("before").unwrap().insert(b"key", b"before").unwrap();
        let main = pool.map_with("main", &MapOptions::new().index(kind)).unwrap();
        main.insert(b"key", b"main").unwrap();
        drop(main);
        pool.map("behind").unwrap();
        pool.close().unwrap();
        let header_off = word(&path, CATALOG_OFF + SLOT * 8) & ((1 << 48) - 1);
        Self { _folder: folder, path, header_off }
    }

    /// The bit of the file at which bit `bit` of copy `copy` of the header is.
    fn copy_bit(&self, copy: u64, bit: u64) -> u64 {
        (self.header_off + 64) * 8 + copy * HEADER_COPY_BITS + bit
    }

    fn open(&self) -> Pool {
        Pool::open(&self.path, &options()).unwrap()
    }

    /// Flips these bits of the file, calls `check`, and flips them back.
    fn with_flipped<T>(&self, bits: &[u64], check: impl FnOnce(Pool) -> T) -> T {
        let before = std::fs::read(&self.path).unwrap();
        let file = OpenOptions::new().write(true).open(&self.path).unwrap();
        let mut flipped = before.clone();
        bits.iter().for_each(|bit| flipped[*bit as usize / 8] ^= 1 << (bit % 8));
        file.write_all_at(&flipped, 0).unwrap();
        let found = check(self.open());
        file.write_all_at(&before, 0).unwrap();
        found
    }
}

fn options() -> PoolOptions {
    PoolOptions::new().domain(DomainChoice::Process)
}

fn word(path: &Path, off: u64) -> u64 {
    let mut bytes = [0; 8];
    std::fs::File::open(path).unwrap().read_exact_at(&mut bytes, off).unwrap();
    u64::from_le_bytes(bytes)
}

/// The map in the damaged slot.
fn listed(pool: &Pool) -> MapInfo {
    let maps = pool.maps().unwrap();
    assert_eq!(maps.len(), 3, "{maps:?}");
    maps.into_iter().find(|map| map.slot == SLOT).unwrap()
}

/// The map can be used as before, and `check` reports the damage.
fn is_whole(pool: &Pool) {
    assert_eq!(listed(pool).name, "main");
    assert_eq!(pool.map("main").unwrap().get(b"key").unwrap().unwrap(), b"main");
    assert!(pool.map("new").unwrap().is_empty().unwrap());
}

/// The map is listed as damaged. No new map can take its name, and the other maps work.
fn is_damaged(pool: &Pool) {
    let found = listed(pool);
    assert!(found.damage.is_some() && found.name.is_empty(), "{found:?}");
    for refused in [
        pool.map("main").err(),
        pool.open_map("main").err(),
        pool.map("new").err(),
        pool.drop_map("main").err(),
        pool.salvage("main", |_, _| ()).err(),
    ] {
        let refused = refused.unwrap();
        assert!(matches!(refused, Error::Damaged(_)), "{refused:?}");
        assert!(refused.to_string().contains("slot 1"), "{refused}");
    }
    assert_eq!(pool.open_map("before").unwrap().get(b"key").unwrap().unwrap(), b"before");
    // Nobody knows whether the map is transactional: a dump may not leave it out.
    let snapshot = pool.snapshot().expect("a snapshot");
    let refused = snapshot.dump(|_, _, _| Ok::<(), Error>(())).expect_err("damage");
    assert!(matches!(refused, Error::Damaged(_)), "{refused}");
}

/// The records that salvage by slot copies out.
fn salvaged(pool: &Pool, options: &MapOptions) -> Result<Vec<Vec<u8>>, Error> {
    let mut found = Vec::new();
    let report = pool.salvage_slot(SLOT, options, |_, value| found.push(value.to_vec()))?;
    assert!(report.is_consistent(), "{report:?}");
    Ok(found)
}

#[test]
fn a_header_with_one_damaged_copy_serves_and_check_tells() {
    let fixture = Fixture::new("bztree");
    for copy in [0, 1] {
        // One bit of each written word, and of the zeros after the name. A test of pando-pmem flips
        // each bit.
        for bit in (0..NAME_BITS).step_by(5).chain((NAME_BITS..HEADER_COPY_BITS).step_by(399)) {
            fixture.with_flipped(&[fixture.copy_bit(copy, bit)], |pool| {
                is_whole(&pool);
                let report = pool.check().unwrap();
                let [problem] = &report.problems[..] else { panic!("bit {bit}: {report:?}") };
                assert_eq!(
                    (problem.class, problem.map.as_deref()),
                    (ProblemClass::HeaderCopy, Some("main"))
                );
            });
        }
    }
}

#[test]
fn a_header_without_a_whole_copy_is_listed_and_copied_out_by_its_slot() {
    let fixture = Fixture::new("nbtree");
    let as_created = MapOptions::new().index("nbtree");
    for bit in (0..64 * 8 + 5 * 8).step_by(13) {
        let other = (bit * 5) % (64 * 8 + 40);
        let bits = [fixture.copy_bit(0, bit), fixture.copy_bit(1, other)];
        fixture.with_flipped(&bits, |pool| {
            is_damaged(&pool);
            assert!(!pool.check().unwrap().is_consistent());
            let stat = pool.stat().unwrap();
            assert!(stat.maps.iter().any(|map| map.slot == SLOT && map.passed_over.is_some()));
            assert_eq!(salvaged(&pool, &as_created).unwrap(), [b"main"]);
            let is_of = |bit: u64, word: u64| bit / 64 == word;
            let said_twice = |word| is_of(bit, word) == is_of(other, word) && bit == other;
            let agree = (1..=1)
                .chain(4..=7)
                .all(|word| !(is_of(bit, word) || is_of(other, word)) || said_twice(word));
            match salvaged(&pool, &MapOptions::new()) {
                Ok(found) => assert_eq!(found, [b"main"]),
                Err(error) => {
                    assert!(!agree || bit == other, "bits {bit}, {other}: {error}");
                    assert!(error.to_string().contains("index"), "{error}");
                }
            }
        });
    }
}

#[test]
fn a_slot_with_one_or_two_flipped_bits_hides_no_map() {
    let fixture = Fixture::new("skiplist");
    let slot_bit = (CATALOG_OFF + SLOT * 8) * 8;
    let pairs = (0..64).flat_map(|first| (first + 1..64).map(move |second| [first, second]));
    // Bit 61 means only that the word may not be durable.
    let harmless = |bits: &[u64]| bits.iter().all(|&bit| bit == 61);
    for bits in (0..64).map(|bit| vec![bit]).chain(pairs.step_by(37).map(Vec::from)) {
        let in_file: Vec<_> = bits.iter().map(|bit| slot_bit + bit).collect();
        fixture.with_flipped(&in_file, |pool| {
            if harmless(&bits) {
                return is_whole(&pool);
            }
            is_damaged(&pool);
            assert_eq!(salvaged(&pool, &MapOptions::new()).unwrap(), [b"main"], "bits {bits:?}");
        });
    }
}

#[test]
fn a_flipped_bit_of_an_empty_slot_is_listed_and_can_be_cleared() {
    let fixture = Fixture::new("bztree");
    // Bits 61 and 62 alone mean that an operation was in flight and left the slot empty.
    for bit in (0..64).filter(|bit| ![61, 62].contains(bit)) {
        fixture.with_flipped(&[(CATALOG_OFF + 9 * 8) * 8 + bit], |pool| {
            let maps = pool.maps().unwrap();
            assert!(
                maps.iter().any(|map| map.slot == 9 && map.damage.is_some()),
                "bit {bit}: {maps:?}"
            );
            assert_eq!(pool.map("main").unwrap().get(b"key").unwrap().unwrap(), b"main");
            let refused = pool.salvage_slot(9, &MapOptions::new(), |_, _| ()).unwrap_err();
            assert!(matches!(refused, Error::Damaged(_)), "{refused}");
            pool.drop_slot(9, &MapOptions::new()).unwrap();
            assert!(pool.check().unwrap().is_consistent());
            pool.map("new").unwrap();
        });
    }
}

#[test]
fn a_damaged_map_is_dropped_by_its_slot() {
    let fixture = Fixture::new("wbtree");
    let as_created = MapOptions::new().index("wbtree");
    // Both copies; the slot; both copies and the slot.
    let copies = [fixture.copy_bit(0, 64), fixture.copy_bit(1, 65)];
    let slot = (CATALOG_OFF + SLOT * 8) * 8;
    for bits in [&copies[..], &[slot], &[slot + 63]] {
        fixture.with_flipped(bits, |pool| {
            if bits.len() == 2 {
                let refused = pool.drop_slot(SLOT, &MapOptions::new()).unwrap_err();
                assert!(
                    refused.to_string().contains("name them as the map was created"),
                    "{refused}"
                );
            }
            pool.drop_slot(SLOT, &as_created).unwrap();
            assert_eq!(pool.maps().unwrap().len(), 2);
            let report = pool.check().unwrap();
            assert!(report.is_consistent(), "{report:?}");
            assert!(pool.map("main").unwrap().is_empty().unwrap());
        });
    }
    let pool = fixture.open();
    let held = pool.map("main").unwrap();
    assert!(matches!(pool.drop_slot(SLOT, &as_created), Err(Error::MapInUse { .. })));
    drop(held);
    assert!(matches!(pool.drop_slot(7, &as_created), Err(Error::SlotEmpty { slot: 7 })));
    pool.drop_slot(SLOT, &MapOptions::new()).unwrap();
    assert_eq!(pool.maps().unwrap().len(), 2);
}

const KINDS: [&str; 5] = ["bztree", "nbtree", "wbtree", "skiplist", "bwtree"];

fn of_kind(kind: &str) -> MapOptions {
    let options = MapOptions::new().index(kind);
    if kind == "wbtree" { options.set("records", "variable") } else { options }
}

/// Inserts records, from record `from` on, until the pool is full; the first refused record.
fn fill(map: &Map, from: u64, bytes: usize) -> u64 {
    let refused = |number: &u64| match map.insert(number.to_be_bytes(), vec![7; bytes]) {
        Err(Error::PoolFull { .. }) => true,
        inserted => {
            inserted.unwrap();
            false
        }
    };
    (from..).find(refused).unwrap()
}

/// Fills a pool with one map, by inserts alone, or also by overwriting and removing.
fn fill_in_some_way(map: &Map, way: u64, bytes: usize) -> u64 {
    let last = fill(map, 0, bytes);
    for number in (0..last).step_by(17).filter(|_| way > 0) {
        let _ = map.update(number.to_be_bytes(), vec![8; bytes]);
    }
    for number in (0..last).filter(|number| way > 1 && number % 3 > 0) {
        let _ = map.remove(number.to_be_bytes());
    }
    fill(map, last, bytes)
}

#[test]
fn a_full_pool_drops_a_map_of_each_kind_and_has_its_room() {
    for kind in KINDS {
        for (way, bytes) in [(0, 8), (1, 300), (2, 300), (2, 5_000), (0, 100_000)] {
            let place = format!("{kind}, way {way}, values of {bytes} bytes");
            let pool = Pool::volatile(&options().max_bytes(4 << 20)).unwrap();
            let kept = pool.map_with("kept", &of_kind(kind)).unwrap();
            kept.insert(b"12345678", b"value of").unwrap();
            let before = pool.check().unwrap().used_blocks;
            let map = pool.map_with("main", &of_kind(kind)).unwrap();
            let first = fill_in_some_way(&map, way, bytes);
            drop(map);
            pool.drop_map("main").expect(&place);
            let report = pool.check().unwrap();
            assert!(report.is_consistent(), "{place}: {report:?}");
            assert_eq!(report.used_blocks, before, "{place}");
            assert_eq!(kept.get(b"12345678").unwrap().as_deref(), Some(&b"value of"[..]));
            let map = pool.map_with("main", &of_kind(kind)).expect(&place);
            let second = fill_in_some_way(&map, way, bytes);
            assert!(second * 10 >= first * 8, "{place}: {first} records, and then {second}");
        }
    }
}

#[test]
fn a_bztree_that_was_emptied_in_a_full_pool_is_dropped() {
    let pool = Pool::volatile(&options().max_bytes(8 << 20)).unwrap();
    let map = pool.map("main").unwrap();
    let last = fill(&map, 0, 300);
    for number in (0..last).step_by(17) {
        let _ = map.update(number.to_be_bytes(), [8; 300]);
    }
    for number in (0..last).filter(|number| number % 3 > 0) {
        map.remove(number.to_be_bytes()).unwrap();
    }
    let end = fill(&map, last, 300);
    for number in 0..end {
        map.remove(number.to_be_bytes()).unwrap();
    }
    drop(map);
    pool.drop_map("main").unwrap();
    let report = pool.check().unwrap();
    assert!(report.is_consistent() && report.used_blocks == 0, "{report:?}");
}

/// A closed pool whose map `main` is out of the catalog, with all its blocks, beside another map.
fn with_a_dropped_map(path: &Path, kind: &str) {
    let pool = Pool::create(path, &options().max_bytes(4 << 20)).unwrap();
    pool.map("kept").unwrap().insert(b"key", b"kept").unwrap();
    let map = pool.map_with("main", &of_kind(kind)).unwrap();
    fill(&map, 0, 300);
    drop(map);
    pool.close().unwrap();
    let opened = pando_pmem::Pool::<pando_pmem::Process>::open(path, &Default::default()).unwrap();
    let catalog = pando_tree::maps::Catalog::open(opened).unwrap();
    let entry = catalog.find_map(&catalog.pool().pin().unwrap(), "main").unwrap().unwrap();
    catalog.unlist_map(&entry).unwrap();
}

#[test]
fn a_map_whose_drop_was_cut_short_is_freed_after_the_next_opening() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool");
        with_a_dropped_map(&path, kind);
        let salvaged = Pool::open(&path, &options().salvage(true)).unwrap();
        assert_eq!(salvaged.maps().unwrap().len(), 1, "the name is free");
        assert!(salvaged.check().unwrap().is_consistent());
        drop(salvaged);
        // Closing stops the thread that the opening started, and the next opening continues.
        for _ in 0..3 {
            Pool::open(&path, &options()).unwrap().close().unwrap();
        }
        let pool = Pool::open(&path, &options()).unwrap();
        // The pool was full, and the thread may not have freed everything yet.
        let main = pool.map_with("main", &of_kind(kind)).unwrap();
        assert!(main.is_empty().unwrap());
        drop(main);
        pool.drop_map("main").unwrap();
        let report = pool.check().unwrap();
        assert!(
            report.is_consistent() && report.maps == 1 && report.used_blocks < 10,
            "{report:?}"
        );
        assert_eq!(pool.map("kept").unwrap().get(b"key").unwrap().unwrap(), b"kept");
    }
}

#[test]
fn maps_are_dropped_by_several_threads_at_once() {
    let pool = Pool::volatile(&options().max_bytes(64 << 20)).unwrap();
    let name = |index: usize| format!("map {index}");
    for index in 0..10 {
        let map = pool.map_with(&name(index), &of_kind(KINDS[index % 5])).unwrap();
        for number in 0..2_000u64 {
            map.insert(number.to_be_bytes(), [1; 200]).unwrap();
        }
    }
    std::thread::scope(|scope| {
        for (thread, kind) in KINDS.into_iter().enumerate().take(3) {
            let pool = &pool;
            scope.spawn(move || {
                for index in (0..9).filter(|index| index % 3 == thread) {
                    pool.drop_map(&name(index)).unwrap();
                    let map = pool.map_with(&name(index), &of_kind(kind)).unwrap();
                    map.insert(b"12345678", b"value of").unwrap();
                }
            });
        }
    });
    let report = pool.check().unwrap();
    assert!(report.is_consistent() && report.records == 9 + 2_000, "{report:?}");
}
