//! Pools of earlier formats. A script stands for the program that wrote them.

mod common;

use std::os::unix::fs::PermissionsExt;

use common::Folder;

const FORMER: &[u8] = include_bytes!("../../../pando/tests/fixtures/format-2.pool");

fn script(folder: &Folder, name: &str, records: u64) -> String {
    let stat = format!(
        r#"{{"max_bytes": 1048576, "maps": [{{"name": "main", "slot": 0, "index": "skiplist",
        "options": {{"no_longer": "1"}}, "records": {records}}}]}}"#
    );
    let dump = r#"{"key": "ash", "value": "1"}
{"key_hex": "ff", "value": "2"}"#;
    let text = format!(
        "#!/bin/sh\ncase \"$3\" in\nstat) echo '{stat}' ;;\ndump) echo '{dump}' ;;\nesac\n"
    );
    folder.write(name, text);
    let path = folder.path(name);
    let permissions = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&path, permissions).expect("the script is made executable");
    path.display().to_string()
}

#[test]
fn a_pool_of_an_earlier_format_is_upgraded_by_the_program_that_wrote_it() {
    let folder = Folder::new();
    folder.write("pando.pool", FORMER);
    let without = folder.fails(2, &["upgrade"]);
    assert!(without.contains("format version 2") && without.contains("--with"), "{without}");
    let missing = folder.fails(2, &["upgrade", "--with", &script(&folder, "fewer", 3)]);
    assert!(missing.contains("has 3 records, and 2 were dumped"), "{missing}");
    assert!(!folder.path("pando.pool.upgrading").exists());
    folder.fails(3, &["upgrade", "--with", "./no-such-program"]);
    folder.fails(2, &["upgrade", "--with", "/bin/false"]);
    let said = folder.ok(&["upgrade", "--with", &script(&folder, "former", 2)]);
    assert!(said.contains("1 map with 2 records from format version 2"), "{said}");
    assert_eq!(folder.ok(&["scan"]), "ash\t1\n\\xff\t2\n");
    assert_eq!(folder.ok(&["maps", "list"]), "\"main\": skiplist\n");
    assert!(std::fs::read(folder.path("pando.pool.format-2")).unwrap() == FORMER);
    assert!(folder.ok(&["upgrade"]).contains("has the present format"));
}

#[test]
fn what_an_interrupted_upgrade_has_left_is_not_replaced() {
    let folder = Folder::new();
    folder.write("pando.pool", FORMER);
    let program = script(&folder, "former", 2);
    for left in ["pando.pool.upgrading", "pando.pool.format-2"] {
        folder.write(left, "x");
        let refused = folder.fails(2, &["upgrade", "--with", &program]);
        assert!(refused.contains(left), "{refused}");
        std::fs::remove_file(folder.path(left)).unwrap();
    }
    folder.ok(&["upgrade", "--with", &program]);
}
