//! Pools with a log: recovery, backup and restore by the command.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::Folder;
use pando::{Pool, PoolOptions};

const RECORDS: &str = "ash\t1\nelm\t2\noak\t3\n";
const CREATE: &[&str] = &["load", "-", "--create", "--transactional", "--log", "pando.log"];

#[test]
fn a_lost_pool_is_recovered_and_a_backup_restored() {
    let folder = Folder::new();
    folder.ok_with(&[CREATE, &["--sync"]].concat(), RECORDS.as_bytes());
    folder.ok(&["log", "image"]);
    folder.ok(&["put", "yew", "4", "--sync"]);
    let stat = folder.ok(&["stat"]);
    assert!(stat.contains("pando.log") && stat.contains("0 B wait for the disk"), "{stat}");
    assert!(stat.contains("transactions  0 commits undecided; 0 snapshots"), "{stat}");
    assert!(stat.contains("of it for its log"), "{stat}");
    let of_log = folder.ok(&["log", "stat"]);
    assert!(stat.contains(&of_log) && of_log.contains("image of"), "{of_log}");
    let json = folder.ok(&["log", "stat", "--json"]);
    assert!(json.contains("\"has_stopped\": false") && !json.contains("image_error"), "{json}");
    let verified = folder.ok(&["log", "verify"]);
    assert!(verified.contains("image      3 records"), "{verified}");

    folder.ok(&["backup", "backup"]);
    let again = folder.fails(3, &["backup", "backup"]);
    assert!(again.contains("already"), "{again}");
    assert!(folder.ok(&["log", "verify", "backup"]).contains("behind it, up to LSN"));

    // Without its file and without the name of its log there is no pool.
    std::fs::remove_file(folder.path("pando.pool")).expect("removed");
    folder.fails(3, &["get", "yew"]);
    folder.fails(3, &["log", "verify"]);
    let ran = folder.run(&["scan", "--log", "pando.log"]);
    assert_eq!((ran.code, ran.output), (Some(0), format!("{RECORDS}yew\t4\n")));
    assert!(ran.errors.contains("rebuilt from its log"), "{}", ran.errors);
    folder.ok(&["del", "ash", "--sync"]);
    folder.ok(&["compact"]);
    assert_eq!(folder.ok(&["check"]).lines().count(), 1);

    let other = ["--pool", "other.pool"];
    let no_log = folder.fails(2, &[&["restore", "backup"], &other[..]].concat());
    assert!(no_log.contains("name a new directory for it by --log"), "{no_log}");
    let restore = ["restore", "backup", "--log", "other.log"];
    let restored = folder.ok(&[&restore[..], &other].concat());
    assert!(restored.contains("restored 3 records of the image"), "{restored}");
    assert_eq!(folder.ok(&[&["scan"], &other[..]].concat()), format!("{RECORDS}yew\t4\n"));
    folder.fails(3, &[&restore[..], &other].concat());
}

#[test]
fn what_needs_a_log_or_takes_none_says_so() {
    let folder = Folder::with_records(RECORDS);
    for arguments in [
        &["put", "fir", "5", "--sync"][..],
        &["backup", "backup"],
        &["log", "stat"],
        &["log", "verify"],
        &["log", "image"],
        &["get", "ash", "--log", "elsewhere"],
    ] {
        let refused = folder.fails(2, arguments);
        assert!(refused.contains("has no log"), "{refused}");
    }
    let nothing = folder.fails(3, &["log", "verify", "."]);
    assert!(nothing.contains("has no log"), "{nothing}");
    for pool in [&[][..], &["--pool", "new.pool"]] {
        let served = folder.fails(2, &[&["serve", "--sync", "always"], pool].concat());
        assert!(served.contains("--sync needs a pool with a log"), "{served}");
    }
    assert!(!folder.path("new.pool").exists());
    // It may be one with a log, which is lost.
    let lost = folder.fails(2, &["serve", "--sync", "always", "--pool", "new.pool"]);
    assert!(lost.contains("no pool at") && lost.contains("rebuilt from its log"), "{lost}");
    assert!(!lost.contains("leave out --sync"), "{lost}");
    std::fs::write(folder.path("other"), [0; 4096]).expect("written");
    let other = folder.fails(3, &["serve", "--sync", "always", "--pool", "other"]);
    assert!(other.contains("is not a pool"), "{other}");
}

