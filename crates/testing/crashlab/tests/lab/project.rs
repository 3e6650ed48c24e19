//! Compares the project's pages with its files.

#[path = "cycles.rs"]
mod cycles;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pando_crashlab::mutate::source::root;

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every file below `folder` with that extension, in order.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.extension().is_some_and(|of| of == ending) {
            found.push(path);
        }
    }
}

/// Every source file of the crates and of the bindings, with tests.
fn all_sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root().join("crates"), "rs", &mut found);
    files(&root().join("bindings"), "rs", &mut found);
    found
}

/// Every page of the documents.
fn all_pages() -> Vec<PathBuf> {
    let mut found =
        ["ARCHITECTURE.md", "CHANGELOG.md", "README.md"].map(|page| root().join(page)).to_vec();
    files(&root().join("docs"), "md", &mut found);
    found
}

/// Whether a line of code, not of comments, has `unsafe`.
fn has_unsafe(text: &str) -> bool {
    let begins = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe trait"];
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    text.lines().map(code).any(|line| begins.iter().any(|begin| line.contains(begin)))
}

#[test]
fn a_page_lists_the_files_with_unsafe_code() {
    let top = root().canonicalize().expect("a folder");
    let is_source = |path: &Path| path.components().any(|part| part.as_os_str() == "src");
    let found: BTreeSet<String> = all_sources()
        .into_iter()
        .map(|path| path.canonicalize().expect("a file"))
        .filter(|path| is_source(path.strip_prefix(&top).expect("below it")))
        .filter(|path| has_unsafe(&read(path)))
        .map(|path| path.strip_prefix(&top).expect("below it").display().to_string())
        .map(|path| path.strip_prefix("crates/").map_or(path.clone(), str::to_owned))
        .collect();
    let page = read(&root().join("docs/unsafe.md"));
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let listed: BTreeSet<String> = rows.map(str::to_owned).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "docs/unsafe.md: not in the table: {new:?}; in it without unsafe code: {gone:?}"
    );
}

/// `.ci/long` runs each ignored test by its name, unless the test is the child process of another
/// test.
#[test]
fn every_ignored_test_is_run_by_the_long_command() {
    let long = read(&root().join(".ci/long"));
    let mut seen = 0;
    for path in all_sources() {
        let text = read(&path);
        for (at, _) in text.match_indices("\n#[ignore = \"") {
            let behind = &text[at + 1..];
            let name = behind.split("\nfn ").nth(1).and_then(|rest| rest.split('(').next());
            let name = name.unwrap_or_else(|| panic!("{}: a test", path.display()));
            seen += 1;
            if !behind.starts_with("#[ignore = \"the process that ") {
                assert!(long.contains(name), ".ci/long does not run {name} of {}", path.display());
            }
        }
    }
    assert!(seen >= 4, "only {seen} ignored tests are seen");
}

/// The page on verification names each check of `.ci/long`, and no other.
#[test]
fn the_page_on_verification_lists_the_long_checks() {
    let long = read(&root().join(".ci/long"));
    let line = long.lines().find_map(|line| line.strip_prefix("checks=("));
    let checks: BTreeSet<&str> =
        line.expect("the checks").trim_end_matches(')').split_whitespace().collect();
    let page = read(&root().join("docs/verify.md"));
    let section = page.split("\n## The long checks\n").nth(1).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(rows.collect::<BTreeSet<&str>>(), checks);
}

