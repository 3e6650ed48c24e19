//! Typed maps: all methods, borrowed forms of keys, ranges and prefixes.

use std::collections::BTreeSet;
use std::ops::Bound;

use pando::{Error, KeyError, TypedMap, Upserted};

use crate::common::kinds;

type Key = (String, i32);

fn keys(records: impl Iterator<Item = Result<(Key, Vec<u8>), Error>>) -> Vec<Key> {
    records.map(|record| record.expect("reads").0).collect()
}

fn owned(keys: &[(&str, i32)]) -> Vec<Key> {
    keys.iter().map(|(text, number)| ((*text).to_owned(), *number)).collect()
}

#[test]
fn a_typed_map_has_every_method_of_a_map() {
    for kind in kinds() {
        let kept = kind();
        let map: TypedMap<Key> = kept.map.typed();
        assert_eq!((map.name(), map.limits()), ("map", map.as_bytes().limits()));
        assert_eq!(map.is_transactional(), map.as_bytes().is_transactional());
        map.insert(("a", -1), "1").expect("fits");
        assert!(matches!(map.insert(("a", -1), "2"), Err(Error::KeyExists)));
        map.update(("a", -1), "2").expect("it is there");
        assert_eq!(map.upsert(("b", 2), "3").expect("fits"), Upserted::Inserted);
        map.put((String::from("b"), 3), "4").expect("fits");
        assert_eq!(map.swap(("b", 3), "5").expect("fits"), Some(b"4".to_vec()));
        assert!(map.contains_key(("b", 3)).expect("reads"));
        assert_eq!(map.get(("b", 3)).expect("reads"), Some(b"5".to_vec()));
        assert_eq!(map.read(("b", 3), <[u8]>::len).expect("reads"), Some(1));
        let found = map.get_many(&[("b", 2), ("b", 4)]).expect("reads");
        assert_eq!(found, [Some(b"3".to_vec()), None]);
        let mut seen = 0;
        map.read_many(&[("b", 2)], |_, value| seen += value.map_or(0, <[u8]>::len)).expect("reads");
        assert_eq!(seen, 1);
        map.compare_exchange(("b", 3), "5", "6").expect("it is so");
        let refused = map.compare_remove(("b", 3), "5").expect_err("another value");
        assert!(matches!(refused, Error::ValueMismatch { actual } if actual == b"6"));
        map.compare_remove(("b", 3), "6").expect("it is so");
        map.modify(("b", 2), |_| Some(vec![9])).expect("fits");
        assert_eq!(map.entry(("b", 2)).and_then(|entry| entry.or_insert("0")).expect("fits"), [9]);
        map.upsert_many(&[(("c", 1), "x"), (("c", 2), "y"), (("d", 1), "z")]).expect("fits");

        let first = (("a".to_owned(), -1), b"2".to_vec());
        assert_eq!(map.first().expect("reads"), Some(first.clone()));
        assert_eq!(map.last().expect("reads").map(|last| last.0), Some(("d".to_owned(), 1)));
        assert_eq!(keys(map.prefix(("c",)).rev()), owned(&[("c", 2), ("c", 1)]));
        assert_eq!(keys(map.range(("b", 3)..=("c", 1))), owned(&[("c", 1)]));
        assert_eq!(keys(map.range(..("b", 3))), owned(&[("a", -1), ("b", 2)]));
        let behind = (Bound::Excluded(("c", 2)), Bound::Unbounded);
        assert_eq!(keys(map.range(behind).expecting(1)), owned(&[("d", 1)]));
        assert_eq!(map.range(..).count(), 5);

        assert_eq!(map.pop_first().expect("pops"), Some(first));
        assert_eq!(map.pop_last().expect("pops").map(|last| last.1), Some(b"z".to_vec()));
        assert_eq!(map.take(("c", 2)).expect("removes"), Some(b"y".to_vec()));
        assert!(map.remove(("c", 1)).expect("removes"));
        assert_eq!(map.remove_many(&[("c", 1), ("b", 2)]).expect("removes"), 1);
        map.put(("e", 1), "").expect("fits");
        map.put(("e", 2), "").expect("fits");
        assert_eq!(map.retain(|key, _| key.1 == 2).expect("removes"), 1);
        assert_eq!((map.len().expect("reads"), map.is_empty().expect("reads")), (1, false));
        let bytes = map.as_bytes().get(map.key_bytes(("e", 2)).expect("no NaN")).expect("reads");
        assert_eq!(bytes.as_deref(), Some(&b""[..]));
        assert_eq!(map.clear().expect("removes"), 1);
    }
}

