//! The test vectors of typed keys, which other languages share (`docs/typed-keys.md`).

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pando::{AsKey, Key, KeyError};

const VECTORS: &str = include_str!("../fixtures/typed-keys.tsv");

/// A line: the value, the whole key, and the key inside a tuple.
type Vector<'file> = (&'file str, &'file str, &'file str);

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(digit).collect()
}

fn text(hex: &str) -> String {
    String::from_utf8(bytes(hex)).expect("UTF-8")
}

fn number<T: FromStr<Err: Debug>>(decimal: &str) -> T {
    decimal.parse().expect("a number")
}

fn time(text: &str) -> SystemTime {
    let (seconds, nanoseconds) = text.split_once(';').expect("two numbers");
    let seconds: i64 = number(seconds);
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let begin = if seconds < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
    begin + Duration::from_nanos(number(nanoseconds))
}

fn parts<const N: usize>(text: &str) -> [&str; N] {
    text.split(';').collect::<Vec<_>>().try_into().expect("as many values as the tuple has")
}

fn whole<K: Key>(key: &K) -> Result<Vec<u8>, KeyError> {
    let mut encoded = Vec::new();
    AsKey::<K>::encode(key, &mut encoded).map(|()| encoded)
}

/// Checks the lines of a type; `value` reads a value. Returns how many lines it has checked.
fn check<K: Key + PartialEq + PartialOrd + Debug>(
    name: &str,
    vectors: &[Vector<'_>],
    value: impl Fn(&str) -> K,
) -> usize {
    let mut last: Option<(K, Vec<u8>)> = None;
    for &(text, key, element) in vectors {
        let place = format!("{name} {text:?} {key}");
        if text == "refused" {
            assert!(K::decode(&bytes(key)).is_err(), "{place}");
            continue;
        }
        let value = value(text);
        if key == "refused" {
            let refused = whole(&value).expect_err("it has no key");
            assert!(matches!(refused, KeyError::NotANumber { .. }), "{place}: {refused}");
            continue;
        }
        let (key, element) = (bytes(key), bytes(element));
        assert_eq!(whole(&value).as_ref(), Ok(&key), "{place}");
        assert_eq!(K::decode(&key).as_ref(), Ok(&value), "{place}");
        let mut encoded = Vec::new();
        value.encode_element(&mut encoded).expect("it has a key");
        assert_eq!(encoded, element, "{place}");
        let followed = [&element[..], &[0xFF, 0]].concat();
        let mut rest = &followed[..];
        assert_eq!(K::decode_element(&mut rest).as_ref(), Ok(&value), "{place}");
        assert_eq!(rest, [0xFF, 0], "{place}");
        if text != "-0.0" {
            if let Some((before, bytes_before)) = &last {
                assert!(*before < value && *bytes_before < key, "{place} behind {before:?}");
            }
            last = Some((value, key));
        }
    }
    vectors.len()
}

#[test]
fn keys_have_the_bytes_of_the_test_vectors() {
    let mut types: BTreeMap<&str, Vec<Vector<'_>>> = BTreeMap::new();
    let lines: Vec<_> = VECTORS.lines().filter(|line| !line.starts_with('#')).collect();
    for line in &lines {
        let columns: Vec<_> = line.split('\t').collect();
        let [name, value, key, element] = columns[..] else { panic!("four columns: {line:?}") };
        types.entry(name).or_default().push((value, key, element));
    }
    let mut checked = 0;
    for (name, vectors) in &types {
        checked += match *name {
            "u8" => check::<u8>(name, vectors, number),
            "u16" => check::<u16>(name, vectors, number),
            "u32" => check::<u32>(name, vectors, number),
            "u64" => check::<u64>(name, vectors, number),
            "u128" => check::<u128>(name, vectors, number),
            "i8" => check::<i8>(name, vectors, number),
            "i16" => check::<i16>(name, vectors, number),
            "i32" => check::<i32>(name, vectors, number),
            "i64" => check::<i64>(name, vectors, number),
            "i128" => check::<i128>(name, vectors, number),
            "f32" => check::<f32>(name, vectors, number),
            "f64" => check::<f64>(name, vectors, number),
            "bool" => check(name, vectors, |value| value == "1"),
            "char" => check(name, vectors, |value| char::from_u32(number(value)).expect("one")),
            "string" => check(name, vectors, text),
            "bytes" => check(name, vectors, bytes),
            "uuid" => {
                check::<[u8; 16]>(name, vectors, |value| bytes(value).try_into().expect("16 bytes"))
            }
            "time" => check(name, vectors, time),
            "option(i8)" => {
                check::<Option<i8>>(name, vectors, |value| (value != "none").then(|| number(value)))
            }
            "(string,u32)" => check::<(String, u32)>(name, vectors, |value| {
                let [first, second] = parts(value);
                (text(first), number(second))
            }),
            "(i16,bytes,bytes)" => check::<(i16, Vec<u8>, Vec<u8>)>(name, vectors, |value| {
                let [first, second, third] = parts(value);
                (number(first), bytes(second), bytes(third))
            }),
            other => panic!("no Rust type is known for {other:?}"),
        };
    }
    assert_eq!(checked, lines.len());
}
