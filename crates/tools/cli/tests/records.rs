//! One record at a time, and records in order.

mod common;

use std::process::Stdio;

use common::Folder;

#[test]
fn what_is_put_is_got_and_deleted() {
    let folder = Folder::new();
    folder.ok(&["put", "aspen", "Populus tremuloides", "--create"]);
    folder.ok(&["put", "aspen", "P. tremula"]);
    assert_eq!(folder.ok(&["get", "aspen"]), "P. tremula\n");
    assert_eq!(folder.ok(&["get", "aspen", "--raw"]), "P. tremula");
    folder.ok(&["put", "oak", "Quercus", "--map", "others"]);
    folder.fails(1, &["get", "oak"]);
    let there = folder.fails(2, &["put", "aspen", "again", "--insert"]);
    assert!(there.contains("\"aspen\" is already there"), "{there}");

    folder.ok(&["put", "elm", "Ulmus\\tminor"]);
    assert_eq!(folder.ok(&["get", "elm", "aspen"]), "elm\tUlmus\\tminor\naspen\tP. tremula\n");
    let some = folder.run(&["get", "nobody", "aspen"]);
    assert_eq!((some.code, some.output.as_str()), (Some(1), "aspen\tP. tremula\n"));
    assert!(some.errors.contains("\"nobody\""), "{}", some.errors);
    let raw = folder.fails(2, &["get", "elm", "aspen", "--raw"]);
    assert!(raw.contains("--raw is for one key"), "{raw}");
    folder.ok(&["del", "elm"]);

    let missing = folder.fails(1, &["del", "nobody", "aspen"]);
    assert!(missing.contains("\"nobody\""), "{missing}");
    let empty = folder.fails(1, &["get", ""]);
    assert!(empty.contains("no key \"\""), "{empty}");
    let too_long = folder.fails(2, &["put", &"k".repeat(40_000), ""]);
    assert!(too_long.contains("longer than the 32768"), "{too_long}");
    folder.fails(1, &["get", "aspen"]);
    let no_map = folder.fails(1, &["get", "x", "--map", "nowhere"]);
    assert!(no_map.contains("it has \"main\", \"others\""), "{no_map}");
}

#[test]
fn bytes_that_are_no_text_go_in_and_out_escaped() {
    let folder = Folder::new();
    folder.ok(&["put", r"\xff\x00key", r"a\tb\\", "--create"]);
    assert_eq!(folder.ok(&["scan"]), "\\xff\\x00key\ta\\tb\\\\\n");
    assert_eq!(folder.ok(&["get", r"\xFF\x00key"]), "a\\tb\\\\\n");
    assert_eq!(folder.ok(&["get", r"\xff\x00key", "--raw"]), "a\tb\\");
    let ran = folder.run_with(&["put", "from-input", "-"], b"line\n\xfe");
    assert_eq!(ran.code, Some(0), "{}", ran.errors);
    assert_eq!(folder.ok(&["get", "from-input"]), "line\\n\\xfe\n");
    let wrong = folder.fails(2, &["get", r"C:\dir"]);
    assert!(wrong.contains(r"\d is no escape"), "{wrong}");
}

#[test]
fn an_argument_need_not_be_utf_8() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::with_records("\\xff\tlatin\n");
    let got = folder.command(&["get"]).arg(OsStr::from_bytes(b"\xff")).output().unwrap();
    assert_eq!(got.stdout, b"latin\n");
}

#[test]
fn scans_keep_to_their_bounds() {
    let folder = Folder::with_records("a\t1\nab\t2\nb\t3\nba\t4\nc\t5\n");
    assert_eq!(folder.ok(&["scan"]), "a\t1\nab\t2\nb\t3\nba\t4\nc\t5\n");
    assert_eq!(folder.ok(&["scan", "ab", "c"]), "ab\t2\nb\t3\nba\t4\n");
    assert_eq!(folder.ok(&["scan", "ab", "c", "--reverse"]), "ba\t4\nb\t3\nab\t2\n");
    assert_eq!(folder.ok(&["scan", "b", "--limit", "2"]), "b\t3\nba\t4\n");
    assert_eq!(folder.ok(&["scan", "--reverse", "--limit", "1"]), "c\t5\n");
    assert_eq!(folder.ok(&["scan", "--prefix", "b"]), "b\t3\nba\t4\n");
    assert_eq!(folder.ok(&["scan", "--prefix", "b", "--reverse"]), "ba\t4\nb\t3\n");
    assert_eq!(folder.ok(&["scan", "z"]), "");
    assert_eq!(folder.ok(&["scan", "c", "a"]), "");
    assert_eq!(folder.ok(&["scan", "--limit", "0"]), "");
    folder.fails(2, &["scan", "a", "--prefix", "b"]);
}

