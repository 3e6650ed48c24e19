//! No files of a crate use each other in a cycle: a file uses only files below it.
//!
//! The rule, for each crate under `crates/` and `bindings/`:
//!
//! * A file uses another if it names an item that the other defines, in `use` or elsewhere, by a
//!   path that begins with `crate`, `self`, `super` or a module that the file declares.
//! * A path through a re-export (`pub use`) uses the file that defines the item. The re-export
//!   itself and a declaration (`mod`) are not uses. So `mod.rs` and `lib.rs` count only for the
//!   items that they define.
//! * `super` within an inline module, such as `mod tests { .. }`, means the same file.
//!   `use super::*` is not a use.
//! * The test does not see paths from macros, and items that are named without a path.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use super::{files, read, root};

/// Keywords before the name of an item.
const ITEMS: [&str; 9] =
    ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "mod"];

type Names = Vec<String>;

/// The words of a source text: names, `::`, and single signs; no comments, strings or numbers.
fn words(text: &str) -> Names {
    let chars: Vec<char> = text.chars().collect();
    let at = |place: usize| chars.get(place).copied().unwrap_or('\n');
    let begins =
        |place: usize, sign: &str| sign.chars().enumerate().all(|(n, c)| at(place + n) == c);
    let mut words = Names::new();
    let mut place = 0;
    while place < chars.len() {
        let hashes = (place + 1..).take_while(|&next| at(next) == '#').count();
        let begin = place;
        if begins(place, "//") {
            place += (place..chars.len()).take_while(|&next| at(next) != '\n').count();
        } else if begins(place, "/*") {
            let end = (place..chars.len()).find(|&next| begins(next, "*/"));
            place = end.map_or(chars.len(), |end| end + 2);
        } else if at(place) == 'r' && at(place + 1 + hashes) == '"' {
            let end = format!("\"{}", "#".repeat(hashes));
            let found = (place + hashes + 2..chars.len()).find(|&next| begins(next, &end));
            place = found.map_or(chars.len(), |found| found + end.len());
        } else if at(place) == '"' {
            place += 1;
            while place < chars.len() && at(place) != '"' {
                place += if at(place) == '\\' { 2 } else { 1 };
            }
            place += 1;
        } else if at(place) == '\'' && (at(place + 1) == '\\' || at(place + 2) == '\'') {
            let end = (place + 3..chars.len()).find(|&next| at(next) == '\'');
            place = if at(place + 2) == '\'' { place + 3 } else { end.unwrap_or(place) + 1 };
        } else if at(place).is_alphanumeric() || at(place) == '_' {
            let is_name = |next: &usize| at(*next).is_alphanumeric() || at(*next) == '_';
            place += (place..).take_while(is_name).count();
            words.push(chars[begin..place].iter().collect());
        } else if begins(place, "::") {
            words.push("::".to_owned());
            place += 2;
        } else {
            if !at(place).is_whitespace() {
                words.push(at(place).to_string());
            }
            place += 1;
        }
    }
    words
}

/// The items of a source file, and its paths to items of other files.
#[derive(Default)]
struct File {
    /// The module in which its paths begin.
    module: Names,
    /// The modules that it declares.
    children: BTreeSet<String>,
    /// Names of its items.
    items: BTreeSet<String>,
    /// Paths to items of other files, and whether each is a re-export.
    paths: Vec<(Names, bool)>,
}

/// Adds the paths of the `use` tree at `words[place]`, each after `before`; returns the tree's end.
fn tree(words: &[String], mut place: usize, before: &[String], found: &mut Vec<Names>) -> usize {
    let mut path = before.to_vec();
    while let Some(word) = words.get(place) {
        match word.as_str() {
            "{" => {
                while !matches!(words.get(place).map(String::as_str), None | Some("}" | ";")) {
                    place = tree(words, place + 1, &path, found);
                }
                return place + 1;
            }
            "as" => place += 1,
            "::" => {}
            "," | "}" | ";" => break,
            name => path.push(name.to_owned()),
        }
        place += 1;
    }
    if path.len() > before.len() {
        found.push(path);
    }
    place
}

