//! The program itself, at small sizes: what it writes, and what it refuses.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use std::io::Write;
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
    assert!(page.contains("<svg") && page.contains("<td>bztree insert</td>"), "{page}");

    let (page, rows) = page_and_rows("recovery --records 1k,2k --cycles 2");
    assert_eq!(rows.len(), 2);
    assert_fields(&rows, "records cycles open_ns first_get_ns kills_in_flight seed");
    assert!(page.contains("<svg") && page.contains("<td>2k</td>"), "{page}");

    let (page, rows) = page_and_rows("space --records 1k,2k --systems btreemap,bztree:process");
    assert_eq!(rows.len(), 4);
    assert_fields(&rows, "system records key_bytes value_bytes bytes_per_record");
    assert!(rows[0]["file_bytes_per_record"].is_null(), "{}", rows[0]);
    assert!(rows[3]["file_bytes_per_record"].as_f64() > Some(0.0), "{}", rows[3]);
    assert!(page.contains("<svg") && page.contains("bztree:process"), "{page}");

    let (page, rows) = page_and_rows("transactions --records 1k --rounds 2 --seconds 0.02");
    assert_eq!(rows.len(), 4 + 2 * 3 + 3);
    assert_fields(
        &rows,
        "measure base ratio on_core_ratio per_second per_core_second latency_ns records log_file_system",
    );
    for row in &rows {
        let is_rate = row["latency_ns"].is_null();
        let figure = if is_rate { &row["per_second"] } else { &row["latency_ns"] };
        assert!(figure["min"].as_f64() > Some(0.0), "{row}");
        assert_eq!(row["ratio"].is_null(), row["base"].is_null(), "{row}");
        assert_eq!(row["per_core_second"].is_null(), !is_rate, "{row}");
    }
    assert!(page.contains("<svg") && page.contains("commits of 4 keys"), "{page}");

    let (page, rows) = page_and_rows("processes --records 1k --rounds 1 --seconds 0.25");
    let without_lmdb: Vec<_> =
        rows.iter().filter(|row| !row["measure"].as_str().unwrap().contains("LMDB")).collect();
    assert_eq!(without_lmdb.len(), 2 * 3 + 3 + 1 + 3, "{rows:?}");
    for row in &rows {
        let figure = if row["latency_ns"].is_null() { "per_second" } else { "latency_ns" };
        assert!(row[figure]["min"].as_f64() > Some(0.0), "{row}");
    }
    assert!(page.contains("<svg") && page.contains("another is killed"), "{page}");
}

const COMPARISON: &str = "--systems btreemap,crossbeam-skiplist,bztree:process --base crossbeam-skiplist \
    --operation-mix read,insert --records 1k --threads 1,2 --rounds 2 --seconds 0.01";

#[test]
fn a_comparison_writes_rows_and_a_page() {
    let (page, rows) = page_and_rows(COMPARISON);
    assert_eq!(rows.len(), 3 * 2 * 2);
    assert_fields(
        &rows,
        "system operation_mix keys records threads ops_per_second p99_ns bytes_per_record \
         file_bytes_per_record base ratio_to_first ratio_min ratio_max seed",
    );
    for row in &rows {
        assert!(row["ops_per_second"].as_f64() > Some(0.0), "{row}");
        assert_eq!((&row["base"], &row["records"]), (&"crossbeam-skiplist".into(), &1_000.into()));
        let is_base = row["system"] == "crossbeam-skiplist";
        assert!(!is_base || row["ratio_to_first"] == 1.0, "{row}");
    }
    // For each of the two mixes: ratios, throughput by threads, latencies.
    assert_eq!(page.matches("<svg").count(), 6);
    assert!(page.contains("<td>bztree:process</td>"), "{page}");
}

