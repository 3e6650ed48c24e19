//! Loading files, good ones and bad ones.

mod common;

use common::Folder;

#[test]
fn tsv_and_json_lines_are_told_by_their_extension() {
    let folder = Folder::new();
    folder.write("one.tsv", "a\t1\r\nb\ttwo\\nlines\n\n");
    folder.write(
        "two.jsonl",
        "{\"key\":\"c\",\"value\":\"{\\\"n\\\":1}\"}\n\n{\"key\":\"d\",\"value\":\"4\"}",
    );
    let told = folder.ok(&["load", "one.tsv", "--create"]);
    assert!(told.starts_with("loaded 2 records (2 new, 0 replaced)"), "{told}");
    folder.ok(&["load", "two.jsonl"]);
    assert_eq!(folder.ok(&["scan"]), "a\t1\nb\ttwo\\nlines\nc\t{\"n\":1}\nd\t4\n");

    folder.write("three.xml", "a,1\n");
    let unknown = folder.fails(2, &["load", "three.xml"]);
    assert!(unknown.contains(".csv") && unknown.contains("--format"), "{unknown}");
    folder.write("four.txt", "a,1\n");
    let unknown = folder.fails(2, &["load", "four.txt"]);
    assert!(unknown.contains("--format"), "{unknown}");
}

#[test]
fn a_quote_of_a_csv_that_is_not_closed_ends_the_load_whatever_is_skipped() {
    let folder = Folder::new();
    folder.write("trees.csv", "key,value\noak,1\n\"elm,2\nash,3\n");
    let load = ["load", "trees.csv", "--create", "--on-error", "skip"];
    let open = folder.fails(2, &load);
    assert!(open.contains("trees.csv:3: the file ends inside a quoted field"), "{open}");
    assert_eq!(folder.ok(&["scan"]), "oak\t1\n");
}

#[test]
fn columns_of_a_csv_are_loaded() {
    let folder = Folder::new();
    folder.write("trees.csv", "name,height,note\r\noak,39,\"tall,\nold\"\r\nfir,60,\r\n");
    let more = folder.fails(2, &["load", "trees.csv", "--create"]);
    assert!(more.contains("trees.csv:1: the header has no column \"key\""), "{more}");
    assert!(more.contains("\"name\", \"height\", \"note\""), "{more}");
    assert!(!folder.path("pando.pool").exists());
    let columns = ["--key-column", "name", "--value-column", "note"];
    folder.ok(&[&["load", "trees.csv", "--create"], &columns[..]].concat());
    assert_eq!(folder.ok(&["scan"]), "fir\t\noak\ttall,\\nold\n");
    folder.write("short.csv", "key,value\noak,1\nelm\nash,2\n");
    let short = folder.fails(2, &["load", "short.csv"]);
    assert!(short.contains("short.csv:3: the record has 1 field, and the header 2"), "{short}");
    folder.ok(&["load", "short.csv", "--on-error", "skip", "--map", "short"]);
    assert_eq!(folder.ok(&["scan", "--map", "short"]), "ash\t2\noak\t1\n");
    folder.write("plain.tsv", "a\t1\n");
    let tsv = folder.fails(2, &["load", "plain.tsv", "--key-column", "name"]);
    assert!(tsv.contains("are for CSV"), "{tsv}");
}

#[test]
fn a_sorted_file_is_loaded_in_runs() {
    let folder = Folder::new();
    let lines: String = (0..3_000).map(|number| format!("{number:06}\t{number}\n")).collect();
    folder.write("sorted.tsv", &lines);
    for index in ["bztree", "nbtree"] {
        let load = ["load", "sorted.tsv", "--create", "--map", index, "--index", index, "--sorted"];
        let said = folder.ok(&load);
        assert!(said.contains("loaded 3,000 records in"), "{said}");
        assert_eq!(folder.ok(&["dump", "--map", index]), lines);
    }
    let transactional = ["load", "sorted.tsv", "--map", "tx", "--transactional", "--sorted"];
    folder.ok(&transactional);
    assert_eq!(folder.ok(&["dump", "--map", "tx"]), lines);
    folder.write("mixed.tsv", "a\t1\nc\t2\nb\t3\nc\t4\nd\t5\n");
    let mixed = folder.fails(2, &["load", "mixed.tsv", "--sorted", "--map", "mixed"]);
    assert!(mixed.contains("mixed.tsv:3: the key is not above"), "{mixed}");
    let skip = ["load", "mixed.tsv", "--sorted", "--map", "skipped", "--on-error", "skip"];
    assert!(folder.ok(&skip).contains("2 lines skipped"));
    assert_eq!(folder.ok(&["scan", "--map", "skipped"]), "a\t1\nc\t2\nd\t5\n");
    folder.fails(2, &["load", "mixed.tsv", "--sorted", "--writers", "2"]);
}

