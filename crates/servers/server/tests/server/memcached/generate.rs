//! Requests from a seed. Most are correct, some have one or two wrong words.

use crate::common::random::Random;

/// A part of a request.
#[derive(Clone, Debug)]
pub enum Part {
    /// These bytes.
    Bytes(Vec<u8>),
    /// These bytes, then a cas that was seen; the number selects it.
    Cas(&'static str, u64),
}

/// A request, and the data after it.
pub type Request = Vec<Part>;

/// The last bytes of a storage command's data. No requested length is larger than the sent data.
const DATA: &[u8] = b"0123456789";

fn key(random: &mut Random) -> Vec<u8> {
    match random.below(40) {
        0 => vec![b'x'; 250],
        1 => vec![b'x'; 251],
        2 => b"tab\tkey".to_vec(),
        _ => random.word(&["a", "b", "c", "n", "m"]),
    }
}

fn seconds(random: &mut Random) -> Vec<u8> {
    random.word(&["0", "0", "0", "100", "1000", "-1", "2592001", "4000000000", "2000000000"])
}

fn flags(random: &mut Random) -> Vec<u8> {
    random.word(&["0", "0", "1", "77", "4294967295", "4294967296", "+3"])
}

/// Never 2^63 or more, and no such sum. For these numbers memcached searches for a minus, also in
/// memory of former values, and refuses to count if it finds one. `oracle.rs` tests such counts.
fn amount(random: &mut Random) -> Vec<u8> {
    random.word(&["1", "1", "10", "99", "4000000000000", "0", "-1", "x", "007"])
}

fn value(random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => random.word(&["5", "10", "99", "100", "0", "4294967295", "  7", "8  ", "-3"]),
        1 => random.word(&["", "x", "12 oaks", "a\r\nb", "END\r\n"]),
        _ => {
            let mut bytes = random.bytes(12);
            // In a value of only whitespace, memcached searches for a number beyond the value, too.
            if bytes.iter().all(|byte| matches!(byte, 9..=13 | 32)) {
                bytes.push(b'x');
            }
            bytes
        }
    }
}

/// A request.
pub fn request(random: &mut Random) -> Request {
    let mut parts: Vec<Part> = Vec::new();
    let mut data = None;
    let mut words: Vec<Part> = match random.below(14) {
        0..=3 => {
            let name = random.word(&["set", "set", "add", "replace", "append", "prepend", "cas"]);
            let bytes = value(random);
            let mut words = vec![
                Part::Bytes(name.clone()),
                Part::Bytes(key(random)),
                Part::Bytes(flags(random)),
                Part::Bytes(seconds(random)),
                Part::Bytes(bytes.len().to_string().into_bytes()),
            ];
            if name == b"cas" {
                words.push(cas(random, ""));
            }
            data = Some(bytes);
            words
        }
        4..=5 => {
            let name = random.word(&["get", "gets", "gets", "gat", "gats", "bget"]);
            let mut words = vec![name.clone()];
            if name.starts_with(b"ga") {
                words.push(seconds(random));
            }
            let keys = if random.once_in(10) { 40 } else { 1 + random.below(4) };
            let mut keys: Vec<_> = (0..keys).map(|_| key(random)).collect();
            if name.starts_with(b"ga") {
                // Memcached changes the keys before a key that is too long. Our server checks all
                // keys first.
                keys.retain(|key| key.len() <= 250);
                keys.push(b"a".to_vec());
            }
            words.extend(keys);
            words.into_iter().map(Part::Bytes).collect()
        }
        6 => {
            let name = random.word(&["incr", "decr"]);
            [name, key(random), amount(random)].map(Part::Bytes).into()
        }
        7 => {
            let name = random.word(&["delete", "touch"]);
            let mut words = vec![name.clone(), key(random)];
            if name == b"touch" || random.once_in(5) {
                words.push(seconds(random));
            }
            words.into_iter().map(Part::Bytes).collect()
        }
        8 => {
            let line = random.word(&[
                "version",
                "verbosity 1",
                "flush_all",
                "flush_all 0",
                "stats reset",
                "shutdown",
                "nonsense",
                "verbosity",
                "flush_all -1",
                "flush_all x",
                "",
                "x",
                "me",
                "mg",
                "ms",
                "md",
                "ma",
                "get",
                "stats nonsense",
            ]);
            vec![Part::Bytes(line)]
        }
        _ => meta(random, &mut data),
    };
    if random.once_in(8) {
        words.push(Part::Bytes(b"noreply".to_vec()));
    }
    if random.once_in(12) && words.len() > 1 {
        spoil(random, &mut words, data.is_some());
    }
    for (at, word) in words.into_iter().enumerate() {
        if at > 0 {
            parts.push(Part::Bytes(if random.once_in(30) { b"  " } else { &b" "[..] }.to_vec()));
        }
        parts.push(word);
    }
    parts.push(Part::Bytes(if random.once_in(20) { b"\n" } else { &b"\r\n"[..] }.to_vec()));
    if let Some(mut data) = data {
        if random.once_in(15) {
            data.extend_from_slice(DATA);
        }
        data.extend_from_slice(b"\r\n");
        parts.push(Part::Bytes(data));
    }
    parts
}

