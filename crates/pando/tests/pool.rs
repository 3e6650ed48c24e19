//! Pools and maps through the public API.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod full_pool;

use std::path::PathBuf;

use tempfile::TempDir;

use pando::{DomainChoice, Error, MapOptions, Pool, PoolOptions, Upserted};

fn volatile() -> Pool {
    Pool::volatile(&PoolOptions::new()).unwrap()
}

/// A path of that name in a new folder, and the folder.
fn file(name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    (folder, path)
}

#[test]
fn what_is_closed_is_there_when_opened() {
    let (_folder, path) = file("kept.pool");
    let pool = Pool::create(&path, &PoolOptions::new()).unwrap();
    let map = pool.map("main").unwrap();
    for number in 0..1000u32 {
        map.insert(number.to_be_bytes(), format!("value {number}").as_bytes()).unwrap();
    }
    assert!(map.remove(7u32.to_be_bytes()).unwrap());
    drop(map);
    pool.close().unwrap();

    let pool = Pool::open_or_create(&path, &PoolOptions::new()).unwrap();
    let map = pool.open_map("main").unwrap();
    assert_eq!(map.len().unwrap(), 999);
    assert_eq!(map.get(8u32.to_be_bytes()).unwrap().unwrap(), b"value 8");
    assert_eq!(map.get(7u32.to_be_bytes()).unwrap(), None);
}

#[test]
fn what_is_dropped_without_close_is_there_too() {
    let (_folder, path) = file("dropped.pool");
    let pool = Pool::open_or_create(&path, &PoolOptions::new()).unwrap();
    let map = pool.map("main").unwrap();
    drop(pool);
    map.insert(b"key", b"value").unwrap();
    drop(map);
    let pool = Pool::open(&path, &PoolOptions::new()).unwrap();
    assert_eq!(pool.map("main").unwrap().get(b"key").unwrap().unwrap(), b"value");
}

#[test]
fn a_missing_pool_and_a_pool_that_is_there_are_told_apart() {
    let (_folder, path) = file("one.pool");
    let missing = Pool::open(&path, &PoolOptions::new()).unwrap_err();
    assert!(matches!(missing, Error::PoolNotFound { path: found } if found == path));
    let pool = Pool::create(&path, &PoolOptions::new()).unwrap();
    let there = Pool::create(&path, &PoolOptions::new()).unwrap_err();
    assert!(matches!(there, Error::PoolExists { .. }));
    let busy = Pool::open(&path, &PoolOptions::new()).unwrap_err();
    assert!(matches!(busy, Error::PoolBusy { .. }), "{busy}");
    pool.close().unwrap();
}

#[test]
fn another_programs_file_is_refused_and_left_alone() {
    let (_folder, path) = file("notes.txt");
    std::fs::write(&path, b"remember the milk").unwrap();
    let refused = Pool::open(&path, &PoolOptions::new()).unwrap_err();
    assert!(matches!(refused, Error::NotAPool { .. }), "{refused}");
    let told = refused.to_string();
    assert!(told.contains("notes.txt") && told.contains("\"remember\""), "{told}");
    assert!(Pool::open_or_create(&path, &PoolOptions::new()).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"remember the milk");
}

#[test]
fn a_path_that_leads_nowhere_is_told_as_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let options = PoolOptions::new();
    let inside = folder.path().join("missing").join("grove.pool");
    for created in [Pool::create(&inside, &options), Pool::open_or_create(&inside, &options)] {
        let refused = created.unwrap_err();
        assert!(
            matches!(&refused, Error::FolderNotFound { path } if path.ends_with("missing")),
            "{refused}"
        );
    }
    for named in [Pool::create("", &options), Pool::open_or_create("", &options)] {
        let refused = named.unwrap_err();
        assert!(matches!(refused, Error::Option { .. }), "{refused}");
    }
    let link = folder.path().join("link.pool");
    std::os::unix::fs::symlink("nowhere.pool", &link).unwrap();
    let refused = Pool::open(&link, &options).unwrap_err();
    assert!(matches!(refused, Error::Io { .. }), "{refused}");

    let empty = folder.path().join("empty.pool");
    std::fs::write(&empty, b"").unwrap();
    let refused = Pool::open_or_create(&empty, &options).unwrap_err();
    assert!(matches!(&refused, Error::NotAPool { found, .. } if found.is_empty()));
    assert!(refused.to_string().contains("remove it and create the pool"), "{refused}");
}