#[test]
fn keys_alone_and_their_number_are_printed() {
    let folder = Folder::with_records("a,\\t\t1\nb\t2\nc\t3\n");
    assert_eq!(folder.ok(&["scan", "--keys-only"]), "a,\\t\nb\nc\n");
    let reversed = ["scan", "--keys-only", "--reverse", "--limit", "1"];
    assert_eq!(folder.ok(&reversed), "c\n");
    let csv = folder.ok(&["scan", "--keys-only", "--format", "csv"]);
    assert_eq!(csv, "key\n\"a,\t\"\nb\nc\n");
    let json = folder.ok(&["scan", "c", "--keys-only", "--format", "json-lines"]);
    assert_eq!(json, "{\"key\":\"c\"}\n");
    assert_eq!(folder.ok(&["scan", "--count"]), "3\n");
    assert_eq!(folder.ok(&["scan", "--count", "--prefix", "b"]), "1\n");
    assert_eq!(folder.ok(&["scan", "--count", "--limit", "2"]), "2\n");
    assert_eq!(folder.ok(&["scan", "x", "--count"]), "0\n");
    folder.fails(2, &["scan", "--count", "--keys-only"]);
}

#[test]
fn a_dump_loads_to_the_same_map() {
    let records = "\\x00\\xff\\t\t\\n\\\\\nplain\ttext\nümlaut\tgröße\n\t\n";
    let folder = Folder::with_records(records);
    for (format, file) in [("tsv", "dump.tsv"), ("json-lines", "dump.jsonl"), ("csv", "dump.csv")] {
        let dump = folder.command(&["dump", "--format", format]).output().unwrap().stdout;
        folder.write(file, &dump);
        folder.ok(&["load", file, "--map", format]);
        assert_eq!(folder.ok(&["dump", "--map", format]), folder.ok(&["dump"]));
    }
}

#[test]
fn a_compressed_dump_loads_to_the_same_map() {
    let lines: String = (0..5_000).map(|number| format!("key {number:05}\tvalue\n")).collect();
    let folder = Folder::with_records(&lines);
    for (compression, file) in [("gzip", "dump.tsv.gz"), ("zstd", "dump.tsv.zst")] {
        let dump = folder.command(&["dump", "--compression", compression]).output().unwrap();
        assert!(dump.status.success() && dump.stdout.len() < lines.len() / 2);
        folder.write(file, &dump.stdout);
        folder.ok(&["load", file, "--map", compression]);
        assert_eq!(folder.ok(&["dump", "--map", compression]), lines);
        let piped = ["load", "-", "--map", file, "--compression", compression];
        folder.ok_with(&piped, &dump.stdout);
        assert_eq!(folder.ok(&["scan", "--count", "--map", file]), "5000\n");
        // A transfer may have been interrupted.
        folder.write(file, &dump.stdout[..dump.stdout.len() - 1]);
        let cut = folder.fails(3, &["load", file, "--map", compression]);
        assert!(cut.contains("cannot read dump.tsv"), "{cut}");
    }
    folder.write("not.tsv.gz", "a\t1\n");
    folder.fails(3, &["load", "not.tsv.gz"]);
}

#[test]
fn nothing_is_written_in_a_form_that_does_not_load_back() {
    let folder = Folder::with_records("a\t1\n");
    for command in ["dump", "scan"] {
        let refused = folder.fails(2, &[command, "--format", "raw-tsv"]);
        assert!(refused.contains("json-lines"), "{refused}");
    }
}

#[test]
fn a_map_is_listed_in_one_line_whatever_its_name() {
    let folder = Folder::with_records("a\t1\n");
    folder.ok(&["put", "a", "1", "--map", "two\nlines"]);
    let told = folder.ok(&["stat"]);
    assert!(
        told.contains("  \"two\\nlines\"  bztree, 1 record in 1 leaf and 0 inner nodes"),
        "{told}"
    );
}