/// A cas that was seen; in most cases one of the last two.
fn cas(random: &mut Random, before: &'static str) -> Part {
    match random.below(8) {
        0 => Part::Bytes(format!("{before}0").into_bytes()),
        1 => Part::Bytes(format!("{before}18446744073709551615").into_bytes()),
        2 => Part::Cas(before, random.number() >> 1),
        _ => Part::Cas(before, u64::MAX - random.below(2) as u64),
    }
}

/// Changes a word. The length of the data only decreases, because otherwise both servers would wait
/// for more.
fn spoil(random: &mut Random, words: &mut Vec<Part>, has_data: bool) {
    let at = random.below(words.len());
    // A cas must not replace a key, because the reply contains the key.
    let has_cas = words.iter().any(|word| matches!(word, Part::Cas(..)));
    match random.below(3) {
        0 if !has_cas => {
            words.remove(at);
        }
        1 => words[at] = Part::Bytes(random.word(&["x", "-1", "0", "!", "\t", "0\tx", "\u{1}"])),
        _ if has_data => words[at] = Part::Bytes(b"q".to_vec()),
        _ => {
            let word = words[at].clone();
            words.insert(at, word);
        }
    }
}

fn meta(random: &mut Random, data: &mut Option<Vec<u8>>) -> Vec<Part> {
    let name = random.word(&["mg", "mg", "mg", "ms", "ms", "md", "ma", "ma", "me"]);
    let mut words = vec![Part::Bytes(name.clone())];
    let is_binary = random.once_in(6);
    words.push(Part::Bytes(if is_binary {
        random.word(&["YQ==", "Yg==", "b2Fr", "YQ", "!!", "AAEC"])
    } else {
        key(random)
    }));
    let letters: &[&str] = match name.as_slice() {
        b"mg" => &["v", "v", "c", "f", "k", "s", "t", "q", "u", "O", "N", "R", "T", "P"],
        b"ms" => {
            let bytes = value(random);
            words.push(Part::Bytes(bytes.len().to_string().into_bytes()));
            *data = Some(bytes);
            &["c", "k", "q", "C", "F", "I", "T", "M", "O", "L"]
        }
        b"md" => &["k", "q", "C", "I", "T", "O", "I"],
        // Memcached 1.6.18 loses the T of a count that makes the value longer; our server does not.
        b"ma" => &["v", "c", "t", "k", "q", "C", "N", "J", "D", "M", "O"],
        _ => &[],
    };
    if is_binary {
        words.push(Part::Bytes(b"b".to_vec()));
    }
    let mut used = Vec::new();
    for _ in 0..random.below(7).min(letters.len()) {
        let letter = random.word(letters);
        // A repeated flag is refused. This is rare in the generated requests.
        if used.contains(&letter) && !random.once_in(20) {
            continue;
        }
        used.push(letter.clone());
        let token = match letter[0] {
            b'N' | b'T' => seconds(random),
            b'R' => random.word(&["0", "30", "500", "5000", "-1"]),
            b'F' => flags(random),
            b'J' | b'D' => amount(random),
            b'M' => match name.as_slice() {
                b"ms" => random.word(&["E", "A", "P", "R", "S", "A", "X", ""]),
                _ => random.word(&["I", "D", "+", "-", "D", "X", "II"]),
            },
            b'O' => random.word(&["1", "abc", "", "0123456789012345678901234567890"]),
            b'C' => {
                words.push(cas(random, "C"));
                continue;
            }
            _ => Vec::new(),
        };
        words.push(Part::Bytes([letter, token].concat()));
    }
    words
}