#[test]
fn a_pool_that_is_cut_off_or_damaged_is_refused() {
    let (_folder, path) = file("cut.pool");
    Pool::create(&path, &PoolOptions::new()).unwrap().close().unwrap();
    let undamaged = std::fs::read(&path).unwrap();
    let mut flipped = undamaged.clone();
    flipped[16] ^= 1;
    for damaged in [&undamaged[..undamaged.len() / 2], &flipped] {
        std::fs::write(&path, damaged).unwrap();
        let refused = Pool::open(&path, &PoolOptions::new()).unwrap_err();
        assert!(matches!(refused, Error::Damaged(_)), "{refused}");
        assert!(refused.to_string().contains("cut.pool"), "{refused}");
    }
}

/// Each thread has used the map, and idles. A few threads are inside calls at once.
#[test]
fn many_more_threads_read_and_write_than_a_table_of_participants_has_room_for_at_first() {
    let pool = volatile();
    let map = pool.map("main").unwrap();
    let (used, checked) = (std::sync::Barrier::new(401), std::sync::Barrier::new(401));
    std::thread::scope(|scope| {
        for number in 0..400u32 {
            let (map, used, checked) = (&map, &used, &checked);
            scope.spawn(move || {
                let first = map.upsert(number.to_be_bytes(), b"value");
                used.wait();
                let other = (number + 200) % 400;
                let read = map.get(other.to_be_bytes());
                let written = map.upsert(number.to_be_bytes(), b"again");
                // If this thread failed before the others got here, they would wait for it.
                checked.wait();
                first.unwrap();
                // The other thread may have written again.
                let read = read.unwrap().unwrap();
                assert!(read == b"value" || read == b"again", "{read:?}");
                written.unwrap();
            });
        }
        used.wait();
        checked.wait();
    });
    assert_eq!(map.len().unwrap(), 400);
    let stat = pool.stat().unwrap();
    assert!(stat.participants.slots <= 512, "{:?}", stat.participants);
    assert!(pool.check().unwrap().is_consistent());
}

#[test]
fn a_map_too_many_is_refused() {
    let pool = volatile();
    for number in 0..1024 {
        pool.map(&format!("map {number}")).unwrap();
    }
    let refused = pool.map("one more").unwrap_err();
    assert!(matches!(refused, Error::TooManyMaps { max_maps: 1024 }), "{refused}");
}

#[test]
fn a_domain_is_told_by_its_name() {
    for domain in DomainChoice::ALL {
        assert_eq!(domain.to_string().parse::<DomainChoice>().unwrap(), domain);
    }
    let unknown = "counting".parse::<DomainChoice>().unwrap_err();
    assert!(unknown.to_string().contains("auto or process or adr"), "{unknown}");
}

/// A pool with an undamaged map, and a map of an unknown kind.
fn with_an_unknown_kind(path: &std::path::Path) {
    use pando_tree::maps::slots::MapHeader;
    let pool = Pool::create(path, &PoolOptions::new()).unwrap();
    pool.map("known").unwrap().insert(b"key", b"value").unwrap();
    pool.close().unwrap();
    let opened = pando_pmem::Pool::<pando_pmem::Adr>::open(path, &Default::default()).unwrap();
    let catalog = pando_tree::maps::Catalog::open(opened).unwrap();
    let guard = catalog.pool().pin().unwrap();
    let header = MapHeader { name: "unknown".into(), kind: 999, options: [0; 4], number: 0 };
    catalog.find_or_create_map(&guard, &header, &|| guard.reserve(4096)).unwrap();
}

