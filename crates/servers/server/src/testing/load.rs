//! A load of writes of all kinds, each of which leaves its number; and what must be there after a
//! kill or a power cut, if so many of them were acknowledged.

use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;
use std::time::Instant;

use super::client::Client;

/// Keys of each kind that a writer writes in turn.
const KEYS: u64 = 50;
/// Requests on their way at once, for each writer.
pub const PIPELINE: u64 = 20;
/// Kinds of requests.
const KINDS: u64 = 10;
/// Digits of the number in a long string.
const DIGITS: usize = 8;
/// Bytes of the part of a long string that one request writes: three of its pieces have some.
const PART_BYTES: usize = DIGITS * 2500;
/// Where it begins.
const PART_AT: usize = 30_000;
/// Strings that each writer writes parts of.
const LONG_STRINGS: u64 = 4;

/// What one writer has sent, and what was acknowledged, over all kills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Requests sent, at most; each writes its own number.
    pub sent: u64,
    /// Requests that were acknowledged, at least.
    pub acknowledged: u64,
}

/// The words of the commands of a writer's request of that number.
#[must_use]
pub fn request(writer: usize, number: u64) -> Vec<Vec<String>> {
    let one = |kind: &[&str]| vec![words_of(writer, number, kind)];
    match number % KINDS {
        0 => one(&["SET", "plain:W:K", "N"]),
        1 => one(&["MSET", "left:W:K", "N", "right:W:K", "N"]),
        2 => one(&["INCR", "counter:W"]),
        3 => one(&["SET", "expires:W:K", "N", "EX", "100000"]),
        4 => one(&["HSET", "hash:W", "K", "N"]),
        // Members come and go.
        5 => one(&["SADD", "set:W", "K", "more:K", "N"]),
        6 => one(&["SREM", "set:W", "more:K"]),
        7 => one(&["ZADD", "sorted:W", "N", "K"]),
        8 => {
            [&["MULTI"][..], &["SET", "one:W:K", "N", "EX", "90000"], &["HSET", "two:W", "K", "N"]]
                .into_iter()
                .chain([&["EXEC"][..]])
                .flat_map(one)
                .collect()
        }
        // Most often nothing but pieces is written, once and again a longer string.
        _ => {
            let part = format!("{number:0DIGITS$}").repeat(PART_BYTES / DIGITS);
            let key = number / KINDS % KEYS % LONG_STRINGS;
            let (key, at) = (format!("long:{writer}:{key}"), PART_AT.to_string());
            vec![["SETRANGE".to_owned(), key, at, part].into()]
        }
    }
}

/// The words of a command: `W` in a word is the writer, `K` the key, and the word `N` the number.
fn words_of(writer: usize, number: u64, words: &[&str]) -> Vec<String> {
    let key = (number / KINDS) % KEYS;
    let with = |word: &&str| {
        let word = word.replace('W', &writer.to_string());
        if word == "N" { number.to_string() } else { word.replace('K', &key.to_string()) }
    };
    words
        .iter()
        .enumerate()
        .map(|(place, word)| if place == 0 { (*word).into() } else { with(word) })
        .collect()
}

/// Writes until the server is gone. Calls `tell` with the number of acknowledged requests after
/// each reply, and the time when that request was sent.
///
/// # Panics
///
/// If a reply is an error.
pub fn write(
    mut client: Client,
    writer: usize,
    known: &Mutex<Known>,
    mut tell: impl FnMut(u64, Instant),
) {
    let (mut sent, mut acknowledged) = {
        let known = known.lock().expect("not poisoned");
        (known.sent, known.sent)
    };
    let mut sent_at = VecDeque::new();
    loop {
        while sent < acknowledged + PIPELINE {
            sent_at.push_back(Instant::now());
            known.lock().expect("not poisoned").sent = sent + 1;
            for words in request(writer, sent) {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                if client.send(&words).is_err() {
                    return;
                }
            }
            sent += 1;
        }
        if request(writer, acknowledged).iter().any(|_| client.receive().is_err()) {
            return;
        }
        acknowledged += 1;
        known.lock().expect("not poisoned").acknowledged = acknowledged;
        tell(acknowledged, sent_at.pop_front().expect("it was sent"));
    }
}

/// The last request of a kind, for a key, below `end`; none if there is none.
fn last_before(end: u64, kind: u64, key: u64) -> Option<u64> {
    let round = KINDS * KEYS;
    let first = key * KINDS + kind;
    (end > first).then(|| first + (end - 1 - first) / round * round)
}

