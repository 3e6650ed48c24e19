//! Stores by the command.

mod common;

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
    for words in [
        &["backup", "copy"][..],
        &["restore", "copy"],
        &["log", "verify"],
        &["log", "reset"],
        &["serve", "--port", "0"],
    ] {
        let refused = fails(2, words);
        assert!(refused.contains("is a store"), "{words:?}: {refused}");
    }
    fails(2, &["scan", "--pool", "other"]);
    folder.fails(2, &["scan", "--memory", "4M"]);
    assert!(!folder.path("pando.pool").exists());
}
