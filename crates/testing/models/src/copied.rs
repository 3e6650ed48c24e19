//! The functions that the models copy, and a test that they have not changed since.
//!
//! A model is written by hand, because it repeats only the atomic accesses. `copied.txt` names each
//! copied function, with a hash of its text without comments and white space. When the text
//! changes, the test fails until a person has compared the two: an outdated model tests nothing.

use std::fmt::Write;
use std::path::Path;

/// A line for each function: the model, the file below `crates`, the function, the hash.
const COPIED: &str = include_str!("copied.txt");

/// `text` without comments, and without white space outside of literals.
fn stripped(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let bytes = match next {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => {
                let end = literal_bytes(rest, '"');
                out.push_str(&rest[..end]);
                end
            }
            // A character, not a lifetime.
            '\'' if is_character(rest) => {
                let end = literal_bytes(rest, '\'');
                out.push_str(&rest[..end]);
                end
            }
            space if space.is_whitespace() => space.len_utf8(),
            other => {
                out.push(other);
                other.len_utf8()
            }
        };
        rest = &rest[bytes..];
    }
    out
}

fn is_character(rest: &str) -> bool {
    rest.starts_with("'\\") || rest.chars().nth(2) == Some('\'')
}

/// The length of the literal at the beginning, with its quotes.
fn literal_bytes(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, found) in rest.char_indices().skip(1) {
        match found {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            found if found == quote => return at + quote.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// The stripped text of every function of that name, signature and body; `None` if there is none.
fn functions(text: &str, name: &str) -> Option<String> {
    let stripped = stripped(text);
    let mut found = String::new();
    for end in ["(", "<"] {
        for (at, _) in stripped.match_indices(&format!("fn{name}{end}")) {
            found.push_str(body_of(&stripped[at..])?);
        }
    }
    (!found.is_empty()).then_some(found)
}

/// The function that `rest` begins with, up to the brace that closes its body.
fn body_of(rest: &str) -> Option<&str> {
    let (mut at, mut depth) = (0, 0);
    loop {
        let next = rest[at..].chars().next()?;
        match next {
            '"' => at += literal_bytes(&rest[at..], '"') - 1,
            '\'' if is_character(&rest[at..]) => at += literal_bytes(&rest[at..], '\'') - 1,
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        at += next.len_utf8();
        if next == '}' && depth == 0 {
            return Some(&rest[..at]);
        }
    }
}

/// FNV-1a: the same in every build.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    })
}

#[test]
fn what_the_models_copy_has_not_changed() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut changed = String::new();
    for line in COPIED.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[model, file, function, known] = words.as_slice() else {
            panic!("copied.txt: expected a line of four words: {line:?}");
        };
        let text = std::fs::read_to_string(crates.join(file))
            .unwrap_or_else(|error| panic!("copied.txt names crates/{file}: {error}"));
        let found = functions(&text, function)
            .unwrap_or_else(|| panic!("crates/{file} has no function {function}; compare the model {model} with the function that replaces it"));
        let now = format!("{:016x}", hash(&found));
        if now != known {
            let _ = writeln!(changed, "{model} {file} {function} {now}");
        }
    }
    assert!(
        changed.is_empty(),
        "These functions have changed since a model copied them. Compare each with its namesake in \
         crates/testing/models/src/MODEL.rs: every atomic access, its ordering, and the order of accesses. Change the \
         model where they differ, run `cargo test -p pando-models`, and then replace the lines in \
         crates/testing/models/src/copied.txt by these:\n{changed}"
    );
}

#[test]
fn comments_and_white_space_do_not_count_and_all_else_does() {
    let code = "// fn pin() {\nfn pin<'a>(x: char) -> bool {\n    // Why.\n    x == '}' && y(\"{ // \") /* no */\n}\nfn other() {}";
    let same = "fnpin<'a>(x:char)->bool{x=='}'&&y(\"{ // \")}";
    assert_eq!(functions(code, "pin").as_deref(), Some(same));
    assert_eq!(functions(code, "other").as_deref(), Some("fnother(){}"));
    assert_eq!(functions(code, "pi"), None);
    let weaker = code.replace("x == ", "x != ");
    assert_ne!(functions(&weaker, "pin"), functions(code, "pin"));
    assert_eq!(hash(""), 0xCBF2_9CE4_8422_2325);
}