#[test]
fn a_log_that_is_lost_is_replaced() {
    let folder = Folder::new();
    folder.ok_with(&[CREATE, &["--sync"]].concat(), RECORDS.as_bytes());
    // It is fine, and there.
    let refused = folder.fails(3, &["log", "reset"]);
    assert!(refused.contains("has files of a log already"), "{refused}");
    std::fs::remove_dir_all(folder.path("pando.log")).expect("removed");
    let refused = folder.fails(3, &["get", "ash"]);
    assert!(refused.contains("pando log reset"), "{refused}");
    let reset = folder.ok(&["log", "reset", "--log", "new.log"]);
    assert!(reset.contains("new.log, with an image of all commits up to LSN"), "{reset}");
    assert_eq!(folder.ok(&["scan"]), RECORDS);
    assert!(folder.ok(&["log", "verify"]).contains("image      3 records"));
    folder.ok(&["put", "yew", "4", "--sync"]);

    std::fs::remove_file(folder.path("pando.pool")).expect("removed");
    let only_copy = folder.fails(3, &["log", "reset", "--log", "other.log"]);
    assert!(only_copy.contains("is not reset"), "{only_copy}");
    assert_eq!(folder.ok(&["scan", "--log", "new.log"]), format!("{RECORDS}yew\t4\n"));
    assert!(!folder.path("other.log").exists());

    let plain = Folder::with_records(RECORDS);
    let no_log = plain.fails(2, &["log", "reset", "--log", "new.log"]);
    assert!(no_log.contains("has no log"), "{no_log}");
}

#[test]
fn a_write_that_no_log_has_is_not_synced() {
    let folder = Folder::new();
    // Without a log of the pool, and without --transactional.
    let plain = ["load", "-", "--create", "--sync"];
    for (arguments, remedy) in [(vec![], "--log"), (vec!["--log", "log"], "--transactional")] {
        let ran = folder.run_with(&[&plain[..], &arguments].concat(), RECORDS.as_bytes());
        assert_eq!(ran.code, Some(2), "{}", ran.output);
        assert!(ran.errors.contains(remedy), "{}", ran.errors);
        assert!(!folder.path("pando.pool").exists(), "{arguments:?}");
    }
    folder.ok_with(&["load", "-", "--create", "--log", "log"], RECORDS.as_bytes());
    for arguments in [
        &["put", "ash", "9", "--sync"][..],
        &["put", "ash", "9", "--sync", "--map", "new"],
        &["del", "ash", "--sync"],
        &["load", "more.tsv", "--sync"],
    ] {
        folder.write("more.tsv", "ash\t9\n");
        let refused = folder.fails(2, arguments);
        assert!(refused.contains("--transactional"), "{refused}");
    }
    assert_eq!(folder.ok(&["scan"]), RECORDS);
    assert_eq!(folder.ok(&["maps", "list"]), "\"main\": bztree\n");
}

#[test]
fn a_mistyped_path_does_not_take_the_log_from_a_pool() {
    let folder = Folder::new();
    folder.ok_with(&[CREATE, &["--sync"]].concat(), RECORDS.as_bytes());
    let mistyped = ["--pool", "pandu.pool", "--log", "pando.log", "scan"];
    let refused = folder.fails(3, &mistyped);
    let own = folder.path("pando.pool").canonicalize().expect("its path");
    assert!(refused.contains("no pool at pandu.pool"), "{refused}");
    assert!(refused.contains(&own.display().to_string()), "{refused}");
    folder.fails(3, &["--pool", "pandu.pool", "--log", "pando.log", "put", "a", "1", "--create"]);
    assert!(!folder.path("pandu.pool").exists());
    assert_eq!(folder.ok(&["scan"]), RECORDS);
    // A pool that was moved has its log, and a lost one is rebuilt under any name.
    std::fs::rename(own, folder.path("moved.pool")).expect("moved");
    assert_eq!(folder.ok(&["--pool", "moved.pool", "scan"]), RECORDS);
    folder.fails(3, &mistyped);
    std::fs::remove_file(folder.path("moved.pool")).expect("removed");
    assert_eq!(folder.ok(&mistyped), RECORDS);
}

