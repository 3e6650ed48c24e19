//! Stores by the command.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::Folder;

const STORE: [&str; 4] = ["--store", "words", "--memory", "16M"];

#[test]
fn a_store_is_used_like_a_pool() {
    let folder = Folder::new();
    let with =
        |words: &[&str]| [&STORE[..], words].concat().into_iter().map(String::from).collect();
    let ok = |words: &[&str]| {
        let words: Vec<String> = with(words);
        folder.ok(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let fails = |code, words: &[&str]| {
        let words: Vec<String> = with(words);
        folder.fails(code, &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let missing = fails(3, &["get", "ash"]);
    assert!(missing.contains("there is no store in words"), "{missing}");
    let records: String =
        (0..80_000).map(|number| format!("key{number:06}\t{}\n", "v".repeat(300))).collect();
    folder.write("records.tsv", &records);
    assert!(ok(&["load", "records.tsv", "--create", "--sync"]).contains("80,000"));
    assert_eq!(ok(&["get", "key012345"]), format!("{}\n", "v".repeat(300)));
    assert_eq!(ok(&["scan"]), records);
    ok(&["put", "ash", "1", "--map", "others"]);
    ok(&["del", "key000000"]);
    fails(1, &["get", "key000000"]);
    let stat = ok(&["stat"]);
    for told in [
        "store         words",
        "of 16.00 MiB",
        " disk reads a visit",
        " by cleaning",
        "checkpoint",
        "\"main\"  bwtree",
    ] {
        assert!(stat.contains(told), "{told}: {stat}");
    }
    assert!(ok(&["stat", "--json"]).contains("\"memory_bytes\": 16777216"));
    let checked = ok(&["check"]);
    assert!(checked.contains("consistent: 2 maps") && !checked.contains("block"), "{checked}");
    ok(&["drop", "others"]);
    fails(1, &["get", "ash", "--map", "others"]);
    assert!(fails(3, &["compact"]).contains("cleans itself"));
    for words in
        [&["backup", "copy"][..], &["restore", "copy"], &["log", "verify"], &["log", "reset"]]
    {
        let refused = fails(2, words);
        assert!(refused.contains("is a store"), "{words:?}: {refused}");
    }
    fails(2, &["scan", "--pool", "other"]);
    folder.fails(2, &["scan", "--memory", "4M"]);
    assert!(!folder.path("pando.pool").exists());
}

/// A batch of long values takes more bytes than a commit of a store.
#[test]
fn long_values_of_a_store_are_loaded_and_copied() {
    let folder = Folder::new();
    let with = |words: &[&'static str]| [&STORE[..], words].concat();
    let records: String =
        (0..300).map(|number| format!("key{number:03}\t{}\n", "v".repeat(4 << 10))).collect();
    folder.write("records.tsv", &records);
    let told = folder.ok(&with(&["load", "records.tsv", "--create"]));
    assert!(told.starts_with("loaded 300 records (300 new, 0 replaced)"), "{told}");
    folder.ok(&with(&["maps", "copy", "main", "again"]));
    assert_eq!(folder.ok(&with(&["dump", "--map", "again"])), records);
    folder.ok(&with(&["drop", "again"]));
    let json = folder.ok(&with(&["stat", "--json"]));
    assert!(json.contains("\"dropped_maps\": 0"), "{json}");
}

/// Changes a byte of each place in the files of the store's pages that begins with `found`.
fn damage_pages(folder: &Folder, found: &[u8]) {
    let mut damaged = 0;
    for entry in std::fs::read_dir(folder.path("words/pages")).expect("a folder") {
        let path = entry.expect("a file").path();
        let mut bytes = std::fs::read(&path).expect("reads");
        let places: Vec<_> =
            bytes.windows(found.len()).enumerate().filter(|(_, part)| *part == found).collect();
        let places: Vec<_> = places.into_iter().map(|(at, _)| at).collect();
        damaged += places.len();
        places.into_iter().for_each(|at| bytes[at] ^= 1);
        std::fs::write(path, bytes).expect("written");
    }
    assert!(damaged > 0);
}

/// The log is not replayed over a damaged page: `stat` and `check` say so.
#[test]
fn a_damaged_page_of_a_store_is_shown() {
    let folder = Folder::new();
    let open = || pando::Store::open(folder.path("words"), 16 << 20).expect("opens");
    let key = |number: u32| format!("key{number:05}");
    let store = open();
    let map = store.map("main").expect("created");
    (0..4_000).for_each(|number| map.put(key(number), b"first").expect("written"));
    drop(map);
    store.close().expect("durable");
    let store = open();
    // Its replay needs the page.
    assert!(store.open_map("main").expect("it is there").remove(key(1_006)).expect("removed"));
    store.sync().expect("durable");
    // As a kill leaves it.
    drop(store);
    damage_pages(&folder, key(1_005).as_bytes());
    let stat = folder.ok(&[&STORE[..], &["stat"]].concat());
    assert!(
        stat.contains("damaged       1 page that the log could not be replayed over"),
        "{stat}"
    );
    let json = folder.ok(&[&STORE[..], &["stat", "--json"]].concat());
    assert!(json.contains("\"damaged_pages\": 1"), "{json}");
    let checked = folder.run(&[&STORE[..], &["check"]].concat());
    assert_ne!(checked.code, Some(0));
    let told = checked.output;
    assert!(told.contains("lacks commits of the log") && told.contains("checksum"), "{told}");
    folder.ok(&[&STORE[..], &["get", "key02000"]].concat());
    let refused = folder.run(&[&STORE[..], &["get", "key01005"]].concat());
    assert_ne!(refused.code, Some(0));
    assert!(refused.errors.contains("lacks commits"), "{}", refused.errors);
}

/// The name of a map is in a damaged page: the map is listed by its number, and can be copied out.
#[test]
fn a_map_of_a_store_whose_name_is_damaged_is_dumped_by_its_slot() {
    let folder = Folder::new();
    let with = |words: &[&'static str]| [&STORE[..], words].concat();
    let records: String = (0..4_000).map(|number| format!("key{number:05}\tvalue\n")).collect();
    folder.write("records.tsv", &records);
    folder.ok(&with(&["load", "records.tsv", "--create"]));
    // Its key in the list of maps.
    damage_pages(&folder, b"\x01\x01mmain");
    let stat = folder.ok(&with(&["stat"]));
    for told in ["damaged       a part of the list of maps: page ", "  slot 2  damaged: its name"] {
        assert!(stat.contains(told), "{told}: {stat}");
    }
    assert!(folder.ok(&with(&["maps", "list"])).starts_with("slot 2: its name cannot be read"));
    let refused = folder.run(&with(&["get", "key02000"]));
    assert!(refused.errors.contains("is damaged"), "{}", refused.errors);
    let dumped = folder.run(&with(&["dump", "--slot", "2"]));
    assert_ne!(dumped.code, Some(0));
    assert!(dumped.errors.contains("unreadable: page "), "{}", dumped.errors);
    // All but those of the page.
    assert!(dumped.output.len() > records.len() / 2 && records.ends_with(&dumped.output));
    folder.write("rest.tsv", &dumped.output);
    folder.ok(&["--store", "other", "--memory", "16M", "load", "rest.tsv", "--create"]);
}

/// A directory that is mounted so that nothing can be written there.
struct ReadOnly(PathBuf);

impl ReadOnly {
    /// `None` if this process may not mount.
    fn mount(of: &Path, at: &Path) -> Option<Self> {
        let mount = |arguments: &[&str]| {
            let mut command = Command::new("mount");
            let command = command.args(arguments).arg(at).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        std::fs::create_dir(at).unwrap();
        mount(&["--bind", of.to_str().unwrap()]).then_some(())?;
        let mounted = Self(at.to_owned());
        assert!(mount(&["-o", "remount,bind,ro"]), "{}", at.display());
        Some(mounted)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_store_that_cannot_be_written_is_reported_on() {
    let folder = Folder::new();
    folder.write("records.tsv", "ash\t1\nelm\t2\n");
    folder.ok(&[&STORE[..], &["load", "records.tsv", "--create"]].concat());
    let Some(_mounted) = ReadOnly::mount(&folder.path("words"), &folder.path("mounted")) else {
        println!("note: skipped, this process may not mount a file system");
        return;
    };
    let store = ["--store", "mounted", "--memory", "16M"];
    let ok = |words: &[&str]| folder.ok(&[&store[..], words].concat());
    assert!(ok(&["stat"]).contains("\"main\"  bwtree"));
    for words in [&["check"][..], &["check", "--online"]] {
        let checked = ok(words);
        assert!(checked.starts_with("consistent: 1 map, "), "{checked}");
        assert!(checked.contains(", 2 records"), "{checked}");
    }
    assert_eq!(ok(&["get", "ash"]), "1\n");
    assert_eq!(ok(&["scan", "--reverse"]), "elm\t2\nash\t1\n");
    assert_eq!(ok(&["dump"]), "ash\t1\nelm\t2\n");
    assert!(ok(&["maps", "list"]).starts_with("\"main\": bwtree"));
    assert!(folder.fails(1, &[&store[..], &["get", "oak"]].concat()).contains("oak"));
    folder.fails(3, &[&store[..], &["put", "oak", "3"]].concat());
    folder.fails(3, &[&store[..], &["maps", "rename", "main", "other"]].concat());
    for memory in ["4M", "100T"] {
        for command in [&["stat"][..], &["check"], &["get", "ash"]] {
            let store = ["--store", "mounted", "--memory", memory];
            let refused = folder.fails(2, &[&store[..], command].concat());
            assert!(refused.contains("--memory is "), "{refused}");
        }
    }
}

/// A store that the system cannot look at is not called missing.
#[test]
fn a_store_that_cannot_be_looked_at_is_no_missing_one() {
    let folder = Folder::new();
    std::os::unix::fs::symlink("loop", folder.path("loop")).expect("a link to itself");
    folder.write("file", "");
    for command in [&["stat"][..], &["check"], &["get", "ash"]] {
        let with = |store| [&["--store", store][..], command].concat();
        let refused = folder.fails(3, &with("loop"));
        assert!(refused.contains("cannot look at loop/pages: "), "{refused}");
        for missing in ["file", "nothing"] {
            let refused = folder.fails(3, &with(missing));
            assert!(refused.contains("there is no store in "), "{refused}");
        }
    }
}