#[test]
fn the_last_of_several_lines_with_one_key_counts() {
    let folder = Folder::new();
    let tsv: String = (0..20_000).map(|line| format!("key{}\t{line}\n", line % 10)).collect();
    folder.write("repeated.tsv", tsv);
    let told = folder.ok(&["load", "repeated.tsv", "--create", "--writers", "7"]);
    assert!(told.starts_with("loaded 20,000 records (10 new, 19,990 replaced)"), "{told}");
    let expected: String = (0..10).map(|key| format!("key{key}\t{}\n", 19_990 + key)).collect();
    assert_eq!(folder.ok(&["scan"]), expected);
}

#[test]
fn a_malformed_line_is_named_and_stops_the_load() {
    let folder = Folder::new();
    folder.write("bad.tsv", "a\t1\nb\t2\nno tab here\nc\t3\n");
    let named = folder.fails(2, &["load", "bad.tsv", "--create"]);
    assert!(named.contains("bad.tsv:3: no TAB between key and value"), "{named}");
    assert_eq!(folder.ok(&["scan"]), "a\t1\nb\t2\n");
}

#[test]
fn a_malformed_line_is_named_and_skipped_if_asked() {
    let folder = Folder::new();
    folder.write(
        "bad.jsonl",
        "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\n{\"key\":\"c\",\"value\":\"3\"}\n",
    );
    let ran = folder.run(&["load", "bad.jsonl", "--create", "--on-error", "skip"]);
    assert_eq!(ran.code, Some(0), "{}", ran.errors);
    assert!(ran.errors.contains("skipped bad.jsonl:2: "), "{}", ran.errors);
    assert!(ran.output.contains("1 line skipped"), "{}", ran.output);
    assert_eq!(folder.ok(&["scan"]), "a\t1\nc\t3\n");
}

#[test]
fn of_many_bad_lines_some_are_named_and_all_counted() {
    let folder = Folder::new();
    let ran = folder
        .run_with(&["load", "-", "--create", "--on-error", "skip"], "bad\n".repeat(100).as_bytes());
    assert_eq!(ran.code, Some(0), "{}", ran.errors);
    assert!(ran.output.contains("100 lines skipped"), "{}", ran.output);
    let named = ran.errors.lines().filter(|line| line.starts_with("pando: skipped")).count();
    assert_eq!(named, 20, "{}", ran.errors);
    assert!(ran.errors.contains("and 80 lines more"), "{}", ran.errors);
}

#[test]
fn inserting_refuses_a_key_that_is_there() {
    let folder = Folder::with_records("b\told\n");
    folder.write("more.tsv", "a\t1\nb\t2\nc\t3\n");
    let refused = folder.fails(2, &["load", "more.tsv", "--insert"]);
    assert!(
        refused.contains("more.tsv:2: the key is already there; leave out --insert"),
        "{refused}"
    );
    assert_eq!(folder.ok(&["get", "b"]), "old\n");
    assert_eq!(folder.ok(&["get", "a"]), "1\n");
    folder.run(&["del", "a", "c"]);
    let ran = folder.run(&["load", "more.tsv", "--insert", "--on-error", "skip"]);
    assert_eq!(ran.code, Some(0), "{}", ran.errors);
    assert_eq!(folder.ok(&["scan"]), "a\t1\nb\told\nc\t3\n");
}

#[test]
fn a_key_that_is_too_long_is_an_error_of_its_line() {
    let folder = Folder::new();
    folder.write("long.tsv", format!("a\t1\n{}\t2\n", "k".repeat(1 << 20)));
    let named = folder.fails(2, &["load", "long.tsv", "--create"]);
    assert!(named.contains("long.tsv:2: a key of 1048576 bytes is longer"), "{named}");
    assert_eq!(folder.ok(&["get", "a"]), "1\n");
}

#[test]
fn a_line_that_is_too_long_is_not_held() {
    let folder = Folder::new();
    folder.write("long.tsv", format!("a\t{}\nb\t2\n", "x".repeat(5000)));
    let arguments = ["load", "long.tsv", "--create", "--max-line-bytes", "1000"];
    let named = folder.fails(2, &arguments);
    assert!(named.contains("long.tsv:1: a line of 5002 bytes is longer than 1000"), "{named}");
    folder.ok(&["load", "long.tsv"]);
    assert_eq!(folder.ok(&["get", "a"]).len(), 5001);
}