#[test]
fn a_map_of_an_unknown_kind_leaves_the_others_alone() {
    let (_folder, path) = file("newer.pool");
    with_an_unknown_kind(&path);
    let pool = Pool::open(&path, &PoolOptions::new()).unwrap();
    for refused in [pool.map("unknown").unwrap_err(), pool.drop_map("unknown").unwrap_err()] {
        assert!(matches!(refused, Error::UnknownIndex { number: 999, .. }), "{refused}");
    }
    let known = pool.open_map("known").unwrap();
    assert_eq!(known.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));

    let stat = pool.stat().unwrap();
    let [known, unknown] = &stat.maps[..] else { panic!("{stat:?}") };
    assert_eq!(known.figures.as_ref().map(|figures| figures.records), Some(1));
    assert_eq!((unknown.index.as_str(), unknown.figures.is_none()), ("index 999", true));
    assert!(unknown.passed_over.as_ref().unwrap().contains("use a newer one"), "{stat:?}");

    let report = pool.check().unwrap();
    let [problem] = &report.problems[..] else { panic!("{report:?}") };
    assert_eq!(problem.map.as_deref(), Some("unknown"));
    assert_eq!((report.maps, report.records), (1, 1), "the other map was walked");
}

#[test]
fn maps_are_listed_dropped_and_missed() {
    let pool = volatile();
    let users = pool.map("users").unwrap();
    users.insert(b"a", b"1").unwrap();
    pool.map_with("orders", &MapOptions::new().index("bztree")).unwrap();
    let names: Vec<_> = pool.maps().unwrap().into_iter().map(|map| map.name).collect();
    assert_eq!(names, ["orders", "users"]);

    let held = pool.drop_map("users").unwrap_err();
    assert!(matches!(held, Error::MapInUse { handles: 1, .. }), "{held}");
    drop(users);
    pool.drop_map("users").unwrap();
    let missing = pool.open_map("users").unwrap_err();
    assert_eq!(missing.to_string(), "the pool has no map \"users\"; it has \"orders\"");
    assert!(matches!(pool.drop_map("users"), Err(Error::MapNotFound { .. })));
    assert_eq!(pool.map("users").unwrap().len().unwrap(), 0);
}

#[test]
fn handles_of_one_map_share_it() {
    let pool = volatile();
    let first = pool.map("main").unwrap();
    let second = pool.clone().map("main").unwrap();
    assert_eq!(first.upsert(b"key", b"1").unwrap(), Upserted::Inserted);
    assert_eq!(second.upsert(b"key", b"2").unwrap(), Upserted::Updated);
    assert_eq!(first.get(b"key").unwrap().unwrap(), b"2");
}

#[test]
fn a_pool_in_use_is_not_closed() {
    let pool = volatile();
    let other = pool.clone();
    let map = pool.map("main").unwrap();
    let in_use = other.close().unwrap_err();
    assert!(matches!(in_use, Error::PoolInUse { pools: 1, maps: 1 }), "{in_use}");
    drop(map);
    pool.close().unwrap();
}