/// `Cargo.toml` has the earliest Rust. Other manifests and pages have the same; `.ci/long
/// minimum-rust` takes it from there.
#[test]
fn every_place_names_the_same_earliest_rust() {
    let rust = |text: &str, mark: &str| -> Vec<String> {
        let is_number = |letter: &char| *letter == '.' || letter.is_ascii_digit();
        let numbers = text.split(mark).skip(1).map(|rest| rest.chars().take_while(is_number));
        numbers.map(Iterator::collect).collect()
    };
    let mark = "rust-version = \"";
    let earliest = rust(&read(&root().join("Cargo.toml")), mark);
    assert_eq!(earliest.len(), 1);
    let mut manifests = Vec::new();
    files(&root().join("crates"), "toml", &mut manifests);
    files(&root().join("bindings"), "toml", &mut manifests);
    let texts = manifests.iter().flat_map(|path| rust(&read(path), mark));
    let pages = ["README.md", "CONTRIBUTING.md"].map(|page| read(&root().join(page)));
    let pages = pages.iter().flat_map(|text| rust(text, "stable Rust "));
    let found: Vec<String> = texts.chain(pages).collect();
    assert!(found.len() >= 4, "only {found:?} are seen");
    assert!(found.iter().all(|found| *found == earliest[0]), "{found:?}, and not {earliest:?}");
}

/// The page that compares the API with that of other maps names each method of a map.
#[test]
fn the_page_on_the_api_names_each_method_of_a_map() {
    let page = read(&root().join("docs/api.md"));
    let mut seen = 0;
    for file in ["map.rs", "ordered.rs", "entry.rs"] {
        let text = read(&root().join("crates/pando/src").join(file));
        for methods in text.split("\nimpl Map {\n").skip(1) {
            let methods = methods.split("\n}").next().unwrap_or_default();
            for method in methods.split("\n    pub fn ").skip(1) {
                let method = method.split(['(', '<']).next().unwrap_or_default();
                let names = [format!("`{method}`"), format!("`{method}("), format!("::{method}`")];
                seen += 1;
                assert!(names.iter().any(|name| page.contains(name)), "{method} is not there");
            }
        }
    }
    assert!(seen > 30, "only {seen} methods are seen");
}

/// The names of tests on the pages about tests: words in backticks with three underscores or more.
fn test_names(page: &str) -> impl Iterator<Item = &str> {
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_name = move |word: &&str| word.matches('_').count() >= 3 && word.starts_with(is_letter);
    let words = page.split('`').skip(1).step_by(2);
    words.flat_map(move |code| code.split([':', ' ', ',', '*'])).filter(is_name)
}

#[test]
fn the_tests_that_the_pages_name_exist() {
    let sources: Vec<String> = all_sources().iter().map(|path| read(path)).collect();
    let mut seen = 0;
    for page in ["docs/traps.md", "docs/verify.md"] {
        for name in test_names(&read(&root().join(page))) {
            let function = format!("fn {name}");
            seen += 1;
            assert!(sources.iter().any(|text| text.contains(&function)), "{page}: no test {name}");
        }
    }
    assert!(seen > 80, "only {seen} names are seen");
}

/// The table at the top of an index's page names files below the folder in its head.
#[test]
fn the_files_that_the_pages_of_the_indexes_name_exist() {
    let mut pages = Vec::new();
    files(&root().join("docs/indexes"), "md", &mut pages);
    let mut seen = 0;
    for page in pages {
        let text = read(&page);
        let Some((_, table)) = text.split_once("| part | file in `") else { continue };
        let (folder, rows) = table.split_once('`').expect("a folder");
        let rows = rows.split("\n\n").next().unwrap_or_default();
        let code = rows.split('`').skip(1).step_by(2);
        for name in code.filter(|code| code.ends_with(".rs") || code.ends_with('/')) {
            seen += 1;
            let path = root().join(folder).join(name);
            assert!(path.exists(), "{}: no file {folder}{name}", page.display());
        }
    }
    assert!(seen > 20, "only {seen} files are seen");
}

#[test]
fn the_page_on_verification_has_the_totals_of_the_runs() {
    let table = pando_crashlab::totals::table().expect("data");
    let page = read(&root().join("docs/verify.md"));
    assert!(
        page.contains(&table),
        "put the output of the verb totals into docs/verify.md:\n{table}"
    );
    // A row of sums would be counted as one more trial.
    for row in read(&root().join("docs/runs/trials.tsv")).lines().skip(1) {
        assert!(row.split('\t').next().is_some_and(|trial| trial.contains('/')), "{row}");
    }
}

/// Whether a line of Markdown may be longer: a table, a block of code, or one link.
fn may_be_long(line: &str) -> bool {
    line.trim_start().starts_with('|') || line.starts_with("    ") || !line.trim().contains(' ')
}

