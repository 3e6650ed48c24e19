//! Range indexes, which Redis does not have: our server against an ordered map.

use std::collections::BTreeMap;

use crate::common::programs;
use crate::common::random::Random;
use crate::common::wire::{Client, Value};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn ask(client: &mut Client, words: &[&[u8]]) -> Value {
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
    client.ask(&words).expect("a reply").value
}

fn bulk(bytes: &[u8]) -> Value {
    Value::Bytes(b'$', bytes.to_vec())
}

fn integer(number: usize) -> Value {
    Value::Line(b':', number.to_string().into_bytes())
}

/// The reply with these entries.
fn entries<'model>(
    found: impl Iterator<Item = (&'model Vec<u8>, &'model Vec<u8>)>,
    parts: &[u8],
) -> Value {
    let one = |(field, value): (&Vec<u8>, &Vec<u8>)| match parts {
        b"KEY" => bulk(field),
        b"VALUE" => bulk(value),
        _ => Value::Values(b'*', vec![bulk(field), bulk(value)]),
    };
    Value::Values(b'*', found.map(one).collect())
}

fn name(random: &mut Random) -> Vec<u8> {
    let bytes = random.below(4);
    (0..bytes).map(|_| *random.pick(&[0, b'a', b'b', 0xFE, 0xFF])).collect()
}

fn step(client: &mut Client, model: &mut Model, random: &mut Random) {
    let (one, other, value) = (name(random), name(random), random.bytes(3));
    let parts = *random.pick(&[&b"KEY"[..], b"VALUE", b"BOTH"]);
    let most = 1 + random.below(6);
    let count = most.to_string();
    let count = count.as_bytes();
    let closed = |field: &&Vec<u8>| one <= **field && **field <= other;
    let found = || model.iter().filter(|(field, _)| closed(field));
    let (reply, expected) = match random.below(13) {
        0..=2 => {
            model.insert(one.clone(), value.clone());
            (ask(client, &[b"RI.SET", b"i", &one, &value]), Value::Line(b'+', b"OK".to_vec()))
        }
        3 => {
            let removed = model.remove(&one).is_some();
            (ask(client, &[b"RI.DEL", b"i", &one]), integer(usize::from(removed)))
        }
        4 => {
            let expected = model.get(&one).map_or(Value::Nothing(b'$'), |value| bulk(value));
            (ask(client, &[b"RI.GET", b"i", &one]), expected)
        }
        5 => {
            let expected = entries(model.range(one.clone()..).take(most), parts);
            let words = [&b"RI.SCAN"[..], b"i", &one[..], b"COUNT", count, b"FIELDS", parts];
            (ask(client, &words), expected)
        }
        6 => {
            let expected = entries(found(), parts);
            (ask(client, &[b"RI.RANGE", b"i", &one, &other, b"FIELDS", parts]), expected)
        }
        7 => {
            let expected = entries(found().rev().take(most), b"BOTH");
            (ask(client, &[b"RI.REVRANGE", b"i", &other, &one, b"COUNT", count]), expected)
        }
        8 => {
            let expected =
                entries(model.iter().filter(|(field, _)| field.starts_with(&one)), parts);
            (ask(client, &[b"RI.PREFIX", b"i", &one, b"FIELDS", parts]), expected)
        }
        9 => {
            let found = model.iter().rev().filter(|(field, _)| field.starts_with(&one));
            let expected = entries(found.take(most), b"BOTH");
            (ask(client, &[b"RI.PREFIX", b"i", &one, b"REV", b"COUNT", count]), expected)
        }
        10 => {
            let before = model.len();
            let expected = found().count();
            assert_eq!(ask(client, &[b"RI.COUNT", b"i", &one, &other]), integer(expected));
            if !random.once_in(4) {
                return;
            }
            model.retain(|field, _| !(one <= *field && *field <= other));
            assert_eq!(before - model.len(), expected);
            (ask(client, &[b"RI.DELRANGE", b"i", &one, &other]), integer(expected))
        }
        11 => {
            let expected = random.bytes(2);
            let is_equal = model.get(&one) == Some(&expected);
            if is_equal {
                model.insert(one.clone(), value.clone());
            }
            let reply = ask(client, &[b"RI.CAS", b"i", &one, &expected, &value]);
            (reply, integer(usize::from(is_equal)))
        }
        _ => {
            let is_absent = !model.contains_key(&one);
            model.entry(one.clone()).or_insert_with(|| value.clone());
            (ask(client, &[b"RI.CAS", b"i", &one, &value]), integer(usize::from(is_absent)))
        }
    };
    assert_eq!(reply, expected);
    assert_eq!(client.say("RI.LEN i"), integer(model.len()));
}