#[test]
fn names_and_options_are_checked() {
    let pool = volatile();
    assert!(matches!(pool.map(""), Err(Error::MapName { .. })));
    assert!(matches!(pool.map(&"x".repeat(10_000)), Err(Error::MapName { .. })));
    let options = PoolOptions::new().initial_bytes(2 << 30).max_bytes(1 << 30);
    assert!(matches!(Pool::volatile(&options), Err(Error::Option { .. })));
    pool.map("main").unwrap();
    let differs = pool.map_with("main", &MapOptions::new().set("leaf_bytes", 12_345)).unwrap_err();
    assert!(matches!(differs, Error::MapOptionDiffers { option: "leaf_bytes", .. }), "{differs}");
    let agrees = MapOptions::new().index("bztree").set("leaf_bytes", 2048);
    pool.map_with("main", &agrees).unwrap();
    for (name, value, allowed) in [
        ("leaf_bytes", "1", "256 to 65536"),
        ("leaf_bytes", "much", "256 to 65536"),
        ("free_bytes", "2000", "half of leaf_bytes"),
        ("value_mode", "outside", "inline or pointer"),
        ("leaves", "7", "leaf_bytes, inner_bytes"),
    ] {
        let refused = pool.map_with("new", &MapOptions::new().set(name, value)).unwrap_err();
        assert!(matches!(refused, Error::Option { .. }), "{refused}");
        let told = refused.to_string();
        assert!(told.contains(allowed) && told.contains(value) | told.contains(name), "{told}");
    }
    for (index, name) in [
        ("skiplist", "even_gaps"),
        ("skiplist", "levels_at_once"),
        ("bwtree", "shortcuts"),
        ("bwtree", "runs"),
    ] {
        let value = if name == "levels_at_once" { "1" } else { "off" };
        let options = MapOptions::new().index(index).set(name, value);
        let refused = pool.map_with("new", &options).unwrap_err().to_string();
        assert!(refused.contains("other values are for experiments"), "{refused}");
        let known = pando::indexes().into_iter().find(|known| known.name == index).unwrap();
        assert!(known.options.iter().all(|option| option.name != name), "{known:?}");
    }
    let unknown = pool.map_with("new", &MapOptions::new().index("oak")).unwrap_err().to_string();
    for index in pando::indexes() {
        assert!(unknown.contains(index.name), "{unknown}");
    }
    let other = pool.map_with("main", &MapOptions::new().index("oak")).unwrap_err();
    assert!(matches!(other, Error::MapIndexDiffers { found: "bztree", .. }), "{other}");
    assert_eq!(pool.maps().unwrap().len(), 1, "a refused call left nothing behind");
}

#[test]
fn indexes_are_told_apart_by_name_and_by_number() {
    let (_folder, path) = file("each.pool");
    let pool = Pool::create(&path, &PoolOptions::new()).unwrap();
    for index in pando::indexes() {
        pool.map_with(index.name, &MapOptions::new().index(index.name)).unwrap();
    }
    drop(pool);
    let pool = Pool::open(&path, &PoolOptions::new()).unwrap();
    let maps = pool.stat().unwrap().maps;
    assert_eq!(maps.len(), pando::indexes().len());
    assert!(maps.iter().all(|map| map.name == map.index), "{maps:?}");
}

#[test]
fn limits_are_named() {
    let map = volatile().map("main").unwrap();
    let max_key_bytes = map.limits().max_key_bytes;
    map.insert(vec![b'k'; max_key_bytes], b"").unwrap();
    let too_long = map.insert(vec![b'k'; max_key_bytes + 1], b"").unwrap_err();
    assert!(matches!(too_long, Error::KeyTooLong { max_bytes, .. } if max_bytes == max_key_bytes));
}

#[test]
fn scans_go_both_ways_and_end() {
    let map = volatile().map("main").unwrap();
    for number in 0..500u16 {
        map.insert(number.to_be_bytes(), b"").unwrap();
    }
    let range = || map.range(100u16.to_be_bytes()..300u16.to_be_bytes());
    let mut up: Vec<_> = range().map(|record| record.unwrap().0).collect();
    let down: Vec<_> = range().rev().map(|record| record.unwrap().0).collect();
    assert_eq!(up.len(), 200);
    up.reverse();
    assert_eq!(up, down);
    let mut none = map.range("z".."a");
    assert!(none.next().is_none());
    assert!(none.next().is_none());
}