#[test]
fn a_reader_that_stops_reading_is_no_error() {
    let tsv: String = (0..50_000).map(|number| format!("{number:06}\tvalue\n")).collect();
    let folder = Folder::with_records(&tsv);
    let mut dump =
        folder.command(&["dump"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(dump.stdout.take());
    let ended = dump.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert!(ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let folder = Folder::with_records("a\t1\n");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ended = folder.command(&["dump"]).stdout(full).output().unwrap();
    assert_eq!(ended.status.code(), Some(3));
}

#[test]
fn stat_and_check_tell_about_the_pool() {
    let folder = Folder::with_records("a\t1\nb\t2\n");
    let text = folder.ok(&["stat"]);
    for name in ["domain", "medium", "guarantee", "participants", "allocator", "main"] {
        assert!(text.contains(name), "{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&folder.ok(&["stat", "--json"])).unwrap();
    assert_eq!(json["maps"][0]["name"], "main");
    assert_eq!(json["maps"][0]["records"], 2);
    assert!(json["recovery"]["duration_ns"].is_u64());

    assert!(folder.ok(&["check"]).starts_with("consistent: 1 map, "));
    let json: serde_json::Value = serde_json::from_str(&folder.ok(&["check", "--json"])).unwrap();
    assert_eq!(json["problems"].as_array().map(Vec::len), Some(0));
}

#[test]
fn commands_share_a_pool_with_a_process_that_has_it_open() {
    let folder = Folder::with_records("a\t1\nb\t2\n");
    let pool = folder.path("pando.pool");
    let alone = pando::Pool::open(&pool, &pando::PoolOptions::new()).unwrap();
    let refused = folder.run(&["get", "a"]);
    assert!(refused.code != Some(0) && refused.errors.contains("--shared"), "{}", refused.errors);
    let own = std::process::id().to_string();
    assert!(refused.errors.contains(&format!("process {own};")), "{}", refused.errors);
    assert_ne!(folder.run(&["--shared", "get", "a"]).code, Some(0));
    drop(alone);
    let other = pando::Pool::open(&pool, &pando::PoolOptions::new().shared(true)).unwrap();
    assert_eq!(folder.run(&["--shared", "get", "a"]).output, "1\n");
    assert_eq!(folder.run(&["put", "c", "3", "--shared"]).code, Some(0));
    assert_eq!(other.open_map("main").unwrap().get(b"c").unwrap().unwrap(), b"3");
    // The commands before may still be there as processes that have ended.
    let stat = folder.run(&["--shared", "stat"]);
    assert_eq!(stat.output.matches("; alive\n").count(), 2, "{}", stat.output);
    assert!(stat.output.contains("beside other processes in"), "{}", stat.output);
    let uncounted = folder.run(&["--shared", "check"]);
    assert!(uncounted.errors.contains("add --online"), "{}", uncounted.errors);
    let json = folder.run(&["--shared", "check", "--online", "--json"]).output;
    assert!(json.contains("\"nodes\": null"), "{json}");
    let held = other.open_map("main").unwrap();
    let refused = folder.run(&["--shared", "drop", "main"]);
    assert!(refused.errors.contains("open in another process"), "{}", refused.errors);
    drop(held);
    let checked = folder.run(&["--shared", "check", "--online"]);
    assert!(checked.output.starts_with("consistent: 1 map, 3 records"), "{}", checked.output);
    let refused = folder.run(&["evict", "1"]);
    assert!(
        refused.code != Some(0)
            && refused.errors.contains("no other process 1 has")
            && refused.errors.contains(&format!("process ids here that have: {own}\n")),
        "{}",
        refused.errors
    );
    for refused in [&["--shared", "check"][..], &["--shared", "compact"], &["--shared", "serve"]] {
        let ran = folder.run(refused);
        assert!(ran.code != Some(0) && ran.errors.contains("--shared"), "{}", ran.errors);
    }
}

#[test]
fn compact_returns_the_room_of_records_that_are_gone() {
    use std::os::unix::fs::MetadataExt;
    let folder = Folder::with_records("a\t1\nb\t2\n");
    let value = "v".repeat(30_000);
    let records: String = (0..300).map(|key| format!("{key}\t{value}\n")).collect();
    folder.ok_with(&["load", "-", "--map", "gone"], records.as_bytes());
    folder.ok(&["drop", "gone"]);
    let taken = || folder.path("pando.pool").metadata().unwrap();
    let before = taken().blocks() * 512;
    assert!(before > 9_000_000, "{before} bytes");
    let json: serde_json::Value = serde_json::from_str(&folder.ok(&["compact", "--json"])).unwrap();
    let after = taken();
    assert_eq!(json["before_bytes"], before);
    assert_eq!(json["after_bytes"], after.blocks() * 512);
    assert_eq!(json["size_bytes"], after.len());
    assert!(after.blocks() * 512 < before / 4, "{json}");
    assert_eq!(folder.ok(&["dump"]), "a\t1\nb\t2\n");
    assert!(folder.ok(&["check"]).starts_with("consistent: 1 map, "));

    // There is nothing more to return.
    let text = folder.ok(&["compact"]);
    let begin = "the file took ";
    let (took, takes) = text.strip_prefix(begin).unwrap().split_once(" and takes ").unwrap();
    assert!(takes.starts_with(&format!("{took}; its length is ")), "{text}");
    folder.ok(&["put", "c", "3"]);
    assert_eq!(folder.ok(&["get", "c"]), "3\n");
    let missing = folder.fails(3, &["compact", "--pool", "missing.pool"]);
    assert!(missing.contains("missing.pool"), "{missing}");
}

#[test]
fn the_map_of_a_server_is_used_only_by_force() {
    let folder = Folder::with_records("a\t1\n");
    folder.write("more.tsv", "b\t2\n");
    folder.ok(&["load", "more.tsv", "--map", "server", "--force"]);
    for arguments in [
        &["get", "b", "--map", "server"][..],
        &["put", "c", "3", "--map", "server"],
        &["del", "b", "--map", "server"],
        &["scan", "--map", "server"],
        &["dump", "--map", "server"],
        &["load", "more.tsv", "--map", "server"],
        &["drop", "server"],
    ] {
        let refused = folder.fails(2, arguments);
        assert!(refused.contains("pando serve") && refused.contains("--force"), "{refused}");
    }
    assert_eq!(folder.ok(&["dump", "--map", "server", "--force"]), "b\t2\n");
    folder.ok(&["drop", "server", "--force"]);
    folder.fails(1, &["get", "b", "--map", "server", "--force"]);
}

#[test]
fn help_lists_the_exit_codes_of_its_command_only() {
    let folder = Folder::new();
    let codes = |command: &str| {
        let help = folder.ok(&[command, "--help"]);
        let listed = help.split_once("Exit codes:").expect("exit codes").1.to_owned();
        let code = |line: &str| line.split_whitespace().next()?.parse::<u8>().ok();
        listed.lines().filter_map(code).collect::<Vec<_>>()
    };
    assert_eq!(codes("get"), [0, 1, 2, 3]);
    assert_eq!(codes("put"), [0, 2, 3]);
    assert_eq!(codes("check"), [0, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(codes("tour"), [0, 2, 3, 10]);
}

#[test]
fn an_empty_map_has_no_mean_record() {
    let folder = Folder::with_records("a\t1\n");
    folder.ok(&["del", "a"]);
    let stat = folder.ok(&["stat"]);
    assert!(stat.contains("0 records") && !stat.contains("bytes a record"), "{stat}");
}

#[test]
fn a_map_with_a_damaged_slot_is_listed_and_copied_out_by_its_slot() {
    use std::os::unix::fs::FileExt;
    let folder = Folder::new();
    folder.ok(&["put", "aspen", "Populus", "--create", "--index", "skiplist"]);
    folder.ok(&["put", "oak", "Quercus", "--map", "others"]);
    let refused = folder.fails(2, &["dump", "--slot", "0"]);
    assert!(refused.contains("--salvage"), "{refused}");
    folder.fails(2, &["--salvage", "dump", "--slot", "0", "--map", "main"]);
    folder.fails(1, &["--salvage", "dump", "--slot", "5"]);

    // The catalog's first word.
    let pool = std::fs::OpenOptions::new().write(true).open(folder.path("pando.pool")).unwrap();
    pool.write_all_at(&[0xFF; 8], 24_576).unwrap();
    let hidden = folder.fails(3, &["get", "aspen"]);
    assert!(hidden.contains("slot 0 is damaged") && hidden.contains("dump --slot"), "{hidden}");
    assert!(folder.ok(&["stat"]).contains("slot 0  damaged"));
    let checked = folder.fails(9, &["check"]);
    assert!(checked.contains("unreadable"), "{checked}");
    assert_eq!(folder.ok(&["--salvage", "dump", "--slot", "0"]), "aspen\tPopulus\n");
    assert_eq!(folder.ok(&["get", "oak", "--map", "others"]), "Quercus\n");
    folder.ok(&["drop", "--slot", "0"]);
    folder.ok(&["check"]);
    folder.fails(1, &["get", "aspen"]);
}

#[cfg(not(feature = "papers"))]
#[test]
fn experiments_that_are_not_in_the_build_say_how_to_build_it() {
    let folder = Folder::new();
    for words in [&["paper"][..], &["paper", "bztree:fig4", "--threads", "2"], &["paper", "--help"]]
    {
        let error = folder.fails(2, words);
        assert!(error.contains("--features papers"), "{error}");
    }
}