#[test]
fn ids_are_texts_of_thirty_two_digits() {
    let folder = Folder::new();
    folder.ok_with(&[CREATE, &["--sync"]].concat(), RECORDS.as_bytes());
    let json: serde_json::Value =
        serde_json::from_str(&folder.ok(&["log", "verify", "--json"])).expect("JSON");
    let text = folder.ok(&["log", "verify"]);
    for id in [&json["pool_id"], &json["log_id"]] {
        let id = id.as_str().expect("a text");
        assert!(id.len() == 32 && text.contains(id), "{id}: {text}");
    }
    let no_folder = folder.fails(3, &["backup", "none/backup"]);
    assert!(no_folder.contains("the folder none does not exist"), "{no_folder}");
}

/// A backup has all commits up to one of them, with all that were synced before it began. The pool
/// that is made from it has a log of its own.
#[test]
fn a_pool_that_another_process_writes_to_is_copied_and_restored_with_a_new_log() {
    let folder = Folder::new();
    folder.ok_with(&[CREATE, &["--sync"]].concat(), RECORDS.as_bytes());
    let pool = Pool::open(folder.path("pando.pool"), &PoolOptions::new()).expect("opens");
    let map = pool.open_map("main").expect("a map");
    let (synced, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (reached, ends) = (synced.clone(), is_over.clone());
    let writer = std::thread::spawn(move || {
        for number in 1_u64.. {
            let key = format!("{number:08}");
            let commit = pool.transaction(|tx| {
                ["first", "last"].iter().try_for_each(|name| tx.put(&map, name, &key))?;
                tx.put(&map, &key, "1")
            });
            commit.expect("commits");
            if number % 4 == 0 {
                pool.sync().expect("synced");
                reached.store(number, Ordering::SeqCst);
            }
            if number % 100 == 0 {
                pool.write_image().expect("an image");
            }
            if ends.load(Ordering::SeqCst) {
                break;
            }
        }
    });
    let ids_of = |arguments: &[&str]| {
        let verified = folder.ok(&[&["log", "verify", "--json"], arguments].concat());
        let json: serde_json::Value = serde_json::from_str(&verified).expect("JSON");
        ["log_id", "pool_id"].map(|name| json[name].as_str().expect("a text").to_owned())
    };
    let mut earlier: Vec<[String; 2]> = Vec::new();
    for round in 1..=4 {
        while synced.load(Ordering::SeqCst) < round * 50 && !writer.is_finished() {
            std::thread::yield_now();
        }
        let backup = format!("backup-{round}");
        let before = synced.load(Ordering::SeqCst);
        folder.ok(&["backup", &backup]);
        let (pool, log) = (format!("{round}.pool"), format!("{round}.log"));
        folder.ok(&["--pool", &pool, "--log", &log, "restore", &backup]);
        let scanned = folder.ok(&["--pool", &pool, "scan"]);
        let mut numbers = 0;
        let mut ends = Vec::new();
        for line in scanned.lines() {
            match line.split_once('\t') {
                Some(("first" | "last", number)) => ends.push(number.parse::<u64>().expect("one")),
                Some((number, "1")) if number.len() == 8 => {
                    numbers += 1;
                    assert_eq!(number.parse(), Ok(numbers), "{line}");
                }
                _ => assert!(RECORDS.contains(line), "{line}"),
            }
        }
        assert_eq!(ends, [numbers, numbers]);
        assert!(numbers >= before, "{numbers} of {before} synced");
        // The backup has the ids of the pool.
        let [of_pool, of_backup, of_restored] =
            [&[][..], &[backup.as_str()], &["--pool", &pool]].map(ids_of);
        assert_eq!(of_backup, of_pool);
        for (other, own) in
            earlier.iter().chain([&of_pool]).flat_map(|ids| ids.iter().zip(&of_restored))
        {
            assert_ne!(own, other);
        }
        earlier.push(of_restored);
    }
    is_over.store(true, Ordering::SeqCst);
    writer.join().expect("the writer commits");
}