#[test]
fn two_runs_are_put_beside_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["first", "second", "third"].map(|name| folder.path().join(name));
    let paths = paths.each_ref().map(|path| path.to_str().unwrap());
    for (path, mix) in paths.into_iter().zip(["read", "read", "insert"]) {
        let words = COMPARISON.replace("read,insert", mix);
        let arguments: Vec<_> = words.split_whitespace().chain(["--json", path]).collect();
        let (succeeded, _, error) = bench(&arguments);
        assert!(succeeded, "{error}");
    }
    let (succeeded, out, error) = bench(&["agree", paths[0], paths[1]]);
    assert!(succeeded, "{error}");
    // Two systems with two numbers of threads; the base is not among them.
    assert!(out.contains("of 4 ratios lie within the first run's spread"), "{out}");
    let (succeeded, _, error) = bench(&["agree", paths[0], paths[2]]);
    assert!(!succeeded && error.contains("no ratio in common"), "{error}");
}

#[test]
fn words_that_cannot_go_together_are_refused() {
    for (words, says) in [
        ("--systems btreemap --base bztree --records 1k", "base"),
        ("--systems btreemap,btreemap --records 1k", "twice"),
        ("--systems btreemap --operation-mix delete --batch 2k --records 1k --rounds 1", "--batch"),
        (
            "--systems crossbeam-skiplist:tuned --value-bytes 100 --records 1k",
            "crossbeam-skiplist:tuned",
        ),
        ("--replay operations.txt --records 1k", "cannot be used with"),
        ("--systems btreemap --rate 1G", "from 1 to 100M"),
        (
            "--systems bztree,btreemap --records 1k --write-back-ns 5",
            if cfg!(feature = "papers") { "slow" } else { "--write-back-ns" },
        ),
        ("costs --seed 1", "--seed"),
        ("agree one", "<SECOND>"),
    ] {
        let (succeeded, out, error) = bench(&words.split(' ').collect::<Vec<_>>());
        assert!(!succeeded && out.is_empty(), "{words}: {out}");
        assert!(error.contains(says), "{words}: {error}");
    }
}

#[test]
fn the_profile_adds_up_to_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("profile.jsonl");
    let plan =
        ["profile", "--records", "20k", "--seconds", "0.3", "--read-percent", "50", "--json"];
    let (succeeded, out, error) = bench(&[&plan[..], &[json.to_str().unwrap()]].concat());
    if !succeeded {
        // No `perf`, none that may be used here, or a build without line tables: each says what to
        // do.
        let known =
            ["linux-perf", "perf failed: ", "build with `--release`", "the line tables of "];
        assert!(known.iter().any(|known| error.contains(known)), "{error}");
        assert!(std::env::var_os("PANDO_REQUIRE").is_none(), "there is no profile: {error}");
        // Past the harness, which shows nothing of a test that passes.
        writeln!(std::io::stderr(), "note: no profile was taken; {}", error.trim_end()).unwrap();
        return;
    }
    for part in ["inner search", "leaf search", "PMwCAS", "copying", "allocation", "epochs"] {
        assert!(out.contains(part), "{out}");
    }
    let rows = std::fs::read_to_string(&json).unwrap();
    let shares: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sum = |field: &str| shares.iter().map(|share| share[field].as_f64().unwrap()).sum::<f64>();
    assert!((sum("percent") - 100.0).abs() < 0.01, "{rows}");
    assert_eq!(Some(sum("samples")), shares[0]["samples_in_the_tree"].as_f64(), "{rows}");
    let of = |name: &str| {
        let share = shares.iter().find(|share| share["component"] == name);
        share.unwrap_or_else(|| panic!("no {name}: {rows}"))["samples"].as_u64().unwrap()
    };
    // A tree that is read and written is searched.
    assert!(of("inner search") + of("leaf search") > 0, "{rows}");
}

const COSTS: &str = r#"{"version":1,"figure":"costs","cpu_model":"a processor","cores":2,"kernel":"6.1","commit":"123456789abc","date":"2026-01-31","commands":["costs"],"sources":{}}
{"index":"bztree","operation":"get","flushes":{"median":0.0,"mean":0.0},"fences":{"median":0.0,"mean":0.0},"lines_written":{"median":0.0,"mean":0.0},"lines_read":{"median":9.0,"mean":9.25}}
"#;