#[test]
fn files_with_backslashes_of_their_own_are_loaded_raw() {
    let folder = Folder::new();
    folder.write("windows.tsv", "C:\\dir\tx\n");
    let named = folder.fails(2, &["load", "windows.tsv", "--create"]);
    assert!(named.contains("raw-tsv"), "{named}");
    folder.ok(&["load", "windows.tsv", "--format", "raw-tsv"]);
    assert_eq!(folder.ok(&["get", r"C:\\dir"]), "x\n");
}

#[test]
fn what_is_missing_is_said_before_anything_is_made() {
    let folder = Folder::new();
    folder.write("one.tsv", "a\t1\n");
    let no_pool = folder.fails(3, &["load", "one.tsv"]);
    assert!(no_pool.contains("there is no pool at pando.pool"), "{no_pool}");
    assert!(no_pool.contains("--create") && !no_pool.contains("Pool::"), "{no_pool}");
    let no_file = folder.fails(3, &["load", "none.tsv", "--create"]);
    assert!(no_file.contains("cannot open none.tsv"), "{no_file}");
    folder.fails(2, &["load", ".", "--create", "--format", "tsv"]);
    folder.fails(2, &["load", "one.tsv", "--create", "--writers", "0"]);
    folder.fails(2, &["load", "one.tsv", "--create", "--writers", "1025"]);
    folder.fails(2, &["load", "one.tsv", "--create", "--index", "oak"]);
    folder.fails(2, &["load", "one.tsv", "--create", "--set", "leaf_bytes"]);
    folder.fails(2, &["load", "one.tsv", "--max-bytes", "1G"]);
    // A byte more than the largest pool.
    let refused = folder.fails(2, &["put", "a", "1", "--create", "--max-bytes", "17592186044417"]);
    assert!(refused.contains("17592186044416"), "{refused}");
    let no_folder = folder.fails(3, &["load", "one.tsv", "--create", "--pool", "none/a.pool"]);
    assert!(no_folder.contains("the folder none does not exist"), "{no_folder}");
    assert!(!folder.path("pando.pool").exists());
}

#[test]
fn a_load_can_have_as_many_writers_as_it_says() {
    let folder = Folder::new();
    let tsv: String = (0..5000).map(|line| format!("{line}\tx\n")).collect();
    folder.write("many.tsv", tsv);
    let told = folder.ok(&["load", "many.tsv", "--create", "--writers", "120"]);
    assert!(told.starts_with("loaded 5,000 records"), "{told}");
}

#[test]
fn pools_and_maps_are_created_as_asked() {
    let folder = Folder::new();
    let sizes = ["--max-bytes", "2M", "--set", "leaf_bytes=512"];
    // `--kind` is the former name of `--index`.
    folder.ok(&[&["put", "a", "1", "--create", "--kind", "bztree"], &sizes[..]].concat());
    let ran = folder.run(&["put", "a", "1", "--map", "b", "--set=value_mode=pointer"]);
    assert_eq!(ran.code, Some(0), "{}", ran.errors);
    assert!(ran.errors.contains("created the map \"b\""), "{}", ran.errors);
    let stat: serde_json::Value = serde_json::from_str(&folder.ok(&["stat", "--json"])).unwrap();
    assert_eq!(stat["max_bytes"], 2 << 20);
    assert_eq!(stat["maps"][1]["options"]["leaf_bytes"], "512");
    assert_eq!(stat["maps"][0]["options"]["value_mode"], "pointer");
    let differs = folder.fails(2, &["put", "a", "1", "--map", "b", "--set=value_mode=inline"]);
    assert!(differs.contains("value_mode pointer, not inline"), "{differs}");

    folder.write(
        "much.tsv",
        (0..5000).map(|line| format!("{line}\t{line:01000}\n")).collect::<String>(),
    );
    let full = folder.fails(3, &["load", "much.tsv"]);
    assert!(full.contains("may not grow beyond 2.00 MiB"), "{full}");
    assert!(full.contains("--max-bytes"), "{full}");

    folder.ok(&["drop", "main"]);
    let gone = folder.fails(1, &["drop", "main"]);
    assert!(gone.contains("no map \"main\"; it has \"b\""), "{gone}");
    assert!(folder.ok(&["check"]).starts_with("consistent: 1 map, "));
}

