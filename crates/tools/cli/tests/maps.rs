//! Whole maps: listed, renamed and copied.

mod common;

use common::Folder;

#[test]
fn maps_are_listed() {
    let folder = Folder::with_records("a\t1\n");
    folder.ok(&["put", "b", "2", "--map", "tx", "--transactional"]);
    assert_eq!(folder.ok(&["maps", "list"]), "\"main\": bztree\n\"tx\": bztree, transactional\n");
    let json = folder.ok(&["maps", "list", "--json"]);
    assert!(json.contains("\"name\": \"main\"") && json.contains("\"is_transactional\": true"));
}

#[test]
fn a_renamed_map_has_its_records() {
    let folder = Folder::with_records("a\t1\n");
    folder.ok(&["put", "b", "2", "--map", "other"]);
    let taken = folder.fails(2, &["maps", "rename", "main", "other"]);
    assert!(taken.contains("there is a map \"other\" already"), "{taken}");
    let missing = folder.fails(1, &["maps", "rename", "nowhere", "x"]);
    assert!(missing.contains("it has \"main\", \"other\""), "{missing}");
    folder.fails(2, &["maps", "rename", "main", ""]);
    folder.fails(2, &["maps", "rename", "main", "server"]);
    folder.ok(&["maps", "rename", "main", "trees"]);
    assert_eq!(folder.ok(&["scan", "--map", "trees"]), "a\t1\n");
    folder.fails(1, &["scan", "--map", "main"]);
    folder.ok(&["check"]);
}

#[test]
fn a_copy_has_the_records_and_another_index_if_wanted() {
    let lines: String = (0..1_000).map(|number| format!("{number:04}\t{number}\n")).collect();
    let folder = Folder::with_records(&lines);
    folder.ok(&["maps", "copy", "main", "again"]);
    folder.ok(&["maps", "copy", "main", "tx", "--transactional"]);
    folder.ok(&["maps", "copy", "tx", "skip", "--index", "skiplist"]);
    for map in ["again", "tx", "skip"] {
        assert_eq!(folder.ok(&["dump", "--map", map]), lines, "{map}");
    }
    let maps = folder.ok(&["maps", "list"]);
    assert!(maps.contains("\"skip\": skiplist, transactional"), "{maps}");
    folder.fails(2, &["maps", "copy", "main", "again"]);
    folder.fails(1, &["maps", "copy", "nowhere", "x"]);
    folder.fails(2, &["maps", "copy", "main", ""]);
    folder.fails(2, &["maps", "copy", "main", &"x".repeat(1_000)]);
    folder.fails(2, &["maps", "copy", "main", ".copy"]);
    assert!(!folder.ok(&["maps", "list"]).contains(".copy"));
    folder.ok(&["put", "x", "1", "--map", ".copy", "--force"]);
    let left = folder.fails(2, &["maps", "copy", "main", "x"]);
    assert!(left.contains("an interrupted copy"), "{left}");
    folder.ok(&["check"]);
}

#[test]
fn maps_of_a_store_are_renamed_and_copied() {
    let folder = Folder::new();
    folder.ok(&["--store", "store", "put", "a", "1", "--create"]);
    folder.ok(&["--store", "store", "maps", "rename", "main", "trees"]);
    folder.ok(&["--store", "store", "maps", "copy", "trees", "again"]);
    for map in ["trees", "again"] {
        assert_eq!(folder.ok(&["--store", "store", "scan", "--map", map]), "a\t1\n");
    }
    folder.fails(1, &["--store", "store", "scan", "--map", "main"]);
}

#[test]
fn maps_of_pando_itself_need_force() {
    let folder = Folder::with_records("a\t1\n");
    for map in ["server", "pando.sessions", ".copy"] {
        let refused = folder.fails(2, &["put", "a", "1", "--map", map]);
        assert!(refused.contains("--force"), "{refused}");
    }
    folder.ok(&["put", "a", "1", "--map", "server", "--force"]);
    let by_slot = folder.fails(2, &["drop", "--slot", "1"]);
    assert!(by_slot.contains("slot 1 has the map \"server\""), "{by_slot}");
    folder.fails(2, &["drop", "--slot", "0"]);
    assert_eq!(folder.ok(&["scan"]), "a\t1\n");
}