#[test]
fn tables_and_plots_are_made_from_data_and_nothing_is_written_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    let checkout = folder.path().to_str().unwrap();
    let figures = |word: &str| bench(&["figures", word, "--checkout", checkout]);
    let refused = |says: &str| {
        let (succeeded, _, error) = figures("check");
        assert!(!succeeded && error.contains(says), "{says}: {error}");
    };
    let (succeeded, _, error) = figures("check");
    assert!(!succeeded && error.contains("inside a checkout"), "{error}");

    std::fs::create_dir_all(path("docs/figures")).unwrap();
    let page = "# Costs\n\n<!-- figure costs -->\n<!-- end of figure -->\n\nNo more.\n";
    write("README.md", "nothing\n");
    write("docs/measure.md", page);
    refused("the figure costs: cannot read or write");
    let (succeeded, _, error) = figures("write");
    assert!(!succeeded && error.contains("the figure costs: cannot read or write"), "{error}");
    assert_eq!(read("docs/measure.md"), page, "a table without data is left as it was");
    write("docs/figures/costs.jsonl", COSTS);
    refused("docs/measure.md is not what the data says");
    let (succeeded, out, error) = figures("write");
    assert!(succeeded && out.contains("costs.svg"), "{out}{error}");
    let whole = read("docs/measure.md");
    assert!(whole.contains("| bztree | get | 0 (0.0) | 0 (0.0) | 0 (0.0) | 9 (9.2) |"), "{whole}");
    assert!(whole.contains("a processor, 2 cores, Linux 6.1; 2026-01-31"), "{whole}");
    assert!(whole.starts_with("# Costs\n") && whole.ends_with("\n\nNo more.\n"), "{whole}");
    assert!(read("docs/figures/costs.svg").contains("bztree, get"));
    let (succeeded, out, error) = figures("check");
    assert!(succeeded && out.contains("1 figures are"), "{out}{error}");

    write("docs/measure.md", &whole.replace("9 (9.2)", "8 (8.2)"));
    refused("docs/measure.md is not what the data says");
    write("docs/measure.md", &whole.replace("No more.", "| a | 1.25 |"));
    refused("docs/measure.md, line 19: a table has measured numbers and no data");
    write("docs/measure.md", &whole);
    write("docs/figures/old.jsonl", COSTS);
    refused("docs/figures/old.jsonl is of no figure that a page shows");
    std::fs::remove_file(path("docs/figures/old.jsonl")).unwrap();
    write("README.md", "<!-- figure nothing -->\n<!-- end of figure -->\n");
    refused("README.md: the figure nothing: there is no figure \"nothing\"; expected one of");
    write("README.md", "<!-- figure costs -->\n");
    refused("README.md, line 1: the figure costs has no line");
}

#[test]
fn the_documents_of_this_checkout_show_what_their_data_says() {
    let (succeeded, _, error) =
        bench(&["figures", "check", "--checkout", env!("CARGO_MANIFEST_DIR")]);
    assert!(succeeded, "{error}");
}

/// Each system runs in a process of its own. On a machine where its memory cannot be limited, the
/// command says so.
#[test]
fn systems_with_limited_memory_are_compared() {
    let words = "--process-memory 256M --systems btreemap,bwtree:store --records 2k \
                 --value-bytes 100 --operation-mix load,read,50/50,insert,delete --threads 2 \
                 --rounds 2 --seconds 0.02 --keys zipfian:0.9";
    let words: Vec<&str> = words.split_whitespace().collect();
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("rows.jsonl");
    let arguments = [&words[..], &["--json", json.to_str().unwrap()]].concat();
    let (succeeded, out, error) = bench(&arguments);
    if error.contains("cannot limit the memory of a process") {
        assert!(error.contains("run the command as the superuser"), "{error}");
        return;
    }
    assert!(succeeded, "{error}");
    assert!(out.contains("bytes read from the device"), "{out}");
    let rows = std::fs::read_to_string(json).unwrap();
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 5 * 2);
    assert_fields(&rows, "read_bytes_per_op written_bytes_per_op memory_bytes");
    for row in &rows {
        assert!(row["operations"].as_u64() > Some(0) && row["p50_ns"].as_u64() > Some(0), "{row}");
    }
    // A fault of a system's process is told.
    let (succeeded, _, error) = bench(&["system-child", "--system", "btreemap", "--records", "1"]);
    assert!(!succeeded && error.contains("--group"), "{error}");
}