#[test]
fn indexes_are_listed_with_their_options() {
    let folder = Folder::new();
    let told = folder.ok(&["indexes"]);
    assert!(told.starts_with("bztree (the default): "), "{told}");
    assert!(told.contains("--set leaf_bytes=2048"), "{told}");
    assert_eq!(told, folder.ok(&["kinds"]), "the former name");
    let refused = folder.fails(2, &["indexes", "--pool", "any.pool"]);
    assert!(refused.contains("leave out --pool"), "{refused}");
    let json: serde_json::Value = serde_json::from_str(&folder.ok(&["indexes", "--json"])).unwrap();
    assert_eq!(json[0]["name"], "bztree");
}

#[test]
fn the_pool_is_found_by_option_before_environment() {
    let folder = Folder::new();
    let put = |arguments: &[&str]| {
        let mut command = folder.command(arguments);
        assert!(command.env("PANDO_POOL", "from-environment.pool").status().unwrap().success());
    };
    put(&["put", "a", "1", "--create"]);
    put(&["put", "a", "2", "--create", "--pool", "from-option.pool"]);
    assert_eq!(folder.ok(&["get", "a", "--pool", "from-environment.pool"]), "1\n");
    assert_eq!(folder.ok(&["--pool", "from-option.pool", "get", "a"]), "2\n");
}

#[test]
fn another_programs_file_is_no_pool() {
    let folder = Folder::new();
    folder.write("pando.pool", "remember the milk");
    for arguments in [&["stat"][..], &["check"], &["get", "a"], &["put", "a", "1", "--create"]] {
        let refused = folder.fails(3, arguments);
        assert!(refused.contains("pando.pool"), "{refused}");
    }
    assert_eq!(std::fs::read(folder.path("pando.pool")).unwrap(), b"remember the milk");
}

#[test]
fn what_is_no_regular_file_is_no_pool() {
    let folder = Folder::new();
    assert_eq!(
        std::process::Command::new("mkfifo").arg(folder.path("pipe")).status().unwrap().code(),
        Some(0)
    );
    for path in ["/dev/null", "pipe"] {
        for arguments in
            [&["get", "a", "--pool", path][..], &["put", "a", "1", "--create", "--pool", path]]
        {
            let refused = folder.fails(3, arguments);
            assert!(refused.contains(path) && refused.contains("not a regular file"), "{refused}");
            assert!(!refused.contains("remove"), "{refused}");
        }
    }
    assert!(std::path::Path::new("/dev/null").exists());
}

#[test]
fn an_empty_environment_variable_is_named() {
    let folder = Folder::with_records("a\t1\n");
    let ran = folder.command(&["get", "a"]).env("PANDO_POOL", "").output().unwrap();
    let errors = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(2), "{errors}");
    assert!(errors.contains("PANDO_POOL is empty"), "{errors}");
    assert_eq!(folder.ok(&["get", "a"]), "1\n");
}

#[test]
fn the_size_of_a_pool_that_is_there_is_not_changed_in_silence() {
    let folder = Folder::new();
    folder.write("one.tsv", "a\t1\n");
    folder.ok(&["load", "one.tsv", "--create", "--max-bytes", "2M"]);
    folder.ok(&["load", "one.tsv", "--create", "--max-bytes", "2M"]);
    folder.ok(&["load", "one.tsv", "--create"]);
    let refused = folder.fails(2, &["load", "one.tsv", "--create", "--max-bytes", "4M"]);
    assert!(refused.contains("2097152") && refused.contains("4194304"), "{refused}");
    assert!(refused.contains("--max-bytes"), "{refused}");
}