impl File {
    fn of(module: Names, text: &str) -> Self {
        let words = words(text);
        let word = |place: usize| words.get(place).map_or("", String::as_str);
        let mut file = Self { module, ..Self::default() };
        for place in 0..words.len() {
            if ITEMS.contains(&word(place)) || (word(place) == "!" && word(place + 1) != "(") {
                file.items.insert(word(place + 1).to_owned());
            }
            if word(place) == "mod" && word(place + 2) == ";" {
                file.children.insert(word(place + 1).to_owned());
            }
        }
        // The open inline modules, by the depth of their braces.
        let (mut depth, mut inline) = (0_usize, Vec::new());
        let mut place = 0;
        while place < words.len() {
            let mut found = Vec::new();
            let mut is_reexport = false;
            match word(place) {
                "{" => {
                    depth += 1;
                    if place >= 2 && word(place - 2) == "mod" {
                        inline.push(depth);
                    }
                }
                "}" => {
                    inline.pop_if(|open| *open == depth);
                    depth = depth.saturating_sub(1);
                }
                "use" => {
                    is_reexport = place > 0 && matches!(word(place - 1), "pub" | ")");
                    place = tree(&words, place + 1, &[], &mut found);
                }
                _ if word(place + 1) == "::" && (place == 0 || word(place - 1) != "::") => {
                    let mut path = vec![word(place).to_owned()];
                    while word(place + 1) == "::" && word(place + 2) != "<" {
                        path.push(word(place + 2).to_owned());
                        place += 2;
                    }
                    found.push(path);
                }
                _ => {}
            }
            for path in found {
                let supers = path.iter().take_while(|name| *name == "super").count();
                let path = match supers.min(inline.len()) {
                    0 => path,
                    own => [&["self".to_owned()], &path[own..]].concat(),
                };
                if path != ["super", "*"] && path != ["self", "*"] {
                    file.paths.push((path, is_reexport));
                }
            }
            place += 1;
        }
        file
    }
}

/// The files of a crate by module: `""` for `lib.rs`, `main` for `main.rs`, `a::b`.
type Files = BTreeMap<String, File>;

fn crate_files(src: &Path) -> Files {
    let mut paths = Vec::new();
    files(src, "rs", &mut paths);
    let file = |path: PathBuf| {
        let inside = path.strip_prefix(src).expect("below it").with_extension("");
        let parts = inside.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
        let mut module: Names = parts.collect();
        module.pop_if(|last| last == "mod");
        let name = module.join("::");
        let name = if name == "lib" { String::new() } else { name };
        module.pop_if(|_| ["", "main"].contains(&name.as_str()));
        (name, File::of(module, &read(&path)))
    };
    paths.into_iter().map(file).collect()
}

/// The file that defines the target of `path` in `file`, if it is one of `files`.
fn target(files: &Files, file: &File, path: &[String], hops: usize) -> Option<String> {
    let mut module = match path.first()?.as_str() {
        "crate" => Names::new(),
        "self" | "super" => file.module.clone(),
        child if file.children.contains(child) => file.module.clone(),
        _ => return None,
    };
    let mut rest = path.iter().skip_while(|name| ["crate", "self"].contains(&name.as_str()));
    let mut next = rest.next();
    while next.is_some_and(|name| name == "super") {
        module.pop();
        next = rest.next();
    }
    while let Some(name) = next {
        let inner = [&module[..], std::slice::from_ref(name)].concat();
        if !files.contains_key(&inner.join("::")) {
            break;
        }
        (module, next) = (inner, rest.next());
    }
    let name = module.join("::");
    let found = files.get(&name)?;
    let Some(item) = next.filter(|item| !found.items.contains(*item) && hops < 5) else {
        return Some(name);
    };
    let reexports =
        found.paths.iter().filter(|(path, is_reexport)| *is_reexport && path.last() == Some(item));
    let mut through = reexports.filter_map(|(path, _)| target(files, found, path, hops + 1));
    Some(through.next().unwrap_or(name))
}