#[test]
fn nan_is_refused_by_every_call() {
    let kept = kinds().swap_remove(0)();
    let map: TypedMap<(f64, u8)> = kept.map.typed();
    let nan = (f64::NAN, 1);
    let told = |refused: Option<Error>| {
        assert!(matches!(refused, Some(Error::Key(KeyError::NotANumber { what: "f64" }))));
    };
    map.insert((-0.0, 1), "zero").expect("fits");
    assert_eq!(map.get((0.0, 1)).expect("reads"), Some(b"zero".to_vec()));
    told(map.insert(nan, "").err());
    told(map.get(nan).err());
    told(map.get_many(&[(0.0, 1), nan]).err());
    told(map.upsert_many(&[((2.0, 1), ""), (nan, "")]).err());
    told(map.entry(nan).err());
    told(map.key_bytes(nan).err());
    for mut scan in [map.range(nan..), map.range(..=nan), map.prefix((f64::NAN,))] {
        told(scan.next().and_then(Result::err));
        assert!(scan.next().is_none() && scan.next_back().is_none());
    }
    assert_eq!(map.len().expect("reads"), 1);
}

#[test]
fn a_key_of_another_type_is_an_error_and_stays() {
    for kind in kinds() {
        let kept = kind();
        kept.map.insert("text", "").expect("fits");
        let map: TypedMap<u16> = kept.map.clone().typed();
        map.insert(1, "").expect("fits");
        assert_eq!(map.pop_first().expect("it is a u16").map(|first| first.0), Some(1));
        map.insert(u16::MAX, "").expect("fits");
        assert!(matches!(map.first(), Err(Error::Key(_))), "{}", kept.name);
        assert!(matches!(map.pop_first(), Err(Error::Key(_))), "{}", kept.name);
        assert!(matches!(map.retain(|_, _| false), Err(Error::Key(_))), "{}", kept.name);
        assert!(kept.map.contains_key("text").expect("reads"));
        let found: Vec<_> = map.range(..).map(|record| record.ok().map(|(key, _)| key)).collect();
        assert_eq!(found, [None, Some(u16::MAX)], "{}", kept.name);
    }
}

/// The public methods of a type, by the text of the file.
fn methods<'file>(text: &'file str, of: &str) -> BTreeSet<&'file str> {
    let mut methods = BTreeSet::new();
    let mut is_inside = false;
    for line in text.lines() {
        if let Some(subject) = line.strip_prefix("impl") {
            let subject = subject.trim_end_matches(" {").split(" where").next().unwrap_or("");
            let name = subject.rsplit([' ', '>']).find(|part| !part.is_empty()).unwrap_or("");
            let type_name = subject.rsplit_once(&format!(" {of}<")).map_or(name, |_| of);
            is_inside = type_name == of && !subject.contains(" for ");
        } else if line == "}" {
            is_inside = false;
        } else if is_inside && let Some(method) = line.strip_prefix("    pub fn ") {
            methods.extend(method.split(['(', '<']).next());
        }
    }
    methods
}

#[test]
fn no_method_is_missing_in_the_typed_forms() {
    let map = [
        include_str!("../../src/map.rs"),
        include_str!("../../src/ordered.rs"),
        include_str!("../../src/entry.rs"),
    ];
    let mut of_map: BTreeSet<_> = map.iter().flat_map(|text| methods(text, "Map")).collect();
    assert!(of_map.len() > 30 && of_map.contains("entry") && of_map.contains("pop_last"));
    let typed = methods(include_str!("../../src/typed.rs"), "TypedMap");
    of_map.retain(|method| !typed.contains(method));
    assert!(of_map.is_empty(), "TypedMap lacks {of_map:?}");

    let entry = methods(include_str!("../../src/entry.rs"), "Entry");
    assert!(entry.contains("or_insert_with"));
    assert_eq!(methods(include_str!("../../src/typed_entry.rs"), "TypedEntry"), entry);
    let scan = methods(include_str!("../../src/scan.rs"), "Scan");
    assert!(scan.contains("next_record_back"));
    assert_eq!(methods(include_str!("../../src/typed_scan.rs"), "TypedScan"), scan);
}