#[test]
fn many_threads_write_one_map() {
    let map = volatile().map("main").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let map = map.clone();
            scope.spawn(move || {
                for number in 0..1000u16 {
                    let mut key = number.to_be_bytes().to_vec();
                    key.push(thread);
                    map.insert(&key, [thread]).unwrap();
                }
            });
        }
    });
    assert_eq!(map.len().unwrap(), 4000);
}

#[test]
fn a_pool_tells_what_it_is() {
    let (_folder, path) = file("told.pool");
    let options = PoolOptions::new().domain(DomainChoice::Process);
    let pool = Pool::create(&path, &options).unwrap();
    let map = pool.map("main").unwrap();
    map.insert(b"key", b"value").unwrap();
    let stat = pool.stat().unwrap();
    assert_eq!(stat.path.as_deref(), Some(path.as_path()));
    assert_eq!(stat.domain, "process");
    assert!(!stat.medium.is_empty() && !stat.guarantee.is_empty());
    assert_eq!(stat.maps[0].name, "main");
    assert_eq!(stat.maps[0].figures.as_ref().unwrap().records, 1);
    let report = pool.check().unwrap();
    assert!(report.is_consistent(), "{report:?}");
    assert_eq!((report.maps, report.gravest()), (1, None));
}

#[test]
fn a_pool_tells_the_memory_in_use() {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let pool = Pool::create(folder.path().join("used.pool"), &PoolOptions::new()).unwrap();
    let map = pool.map("main").unwrap();
    for number in 0..1000_u32 {
        map.insert(number.to_be_bytes(), [7; 8000]).unwrap();
    }
    let stat = pool.stat().unwrap();
    let memory = stat.memory.expect("/proc is there");
    assert!(memory.resident_bytes >= 8_000_000, "{memory:?}");
    assert!(memory.resident_bytes <= stat.size_bytes, "{memory:?}");
    // Whether the system has huge pages is its affair.
    assert!(memory.huge_bytes <= memory.resident_bytes, "{memory:?}");
    println!("{memory:?}");
}

#[test]
fn a_typed_map_meets_foreign_keys_with_an_error() {
    let map = volatile().map("main").unwrap();
    map.insert(b"text", b"").unwrap();
    map.insert([0x80, 0, 0, 1], b"one").unwrap();
    map.insert(b"longer text", b"").unwrap();
    let typed = map.typed::<i32>();
    assert_eq!(typed.get(1).unwrap().unwrap(), b"one");
    let outcomes: Vec<_> = typed.range(..).collect();
    assert_eq!(outcomes.len(), 3);
    assert!(outcomes.iter().any(|outcome| matches!(outcome, Err(Error::Key(_)))));
}

/// Zeroes every `step`-th page of a closed pool's file, from page `from` on.
fn zero_pages(path: &std::path::Path, from: usize, step: usize) {
    let mut content = std::fs::read(path).unwrap();
    let pages = content.len() / 4096;
    for page in (from..pages).step_by(step) {
        content[page * 4096..(page + 1) * 4096].fill(0);
    }
    std::fs::write(path, content).unwrap();
}