#[test]
fn it_is_an_ordered_map() {
    let server = programs::pando();
    let mut client = server.connect();
    for seed in 0..20 {
        client.say("FLUSHALL");
        client.say("RI.CREATE i");
        let mut model = Model::new();
        let mut random = Random::new(seed);
        for _ in 0..200 {
            step(&mut client, &mut model, &mut random);
        }
    }
}

#[test]
fn errors() {
    let server = programs::pando();
    let mut client = server.connect();
    for (line, expected) in [
        ("RI.GET i a", "-ERR range index not found"),
        ("RI.SET i a 1", "-ERR range index not found"),
        ("RI.SCAN i a COUNT 1", "-ERR range index not found"),
        ("RI.EXISTS i", ":0"),
        ("RI.CREATE i FOO", "-ERR unknown option"),
        ("RI.CREATE i CACHESIZE", "-ERR CACHESIZE requires a value"),
        ("RI.CREATE i CACHESIZE 0", "-ERR numeric options must be greater than zero"),
        ("RI.CREATE i MINRECORD 9 MAXRECORD 8", "-ERR MINRECORD must not exceed MAXRECORD"),
        ("RI.CREATE i DISK CACHESIZE 65536 MINRECORD 8", "+OK"),
        ("RI.CREATE i", "-BUSYKEY Target key name already exists."),
        ("RI.EXISTS i", ":1"),
        ("RI.LEN i", ":0"),
        ("RI.SCAN i a LIMIT 1", "-ERR syntax error, expected COUNT"),
        ("RI.SCAN i a COUNT 0", "-ERR invalid count"),
        ("RI.SCAN i a COUNT x", "-ERR invalid count"),
        ("RI.SCAN i a COUNT 1 FIELDS", "-ERR syntax error"),
        ("RI.RANGE i a b FIELDS FOO", "-ERR syntax error"),
        ("RI.CAS i a", "-ERR wrong number of arguments for 'ri.cas' command"),
        ("RI.CAS i a 1 2 3", "-ERR wrong number of arguments for 'ri.cas' command"),
        ("GET i", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("SET s 1", "+OK"),
        ("RI.EXISTS s", ":0"),
        ("RI.GET s a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ] {
        let Value::Line(kind, text) = client.say(line) else { panic!("{line}") };
        assert_eq!(
            format!("{}{}", kind as char, String::from_utf8_lossy(&text)),
            expected,
            "{line}"
        );
    }
}

#[test]
fn names_that_are_too_long_are_refused_or_absent() {
    let server = programs::pando();
    let mut client = server.connect();
    client.say("RI.CREATE i");
    client.say("RI.SET i b 1");
    let long = vec![b'a'; 40_000];
    for words in [
        &[&b"RI.SET"[..], b"i", &long, b"1"][..],
        &[b"RI.CAS", b"i", &long, b"1"],
        &[b"HSET", b"h", &long, b"1"],
        &[b"HSETNX", b"h", &long, b"1"],
        &[b"HINCRBY", b"h", &long, b"1"],
        &[b"SADD", b"h", &long],
        &[b"ZADD", b"h", b"1", &long],
    ] {
        assert!(ask(&mut client, words).is_error());
    }
    assert_eq!(client.say("HLEN h"), integer(0));
    for key in [&b"HSET"[..], b"h"].windows(2) {
        ask(&mut client, &[key[0], key[1], b"f", b"1"]);
    }
    assert_eq!(ask(&mut client, &[b"HGET", b"h", &long]), Value::Nothing(b'$'));
    assert_eq!(ask(&mut client, &[b"HDEL", b"h", &long]), integer(0));
    assert_eq!(ask(&mut client, &[b"RI.GET", b"i", &long]), Value::Nothing(b'$'));
    let all = entries([(&b"b".to_vec(), &b"1".to_vec())].into_iter(), b"KEY");
    assert_eq!(ask(&mut client, &[b"RI.RANGE", b"i", &long, b"c", b"FIELDS", b"KEY"]), all);
    assert_eq!(ask(&mut client, &[b"RI.PREFIX", b"i", &long]), Value::Values(b'*', Vec::new()));
}
