//! Pools of earlier formats. A script stands for the program that wrote them.

mod common;

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use common::Folder;

const FORMER: &[u8] = include_bytes!("../../../pando/tests/fixtures/format-2.pool");

/// A script that prints what the programs of format 2 did: the first `stat` of a pool with
/// `records`, each later one with `later`.
fn script(folder: &Folder, name: &str, records: u64, later: u64) -> String {
    let refusal = "*--force*) echo \"error: unexpected argument '--force' found\" >&2; exit 2 ;;";
    script_with(folder, name, ["kind", "settings", refusal], records, later)
}

/// Such a script, with its names of a map's index and options, and the case of what it refuses.
fn script_with(
    folder: &Folder,
    name: &str,
    [index, options, refusal]: [&str; 3],
    records: u64,
    later: u64,
) -> String {
    let figures = r#""height": 2, "inner_nodes": 0, "leaves": 1"#;
    let map = |name: &str, records: u64| {
        format!(
            r#"{{"name": "{name}", "{index}": "skiplist", "{options}": {{"no_longer": "1"}},
            {figures}, "records": {records}, "leaf_fill": 0.5, "bytes_a_record": 64.25}}"#
        )
    };
    let stat = |records| {
        format!(
            r#"{{"path": "pando.pool", "domain": "process", "size_bytes": 1048576,
            "max_bytes": 1048576, "incarnation": 3, "maps": [{}, {}]}}"#,
            map("main", records),
            map("server", 1)
        )
    };
    let (stat, later) = (stat(records), stat(later));
    let dump = r#"{"key":"ash","value":"1"}
{"key_hex":"ff","value":"2"}"#;
    let text = format!(
        "#!/bin/sh\ncase \"$3 $5 $*\" in\n\
         {refusal}\n\
         stat*) if mkdir {name}.ran 2>/dev/null; then echo '{stat}'; else echo '{later}'; fi ;;\n\
         'dump main '*) echo '{dump}' ;;\n\
         'dump server '*) echo '{{\"key\":\"s\",\"value\":\"t\"}}' ;;\nesac\n"
    );
    folder.write(name, text);
    let path = folder.path(name);
    set_mode(&path, 0o755);
    path.display().to_string()
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("the mode is set");
}

#[test]
fn a_pool_of_an_earlier_format_is_upgraded_by_the_program_that_wrote_it() {
    let folder = Folder::new();
    folder.write("pando.pool", FORMER);
    let without = folder.fails(2, &["upgrade"]);
    assert!(without.contains("format version 2") && without.contains("--with"), "{without}");
    let missing = folder.fails(2, &["upgrade", "--with", &script(&folder, "fewer", 3, 3)]);
    assert!(missing.contains("has 3 records, and 2 were dumped"), "{missing}");
    assert!(!folder.path("pando.pool.upgrading").exists());
    let written = folder.fails(2, &["upgrade", "--with", &script(&folder, "written", 2, 3)]);
    assert!(written.contains("another process has written"), "{written}");
    assert!(!folder.path("pando.pool.upgrading").exists());
    folder.fails(3, &["upgrade", "--with", "./no-such-program"]);
    folder.fails(2, &["upgrade", "--with", "/bin/false"]);
    let said = folder.ok(&["upgrade", "--with", &script(&folder, "former", 2, 2)]);
    assert!(said.contains("2 maps with 3 records from format version 2"), "{said}");
    assert_eq!(folder.ok(&["scan"]), "ash\t1\n\\xff\t2\n");
    assert_eq!(folder.ok(&["maps", "list"]), "\"main\": skiplist\n\"server\": skiplist\n");
    assert_eq!(folder.ok(&["scan", "--map", "server", "--force"]), "s\tt\n");
    assert!(std::fs::read(folder.path("pando.pool.format-2")).unwrap() == FORMER);
    assert!(folder.ok(&["upgrade"]).contains("has the present format"));
}

#[test]
fn what_an_interrupted_upgrade_has_left_is_not_replaced() {
    let folder = Folder::new();
    folder.write("pando.pool", FORMER);
    let program = script(&folder, "former", 2, 2);
    for left in ["pando.pool.upgrading", "pando.pool.format-2"] {
        folder.write(left, "x");
        let refused = folder.fails(2, &["upgrade", "--with", &program]);
        assert!(refused.contains(left), "{refused}");
        std::fs::remove_file(folder.path(left)).unwrap();
    }
    folder.ok(&["upgrade", "--with", &program]);
}

#[test]
fn the_new_pool_has_the_mode_of_the_former_one_and_is_behind_the_same_link() {
    let folder = Folder::new();
    folder.write("real.pool", FORMER);
    set_mode(&folder.path("real.pool"), 0o640);
    symlink("real.pool", folder.path("pando.pool")).expect("linked");
    folder.ok(&["upgrade", "--with", &script(&folder, "former", 2, 2)]);
    assert!(folder.path("pando.pool").is_symlink());
    assert_eq!(folder.path("real.pool").metadata().expect("it is there").mode() & 0o777, 0o640);
    assert!(folder.path("real.pool.format-2").exists());
    assert_eq!(folder.ok(&["scan", "--count"]), "2\n");
}

#[test]
fn a_program_of_a_later_format_wants_force_for_the_map_of_a_server() {
    let folder = Folder::new();
    let former = include_bytes!("../../../pando/tests/fixtures/format-4.pool");
    folder.write("pando.pool", former);
    let names = ["index", "options", "'dump server '*json-lines) exit 2 ;;"];
    let said = folder.ok(&["upgrade", "--with", &script_with(&folder, "later", names, 2, 2)]);
    assert!(said.contains("2 maps with 3 records from format version 4"), "{said}");
    assert_eq!(folder.ok(&["maps", "list"]), "\"main\": skiplist\n\"server\": skiplist\n");
}
