//! The program itself, at small sizes: what it writes, and what it refuses.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use std::path::Path;

use common::bench;
use serde_json::Value;

/// Runs the program with `words` and the options for both files; the page, and the rows.
fn page_and_rows(words: &str) -> (String, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (page, json) = (path("page.html"), path("rows.jsonl"));
    let mut arguments: Vec<&str> = words.split_whitespace().collect();
    arguments.extend(["--page", &page, "--json", &json]);
    let (succeeded, out, error) = bench(&arguments);
    assert!(succeeded, "{words}: {error}");
    assert!(out.contains(&page), "{out}");
    let read = |path: &str| std::fs::read_to_string(Path::new(path)).unwrap();
    let rows = read(&json).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (read(&page), rows)
}

/// Each of `rows` has all of `fields`, separated by blanks, and what it was taken on.
fn assert_fields(rows: &[Value], fields: &str) {
    for row in rows {
        for field in fields.split_whitespace().chain(["cpu_model", "kernel", "pool_file_system"]) {
            assert!(row.get(field).is_some(), "{field} in {row}");
        }
    }
}

#[test]
fn figures_without_rounds_are_written_too() {
    let (page, rows) = page_and_rows("costs --records 500 --samples 100");
    assert_eq!(rows.len(), 4);
    assert_fields(&rows, "operation records samples flushes lines_read published_flushes");
    assert_eq!(rows[2]["flushes"]["median"], 2.0, "{}", rows[2]);
    assert!(page.contains("<svg") && page.contains("<td>insert</td>"), "{page}");

    let (page, rows) = page_and_rows("recovery --records 1k,2k --cycles 2");
    assert_eq!(rows.len(), 2);
    assert_fields(&rows, "records cycles open_ns first_get_ns kills_in_flight seed");
    assert!(page.contains("<svg") && page.contains("<td>2k</td>"), "{page}");

    let (page, rows) = page_and_rows("space --records 1k,2k --sides btreemap,bztree:process");
    assert_eq!(rows.len(), 4);
    assert_fields(&rows, "side records key_bytes value_bytes bytes_per_record");
    assert!(rows[0]["file_bytes_per_record"].is_null(), "{}", rows[0]);
    assert!(rows[3]["file_bytes_per_record"].as_f64() > Some(0.0), "{}", rows[3]);
    assert!(page.contains("<svg") && page.contains("bztree:process"), "{page}");
}