#[test]
fn what_can_be_read_of_a_damaged_pool_is_copied_out_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let options = PoolOptions::new().max_bytes(16 << 20);
    let key = |number: u64| format!("key {number:06}").into_bytes();
    let (mut lost, mut kept) = (0, 0);
    for (from, step) in [(300, 97), (301, 31), (310, 7), (333, 1_000)] {
        let path = folder.path().join(format!("{from}"));
        let pool = Pool::create(&path, &options).unwrap();
        let map = pool.map("main").unwrap();
        for number in 1..=30_000 {
            map.insert(key(number), number.to_le_bytes()).unwrap();
        }
        drop(map);
        pool.close().unwrap();
        let bytes = std::fs::metadata(&path).unwrap().len() as usize;
        assert!(bytes / 4096 > from, "the pool has pages to lose: {}", bytes / 4096);
        zero_pages(&path, from, step);

        let torn = Pool::open(&path, &PoolOptions::new().salvage(true)).unwrap();
        assert!(matches!(torn.open_map("main"), Err(Error::OpenForSalvage)));
        assert!(matches!(torn.map("new"), Err(Error::OpenForSalvage)));
        assert!(matches!(torn.drop_map("main"), Err(Error::OpenForSalvage)));
        assert!(matches!(torn.salvage("other", |_, _| ()), Err(Error::MapNotFound { .. })));
        let mut copied: Vec<Vec<u8>> = Vec::new();
        let report = torn.salvage("main", |key, _| copied.push(key.to_vec())).unwrap();
        assert!(copied.is_sorted_by(|left, right| left < right), "no key twice, all in order");
        let genuine = |found: &Vec<u8>| (1..=30_000).any(|number| key(number) == *found);
        assert!(copied.iter().step_by(101).all(genuine));
        assert!(copied.iter().all(|key| key.starts_with(b"key ")), "none was invented");
        assert_eq!(report.is_consistent(), copied.len() == 30_000, "{} copied", copied.len());
        assert!(!torn.check().unwrap().is_consistent() || report.is_consistent());
        lost += 30_000 - copied.len();
        kept += copied.len();
    }
    assert!(lost > 1_000 && kept > 50_000, "{lost} lost, {kept} kept");
}

/// One thread replaces and removes values that fill the pool, and then idles. Another thread writes
/// values of the same size.
#[test]
fn what_an_idle_thread_has_replaced_serves_others_in_each_kind() {
    let value = vec![7; 10 << 20];
    for kind in ["bztree", "bwtree", "wbtree", "nbtree", "skiplist"] {
        let options = PoolOptions::new().max_bytes(24 << 20).initial_bytes(0);
        let map = Pool::volatile(&options)
            .unwrap()
            .map_with("main", &MapOptions::new().index(kind))
            .unwrap();
        let (map, value) = (&map, &value);
        let (done, idle) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                map.upsert(b"first", value).unwrap();
                map.upsert(b"first", value).unwrap();
                map.remove(b"first").unwrap();
                done.wait();
                idle.wait();
            });
            done.wait();
            let writes = (0..20).map(|_| map.upsert(b"second", value)).position(|one| one.is_ok());
            idle.wait();
            assert!(writes.is_some_and(|refused| refused <= 4), "{kind}: {writes:?}");
        });
    }
}

#[test]
fn a_map_is_renamed_while_no_handle_of_it_is_held() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let pool = Pool::create(&path, &PoolOptions::new()).unwrap();
    let trees = pool.map("trees").unwrap();
    trees.insert(b"ash", b"1").unwrap();
    pool.map("other").unwrap();
    let held = pool.rename_map("trees", "plants").unwrap_err();
    assert!(matches!(held, Error::MapInUse { handles: 1, .. }), "{held}");
    drop(trees);
    for name in ["", &"x".repeat(256)] {
        let refused = pool.rename_map("trees", name).unwrap_err();
        assert!(matches!(refused, Error::MapName { .. }), "{refused}");
    }
    for taken in ["other", "trees"] {
        let refused = pool.rename_map("trees", taken).unwrap_err();
        assert!(matches!(refused, Error::MapExists { .. }), "{refused}");
    }
    let missing = pool.rename_map("none", "plants").unwrap_err();
    assert!(matches!(missing, Error::MapNotFound { .. }), "{missing}");
    pool.rename_map("trees", "plants").unwrap();
    // The name is free.
    assert!(pool.map("trees").unwrap().is_empty().unwrap());
    let plants = pool.open_map("plants").unwrap();
    plants.insert(b"elm", b"2").unwrap();
    drop((plants, pool));
    let pool = Pool::open(&path, &PoolOptions::new()).unwrap();
    assert_eq!(pool.open_map("plants").unwrap().len().unwrap(), 2);
    assert!(pool.check().unwrap().is_consistent());
}