/// Whether a value that was found is of a request that may be the last one carried out.
fn may_be(found: Option<&str>, known: &Known, kind: u64, key: u64) -> bool {
    let least = last_before(known.acknowledged, kind, key);
    let most = last_before(known.sent, kind, key);
    match found {
        None => least.is_none(),
        Some(found) => {
            let found: u64 = found.parse().expect("a number");
            least.is_none_or(|least| least <= found) && most.is_some_and(|most| found <= most)
        }
    }
}

/// Checks what the server has of this writer.
///
/// # Panics
///
/// If it is not what `known` allows.
pub fn verify(client: &mut Client, writer: usize, known: &Known) {
    for key in 0..KEYS {
        let mut get =
            |name: &str| client.ask(&["GET", &format!("{name}:{writer}:{key}")]).into_iter().next();
        let (plain, left, right) = (get("plain"), get("left"), get("right"));
        let (expires, one) = (get("expires"), get("one"));
        assert_eq!(left, right, "writer {writer}, key {key}: half of an MSET");
        let two = client.ask(&["HGET", &format!("two:{writer}"), &key.to_string()]);
        assert_eq!(
            one.iter().collect::<Vec<_>>(),
            two.iter().collect::<Vec<_>>(),
            "half of a MULTI"
        );
        for (kind, found) in [(0, &plain), (1, &left), (3, &expires), (8, &one)] {
            let holds = may_be(found.as_deref(), known, kind, key);
            assert!(
                holds,
                "writer {writer}, key {key}, kind {kind}: {found:?} of {}..{}",
                known.acknowledged, known.sent
            );
        }
        if expires.is_some() {
            let left = client.ask(&["TTL", &format!("expires:{writer}:{key}")]);
            let seconds: i64 = left[0].parse().expect("a number");
            assert!((1..=100_000).contains(&seconds), "{seconds} seconds to live");
        }
    }
    let counted = client.ask(&["GET", &format!("counter:{writer}")]);
    let counted: u64 = counted.first().map_or(0, |found| found.parse().expect("a number"));
    let range = increments(known.acknowledged)..=increments(known.sent);
    assert!(range.contains(&counted), "writer {writer}: {counted} increments of {range:?}");
    let hash = format!("hash:{writer}");
    let fields = client.ask(&["HGETALL", &hash]);
    assert_eq!(client.ask(&["HLEN", &hash]), [(fields.len() / 2).to_string()]);
    for pair in fields.as_chunks::<2>().0 {
        let key = pair[0].parse().expect("a number");
        assert!(may_be(Some(&pair[1]), known, 4, key), "writer {writer}, field {key}: {}", pair[1]);
    }
    let set = format!("set:{writer}");
    let members: HashSet<String> = client.ask(&["SMEMBERS", &set]).into_iter().collect();
    assert_eq!(client.ask(&["SCARD", &set]), [members.len().to_string()]);
    for number in (0..known.acknowledged).filter(|number| number % KINDS == 5) {
        let (key, number) = (number / KINDS % KEYS, number.to_string());
        assert!(members.contains(&key.to_string()) && members.contains(&number), "{number}");
    }
    let sorted = format!("sorted:{writer}");
    let scores = client.ask(&["ZRANGE", &sorted, "0", "-1", "WITHSCORES"]);
    assert_eq!(client.ask(&["ZCARD", &sorted]), [(scores.len() / 2).to_string()]);
    for pair in scores.as_chunks::<2>().0 {
        let key = pair[0].parse().expect("a number");
        assert!(
            may_be(Some(&pair[1]), known, 7, key),
            "writer {writer}, member {key}: {}",
            pair[1]
        );
        assert_eq!(client.ask(&["ZSCORE", &sorted, &pair[0]]), [pair[1].clone()]);
    }
    for key in 0..LONG_STRINGS {
        let name = format!("long:{writer}:{key}");
        let found = client.ask(&["GETRANGE", &name, &PART_AT.to_string(), "-1"]);
        let part = found.first().map(String::as_str).unwrap_or_default();
        let number = part.get(..DIGITS);
        assert!(
            part.is_empty() || part == number.unwrap_or_default().repeat(PART_BYTES / DIGITS),
            "writer {writer}, string {key}: half of a part"
        );
        // The keys that have this string take turns.
        let most = (0..KEYS).filter(|other| other % LONG_STRINGS == key);
        let last = |end| most.clone().filter_map(|other| last_before(end, 9, other)).max();
        let number = number.map(|digits| digits.parse::<u64>().expect("digits"));
        let (least, most) = (last(known.acknowledged), last(known.sent));
        assert!(
            least <= number && number <= most,
            "string {key}: {number:?} of {least:?}..{most:?}"
        );
    }
}

/// How many of the first requests increment the writer's counter.
#[must_use]
pub fn increments(end: u64) -> u64 {
    end / KINDS + u64::from(end % KINDS > 2)
}
