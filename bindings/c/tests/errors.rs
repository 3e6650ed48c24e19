//! Each error of the library has a code in C, and a class in Python.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::fs;
use std::path::Path;

/// Errors that have no code and no class of their own: of calls that the bindings do not have, or
/// of calls that never work there.
const OF_OTHER_CALLS: [&str; 5] = [
    "ProcessNotFound", // a process of a shared pool is declared dead
    "OpenForSalvage",
    "MapExists",   // a map is renamed
    "NotInAStore", // salvage, compaction, a backup of a store
    "Value",       // values have types
];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The variants of `pando::Error`.
fn errors() -> Vec<String> {
    let source = read("../../crates/pando/src/error.rs");
    let (_, body) = source.split_once("pub enum Error {").unwrap();
    let (body, _) = body.split_once("\n}\n").unwrap();
    let is_letter = |letter: &char| letter.is_ascii_alphanumeric();
    let found = body.lines().filter_map(|line| line.strip_prefix("    "));
    let found = found.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
    let found: Vec<String> =
        found.map(|line| line.chars().take_while(is_letter).collect()).collect();
    assert!(found.len() > 60, "only {} errors are seen", found.len());
    found
}

#[test]
fn each_error_has_a_code_in_c_and_a_class_in_python() {
    // C has no typed keys.
    for (file, others) in [("src/failure.rs", &["Key"][..]), ("../python/src/failure.rs", &[])] {
        let source = read(file);
        let is_named = |name: &str| {
            let name = format!("Error::{name}");
            source.match_indices(&name).any(|(at, _)| {
                !source[at + name.len()..].starts_with(|next: char| next.is_ascii_alphanumeric())
            })
        };
        let missing: Vec<_> = errors()
            .into_iter()
            .filter(|name| !is_named(name) && !OF_OTHER_CALLS.contains(&&**name))
            .filter(|name| !others.contains(&&**name))
            .collect();
        assert!(missing.is_empty(), "{file} does not name {missing:?}");
    }
}