/// The numbers of the lines of prose with more than 100 columns. In a source file only comments
/// count.
fn long_lines(text: &str, is_source: bool) -> Vec<usize> {
    let mut is_code = false;
    let mut long = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let prose = if is_source {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            let comment = comment.strip_prefix(['/', '!']).unwrap_or(comment);
            comment.strip_prefix(' ').unwrap_or(comment)
        } else {
            line
        };
        if prose.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code && line.chars().count() > 100 && !may_be_long(prose) {
            long.push(number);
        }
    }
    long
}

#[test]
fn lines_of_prose_have_at_most_100_columns() {
    let mut sources = all_sources();
    files(&root().join("fuzz/fuzz_targets"), "rs", &mut sources);
    let pages = all_pages().into_iter().map(|path| (path, false));
    let mut long = Vec::new();
    for (path, is_source) in pages.chain(sources.into_iter().map(|path| (path, true))) {
        let lines = long_lines(&read(&path), is_source).into_iter();
        long.extend(lines.map(|line| format!("{}:{line}", path.display())));
    }
    assert!(long.is_empty(), "wrap these at 100 columns:\n{}", long.join("\n"));
}

#[test]
fn a_long_line_is_seen_unless_it_is_a_table_code_or_a_link() {
    let words = "word ".repeat(30);
    let page = format!("short\n{words}\n| {words}\n    {words}\n```\n{words}\n```\n{words}");
    assert_eq!(long_lines(&page, false), [2, 8]);
    let source = format!("let code; {words}\n    /// {words}\n//! | {words}\n// {words}");
    assert_eq!(long_lines(&source, true), [2, 4]);
}

/// The targets of a page's links, as they are written.
fn links(page: &str) -> impl Iterator<Item = &str> {
    page.split("](").skip(1).filter_map(|behind| behind.split_once(')')).map(|(link, _)| link)
}

/// The anchor of a heading: lower-case letters, digits, and hyphens for spaces.
fn anchor(heading: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || "-_ ".contains(*letter);
    let lower = heading.trim_start_matches('#').trim().to_lowercase();
    lower.chars().filter(kept).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[test]
fn links_between_pages_lead_to_files_and_headings() {
    let mut dead = Vec::new();
    let mut seen = 0;
    for page in all_pages() {
        let text = read(&page);
        for link in links(&text).filter(|link| !link.contains("://")) {
            seen += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.with_file_name(file),
            };
            let is_there = target.exists()
                && (heading.is_empty()
                    || read(&target)
                        .lines()
                        .any(|line| line.starts_with('#') && anchor(line) == heading));
            if !is_there {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(dead.is_empty(), "links without a target:\n{}", dead.join("\n"));
    assert!(seen > 20, "only {seen} links are seen");
}

/// Every page of `docs/` is in the book's summary, once, and the summary names no other.
#[test]
fn the_summary_of_the_book_lists_each_page() {
    let docs = root().join("docs");
    let summary = read(&docs.join("SUMMARY.md"));
    let mut listed: Vec<PathBuf> = links(&summary).map(|link| docs.join(link)).collect();
    listed.push(docs.join("SUMMARY.md"));
    listed.sort();
    let mut pages = Vec::new();
    files(&docs, "md", &mut pages);
    pages.sort();
    assert_eq!(listed, pages);
}

/// A page of the book has no link to a file outside it: the built book would not have the target.
#[test]
fn pages_of_the_book_link_to_pages_of_the_book() {
    let docs = root().join("docs").canonicalize().expect("a folder");
    let mut pages = Vec::new();
    files(&docs, "md", &mut pages);
    for page in pages {
        let text = read(&page);
        for link in links(&text).filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let file = link.split('#').next().unwrap_or_default();
            let target = page.with_file_name(file).canonicalize();
            let is_inside = target.is_ok_and(|target| target.starts_with(&docs));
            assert!(is_inside, "{}: {link} leads out of docs/", page.display());
        }
    }
}