/// The files that each file uses.
fn uses(files: &Files) -> BTreeMap<&str, BTreeSet<String>> {
    let used = |(name, file): (&'_ String, &File)| {
        let own = file.paths.iter().filter(|(_, is_reexport)| !is_reexport);
        let targets = own.filter_map(|(path, _)| target(files, file, path, 0));
        targets.filter(|target| target != name).collect()
    };
    files.iter().map(|entry| (entry.0.as_str(), used(entry))).collect()
}

/// The shortest cycle through `from`.
fn cycle<'a>(uses: &'a BTreeMap<&str, BTreeSet<String>>, from: &'a str) -> Option<Vec<&'a str>> {
    let mut ways = VecDeque::from([vec![from]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for next in uses.get(way.last()?)? {
            let longer = [&way[..], &[next.as_str()]].concat();
            if next == from {
                return Some(longer);
            }
            if seen.insert(next) {
                ways.push_back(longer);
            }
        }
    }
    None
}

/// The cycles of a crate, as `a -> b -> a`, each once.
fn cycles(files: &Files) -> BTreeSet<String> {
    let uses = uses(files);
    let ways = uses.keys().filter_map(|from| cycle(&uses, from));
    let turned = |mut way: Vec<&str>| {
        way.pop();
        let least = (0..way.len()).min_by_key(|&place| way[place]).unwrap_or(0);
        way.rotate_left(least);
        way.push(way[0]);
        let shown = way.iter().map(|&name| if name.is_empty() { "lib" } else { name });
        shown.collect::<Vec<_>>().join(" -> ")
    };
    ways.map(turned).collect()
}

#[test]
fn no_files_of_a_crate_use_each_other_in_a_cycle() {
    let mut manifests = Vec::new();
    files(&root().join("crates"), "toml", &mut manifests);
    files(&root().join("bindings"), "toml", &mut manifests);
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for manifest in manifests.iter().filter(|path| path.ends_with("Cargo.toml")) {
        let folder = manifest.parent().expect("a folder");
        let name = folder.strip_prefix(root()).expect("below it").display().to_string();
        let found = cycles(&crate_files(&folder.join("src")));
        seen += 1;
        wrong.extend(found.iter().map(|cycle| format!("{name}: {cycle}")));
    }
    assert!(seen > 10, "only {seen} crates are seen");
    assert!(wrong.is_empty(), "files use only files below them:\n{}", wrong.join("\n"));
}

#[test]
fn cycles_are_seen_through_reexports_and_not_in_tests_of_a_file() {
    let file = |module: &str, text: &str| {
        let parts = module.split("::").filter(|part| !part.is_empty()).map(str::to_owned);
        (module.to_owned(), File::of(parts.collect(), text))
    };
    let of = |texts: &[(&str, &str)]| {
        let files: Files = texts.iter().map(|(module, text)| file(module, text)).collect();
        cycles(&files).into_iter().collect::<Vec<_>>()
    };
    let lib = ("", "mod a; mod b; pub use a::{A, c}; pub use b::B;");
    let uses_b = ("a", "use crate::{B, x::Y}; pub struct A; fn c() { \"crate::b::B\"; }");
    assert_eq!(of(&[lib, uses_b, ("b", "pub struct B; // crate::A")]), [""; 0]);
    assert_eq!(of(&[lib, uses_b, ("b", "pub struct B(super::A<'{'>);")]), ["a -> b -> a"]);
    let tests = ("b", "pub struct B; #[cfg(test)] mod tests { use super::*; use super::B; }");
    assert_eq!(of(&[lib, uses_b, tests]), [""; 0]);
    let up = ("b", "use super::f as g; pub struct B;");
    assert_eq!(of(&[("", "mod b; pub fn f() { b::B; }"), up]), ["lib -> b -> lib"]);
}