#[test]
fn a_load_that_fails_at_once_leaves_no_map() {
    let folder = Folder::with_records("a\t1\n");
    folder.write("bad.tsv", "no tab\nb\t2\n");
    folder.fails(2, &["load", "bad.tsv", "--map", "new", "--writers", "1"]);
    let ran = folder.run_with(&["load", "-", "--map", "new"], b"no tab\n");
    assert!(!ran.errors.contains("created"), "{}", ran.errors);
    let stat = folder.ok(&["stat"]);
    assert!(!stat.contains("\"new\""), "{stat}");
    // A map that was there stays, and so does one in which records are.
    folder.fails(2, &["load", "bad.tsv"]);
    assert_eq!(folder.ok(&["get", "a"]), "1\n");
    folder.ok(&["load", "bad.tsv", "--map", "new", "--on-error", "skip"]);
    assert_eq!(folder.ok(&["dump", "--map", "new"]), "b\t2\n");
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_key() {
    let folder = Folder::new();
    folder.write("mark.tsv", "\u{feff}a\t1\n");
    folder.write("mark.jsonl", "\u{feff}{\"key\":\"b\",\"value\":\"2\"}\n");
    folder.ok(&["load", "mark.tsv", "--create"]);
    folder.ok(&["load", "mark.jsonl"]);
    assert_eq!(folder.ok(&["dump"]), "a\t1\nb\t2\n");
    // A key that begins with the mark comes back from a dump.
    folder.ok(&["put", "\u{feff}", "3", "--map", "marked"]);
    folder.write("dump.tsv", folder.ok(&["dump", "--map", "marked"]));
    folder.ok(&["load", "dump.tsv", "--map", "copy"]);
    assert_eq!(folder.ok(&["get", "\u{feff}", "--map", "copy"]), "3\n");
}

#[test]
fn a_number_of_json_is_refused() {
    let folder = Folder::new();
    folder.write("numbers.jsonl", "{\"key\":\"a\",\"value\":3}\n");
    let refused = folder.fails(2, &["load", "numbers.jsonl", "--create"]);
    assert!(refused.contains("a number") && refused.contains("as a string"), "{refused}");
}

const TRANSACTIONAL: &[&str] = &["load", "-", "--create", "--transactional", "--log", "pando.log"];

/// The number of commits in the log.
fn commits(folder: &Folder) -> u64 {
    let verified = folder.ok(&["log", "verify", "--json"]);
    let verified: serde_json::Value = serde_json::from_str(&verified).expect("JSON");
    verified["commits"].as_u64().expect("a number")
}

#[test]
fn a_transactional_map_is_loaded_in_few_commits() {
    let folder = Folder::new();
    let tsv: String = (0..5_000).map(|line| format!("key{:04}\t{line}\n", line % 4_900)).collect();
    folder.write("many.tsv", &tsv);
    let arguments = ["load", "many.tsv", "--create", "--transactional", "--log", "pando.log"];
    let told = folder.ok(&[&arguments[..], &["--sync", "--writers", "3"]].concat());
    assert!(told.starts_with("loaded 5,000 records (4,900 new, 100 replaced)"), "{told}");
    assert!(folder.ok(&["stat"]).contains("0 B wait for the disk"));
    let expected: String = (0..4_900)
        .map(|key| format!("key{key:04}\t{}\n", if key < 100 { 4_900 + key } else { key }))
        .collect();
    assert_eq!(folder.ok(&["scan"]), expected);
    let count = commits(&folder);
    assert!((39..200).contains(&count), "{count} commits");
    assert!(folder.ok(&["check"]).starts_with("consistent: "));
}

/// Replaced values count for the size of a commit, and a long record is one alone.
#[test]
fn long_values_of_a_transactional_map_are_split_into_commits() {
    let folder = Folder::new();
    let long = |letter: &str| -> String {
        (0..12).map(|key| format!("{key:02}\t{}\n", letter.repeat(900 << 10))).collect()
    };
    folder.ok_with(TRANSACTIONAL, long("a").as_bytes());
    // Short values in the place of long ones: one batch, and more than one commit.
    let short: String = (0..12).map(|key| format!("{key:02}\tb\n")).collect();
    let before = commits(&folder);
    folder.write("short.tsv", &short);
    let told = folder.ok(&["load", "short.tsv", "--writers", "1", "--sync"]);
    assert!(told.starts_with("loaded 12 records (0 new, 12 replaced)"), "{told}");
    assert_eq!(folder.ok(&["scan"]), short);
    let count = commits(&folder) - before;
    assert!((3..6).contains(&count), "{count} commits");
}

#[test]
fn lines_of_a_transactional_map_are_refused_one_by_one() {
    let folder = Folder::new();
    folder.ok_with(TRANSACTIONAL, b"b\told\n");
    folder.write("more.tsv", format!("a\t1\nb\t2\nc\t3\n{}\t4\nd\t5\n", "k".repeat(1 << 20)));
    let load = ["load", "more.tsv", "--writers", "1"];
    let refused = folder.fails(2, &[&load[..], &["--insert", "--sync"]].concat());
    assert!(refused.contains("more.tsv:2: the key is already there"), "{refused}");
    assert_eq!(folder.ok(&["scan"]), "a\t1\nb\told\n");
    assert!(folder.ok(&["stat"]).contains("0 B wait for the disk"));
    let refused = folder.fails(2, &load);
    assert!(refused.contains("more.tsv:4: a key of 1048576 bytes is longer"), "{refused}");
    assert_eq!(folder.ok(&["scan"]), "a\t1\nb\t2\nc\t3\n");
    let ran = folder.run(&[&load[..], &["--insert", "--on-error", "skip"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.errors);
    assert!(ran.output.contains("loaded 1 record (1 new, 0 replaced)"), "{}", ran.output);
    assert!(ran.output.contains("4 lines skipped"), "{}", ran.output);
    assert_eq!(folder.ok(&["scan"]), "a\t1\nb\t2\nc\t3\nd\t5\n");
}

/// A batch that does not fit is written record by record, so the error names the line.
#[test]
fn a_full_pool_with_a_transactional_map_names_the_line() {
    let folder = Folder::new();
    let tsv: String = (0..5_000).map(|line| format!("{line:04}\t{line:01000}\n")).collect();
    folder.write("much.tsv", &tsv);
    let load = ["load", "much.tsv", "--create", "--transactional", "--max-bytes", "3M"];
    let full = folder.fails(3, &[&load[..], &["--writers", "1"]].concat());
    assert!(full.contains("may not grow beyond 3.00 MiB"), "{full}");
    let loaded = folder.ok(&["scan"]).lines().count();
    assert!(full.contains(&format!("much.tsv:{}: ", loaded + 1)), "{loaded} loaded: {full}");
}

/// A kill leaves whole commits; with one writer these are the first lines. The same command again
/// completes the load.
#[test]
fn a_load_that_is_killed_leaves_whole_commits_and_is_repeated() {
    use std::io::Write;
    let folder = Folder::new();
    let tsv: String = (0..20_000).map(|line| format!("key{line:05}\t{line}\n")).collect();
    for lines in [100, 6_000, 15_000] {
        let mut command = folder.command(&[TRANSACTIONAL, &["--writers", "1"]].concat());
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let bytes = tsv.split_inclusive('\n').take(lines).map(str::len).sum();
        pipe.write_all(&tsv.as_bytes()[..bytes]).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        // If it was killed before it had created the map, there is none.
        let left = folder.run(&["scan"]).output;
        assert!(tsv.starts_with(&left), "not the first lines: {left}");
        if folder.path("pando.pool").exists() {
            assert!(folder.ok(&["check"]).starts_with("consistent: "));
        }
    }
    folder.ok_with(&[TRANSACTIONAL, &["--sync"]].concat(), tsv.as_bytes());
    assert_eq!(folder.ok(&["scan"]), tsv);
    std::fs::remove_file(folder.path("pando.pool")).unwrap();
    assert_eq!(folder.ok(&["scan", "--log", "pando.log"]), tsv);
}

#[test]
fn compressed_standard_input_is_known_by_its_first_bytes() {
    let folder = Folder::with_records("a\t1\nb\t2\n");
    for compression in ["gzip", "zstd"] {
        let dump = folder.command(&["dump", "--compression", compression]).output().unwrap();
        let said = folder.ok_with(&["load", "-", "--map", compression], &dump.stdout);
        assert!(said.contains("loaded 2 records"), "{said}");
    }
    folder.write("plain.tsv.gz", "a\t1\n");
    let plain = folder.fails(3, &["load", "plain.tsv.gz"]);
    assert!(plain.contains("plain.tsv.gz") && plain.contains("--compression none"), "{plain}");
}

#[test]
fn numbers_that_are_refused_have_their_range() {
    let folder = Folder::with_records("a\t1\n");
    for (arguments, range) in [
        (&["load", "-", "--writers", "x"][..], "from 1 to 1024"),
        (&["load", "-", "--writers", "0"], "from 1 to 1024"),
        (&["scan", "--limit", "x"], "from 0 to"),
        (&["scan", "--limit", "-1"], "from 0 to"),
        (&["scan", "--limit", "99999999999999999999"], "from 0 to"),
        (&["scan", "--store", "none", "--memory", "x"], "not a size"),
    ] {
        let refused = folder.fails(2, arguments);
        assert!(refused.contains(range), "{refused}");
    }
    assert!(folder.ok(&["load", "none.tsv", "--help"]).contains("[default: 256M]"));
    let refused =
        folder.fails(2, &["--store", "new", "--memory", "100T", "put", "a", "1", "--create"]);
    assert!(refused.contains("--memory is 109951162777600"), "{refused}");
}
