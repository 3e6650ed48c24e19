//! The project's source text: the lines that write back or fence, and the function of a line.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers that write the pool. The trials should reach all their write-backs and fences.
const DURABLE: [&str; 2] = ["crates/core/", "crates/indexes/"];

/// Places whose absence no trial notices, with the reasons to keep them.
const UNSEEN: &str = include_str!("unseen.txt");

/// The root of the project, from which this program was built.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The reason why no trial notices the absence of the place `file:line:column`; `None` if it has
/// none in `unseen.txt`.
pub fn known_unseen(site: &str) -> Option<&'static str> {
    let mut parts = site.split(':');
    let (file, line): (_, usize) = (parts.next()?, parts.next()?.parse().ok()?);
    let text = fs::read_to_string(root().join(file)).ok()?;
    let function = function_at(&text, line)?;
    let is_fence = text.lines().nth(line.checked_sub(1)?)?.contains("fence()");
    let which = if is_fence { "fence" } else { "write-back" };
    let place = format!("{file} {function} {which}: ");
    UNSEEN.lines().find_map(|known| known.strip_prefix(place.as_str()))
}

/// The function that contains line `number` of `text`.
fn function_at(text: &str, number: usize) -> Option<String> {
    let before: Vec<&str> = text.lines().take(number).collect();
    before.into_iter().rev().find_map(|line| {
        let (_, rest) = line.split_once("fn ")?;
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        let name: String = rest.chars().take_while(|&letter| is_word(letter)).collect();
        (!line.trim_start().starts_with("//") && !name.is_empty()).then_some(name)
    })
}

/// The lines, as `file:line`, that write back or fence and are not in `reached`.
pub fn not_reached(reached: &BTreeSet<String>) -> Vec<String> {
    let mut lines = Vec::new();
    for name in durable_sources() {
        lines.extend(persisting_lines(&root().join(&name)).map(|line| format!("{name}:{line}")));
    }
    lines.retain(|line| !reached.contains(line));
    lines.sort();
    lines
}

/// The source files of the crates with durable structures, without test tools.
fn durable_sources() -> Vec<String> {
    let mut files = all_sources();
    files.retain(|name| DURABLE.iter().any(|layer| name.starts_with(layer)));
    files.retain(|name| !name.contains("/testing/"));
    files
}

/// The source files of all crates, from the root of the project.
pub fn all_sources() -> Vec<String> {
    let entries = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(root().join(folder)).into_iter().flatten().flatten();
        entries.map(|entry| format!("{folder}/{}", entry.file_name().display())).collect()
    };
    let layers = entries("crates");
    let crates = layers.iter().flat_map(|layer| entries(layer)).map(|name| format!("{name}/src"));
    let mut open: Vec<String> = crates.chain(["crates/pando/src".to_owned()]).collect();
    let mut files = Vec::new();
    while let Some(name) = open.pop() {
        if name.ends_with(".rs") {
            files.push(name);
        } else {
            open.extend(entries(&name));
        }
    }
    files
}

/// The numbers of the lines of `path`, before its tests, that call a write-back or a fence.
fn persisting_lines(path: &Path) -> impl Iterator<Item = usize> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
    let calls = |line: &str| {
        let is_call = [".flush(", "D::fence()", "Self::fence()"].iter().any(|it| line.contains(it));
        is_call && !line.trim_start().starts_with("//")
    };
    let numbers: Vec<usize> =
        (1..).zip(product.lines()).filter(|(_, line)| calls(line)).map(|(at, _)| at).collect();
    numbers.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_in_its_function() {
        let text = "impl A {\n    fn first() {\n        one();\n    }\n    // fn no\n    pub fn second<T>() {\n        two();\n";
        assert_eq!(function_at(text, 3).as_deref(), Some("first"));
        assert_eq!(function_at(text, 7).as_deref(), Some("second"));
        assert_eq!(function_at("no function", 1), None);
    }

    #[test]
    fn the_sources_of_what_is_durable_are_found() {
        let files = durable_sources();
        for known in [
            "crates/core/pmem/src/alloc/slab.rs",
            "crates/core/pmwcas/src/committed_pending.rs",
            "crates/indexes/bztree/src/smo/mod.rs",
        ] {
            assert!(files.iter().any(|file| file == known), "{known}: {files:?}");
        }
        assert!(files.iter().all(|file| !file.contains("crashlab") && !file.contains("/testing/")));
    }

    #[test]
    fn every_known_place_is_there() {
        for line in UNSEEN.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (place, reason) = line.split_once(": ").expect("a place and a reason");
            let [file, function, which] = place.split(' ').collect::<Vec<_>>()[..] else {
                panic!("a file, a function, and which: {place}");
            };
            let text = fs::read_to_string(root().join(file)).expect("a file of the project");
            assert!(text.contains(&format!("fn {function}(")), "{place} is gone");
            assert!(["fence", "write-back"].contains(&which), "{place}");
            assert!(reason.len() > 10, "{place} has no reason");
        }
    }
}
