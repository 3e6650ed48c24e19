//! Words for generated commands, good ones and bad ones.

use crate::common::oracle::{Equal, Step};
use crate::common::random::Random;
use crate::common::wire::{Words, words};

/// They are few, so that commands use the same keys.
pub const KEYS: &[&str] = &["a", "b", "c", "d", "e", ""];

const VALUES: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "17",
    "9999",
    "10000",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "3.5",
    "-0.125",
    "1e3",
    "0x10",
    " 1",
    "1 ",
    "+1",
    "-0",
    "01",
    "inf",
    "nan",
    "abc",
    "axbyc",
    "hello world",
    "the quick brown fox jumps over the lazy dog, twice over",
];

const INTEGERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "5",
    "7",
    "8",
    "16",
    "-1",
    "-2",
    "-3",
    "-7",
    "-100",
    "100",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "x",
    "",
    "1.0",
    "+1",
    " 1",
];

pub fn key(random: &mut Random) -> Vec<u8> {
    random.word(KEYS)
}

/// A value: a number, something like a number, text, or any bytes.
pub fn value(random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 => random.bytes(60),
        1 => (random.number() as i64 >> random.below(64)).to_string().into_bytes(),
        2 => (0..random.below(12)).map(|_| *random.pick(b"abc")).collect(),
        _ => random.word(VALUES),
    }
}

/// An integer, small or huge, or something that is not one.
pub fn integer(random: &mut Random) -> Vec<u8> {
    if random.once_in(4) {
        return (random.number() as i64 >> random.below(64)).to_string().into_bytes();
    }
    random.word(INTEGERS)
}

/// A number with a point, or something that is not one.
pub fn float(random: &mut Random) -> Vec<u8> {
    let digits = |random: &mut Random, most: usize| {
        (0..random.below(most + 1))
            .map(|_| char::from(*random.pick(b"0123456789")))
            .collect::<String>()
    };
    let sign = *random.pick(&["", "", "-", "+"]);
    match random.below(8) {
        0 => value(random),
        1 => integer(random),
        2 => format!("{sign}{}e{}", digits(random, 20), integer_text(random)).into_bytes(),
        3 => format!("{sign}0x{:x}.{:x}p{}", random.below(99), random.below(99), random.below(80))
            .into_bytes(),
        4 => format!("{sign}{}e{}", digits(random, 3), random.below(10_000) as i64 - 5_000)
            .into_bytes(),
        _ => format!("{sign}{}.{}", digits(random, 20), digits(random, 22)).into_bytes(),
    }
}

/// One of [`VALUES`]. As a time it must not expire between the requests to the two servers.
fn word_that_is_no_near_time(random: &mut Random) -> Vec<u8> {
    loop {
        let word = random.word(VALUES);
        let number = std::str::from_utf8(&word).ok().and_then(|text| text.parse::<i64>().ok());
        if number.is_none_or(|number| number <= 0 || number > 1_000_000) {
            return word;
        }
    }
}

fn integer_text(random: &mut Random) -> String {
    String::from_utf8_lossy(&integer(random)).into_owned()
}

/// Lists of words, by name. A word may contain names of lists that come later.
pub type Lists = &'static [(&'static str, &'static [&'static str])];

/// A step from one of the lines of `templates`. Each name of a list in braces is replaced by a word
/// of that list. A number before a line multiplies its probability. After `~` the elements of the
/// reply may have any order.
pub fn from_template(random: &mut Random, templates: &str, lists: Lists) -> Step {
    let lines = templates.lines().flat_map(|line| {
        let (weight, rest) = line.split_once(' ').unwrap_or((line, ""));
        match weight.parse() {
            Ok(weight) => std::iter::repeat_n(rest, weight),
            Err(_) => std::iter::repeat_n(line, 1),
        }
    });
    let template = *random.pick(&lines.collect::<Vec<_>>());
    let (template, equal) = match template.strip_prefix("~ ") {
        Some(template) => (template, Equal::Elements),
        None => (template, Equal::Bytes),
    };
    let line = lists.iter().fold(template.to_owned(), |line, (name, list)| {
        let word: &&str = random.pick(list);
        line.replace(&format!("{{{name}}}"), word)
    });
    assert!(!line.contains('{'), "a name without a list: {line}");
    (words(&line), equal).into()
}

/// Sometimes adds, removes or replaces a word; names may have any case.
pub fn spoil(random: &mut Random, mut words: Words) -> Words {
    if random.once_in(12) {
        words[0].make_ascii_uppercase();
    }
    match random.below(60) {
        // In errors, our server writes bytes that are not text in another way.
        0 => words.push(random.word(VALUES)),
        1 if words.len() > 1 => {
            words.pop();
        }
        2 if words.len() > 1 => {
            let at = 1 + random.below(words.len() - 1);
            words[at] = word_that_is_no_near_time(random);
        }
        3 => words = vec![b"nosuchcommand".to_vec(), random.word(VALUES), random.word(VALUES)],
        _ => {}
    }
    words
}
