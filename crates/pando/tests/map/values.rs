//! Typed values: their bytes, errors that lose nothing, and steps beside other threads.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pando::{AsValue, Error, Json, TypedMap, Upserted, Value, ValueError};
use serde::{Deserialize, Serialize};

use crate::common::kinds;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Tree {
    name: String,
    metres: f64,
    #[serde(default)]
    planted: Option<u16>,
}

fn tree(name: &str, metres: f64) -> Tree {
    Tree { name: name.to_owned(), metres, planted: None }
}

/// The value has these bytes, which are that value; no bytes that are shorter by one are.
fn stored<V: Value<Owned: Debug + PartialEq>>(value: V::Owned, bytes: &[u8]) {
    assert_eq!(value.value_bytes().expect("it has bytes"), bytes);
    assert_eq!(V::decode(bytes.to_vec()).expect("a value"), value);
    if let Some((_, rest)) = bytes.split_last() {
        let refused = V::decode(rest.to_vec()).expect_err("too short");
        assert!(matches!(refused, ValueError::NotDecoded { value, .. } if value == rest));
    }
}

#[test]
fn values_have_the_bytes_of_the_page() {
    stored::<u8>(7, &[7]);
    stored::<u32>(258, &[0, 0, 1, 2]);
    stored::<i16>(-1, &[0x7F, 0xFF]);
    stored::<u128>(1, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    stored::<bool>(true, &[1]);
    stored::<char>('é', &[0, 0, 0, 0xE9]);
    stored::<[u8; 3]>([1, 2, 3], &[1, 2, 3]);
    let time = UNIX_EPOCH + Duration::new(1, 2);
    stored::<SystemTime>(time, &[0x80, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2]);
    stored::<f32>(1.0, &[0x3F, 0x80, 0, 0]);
    stored::<f64>(-2.5, &[0xC0, 4, 0, 0, 0, 0, 0, 0]);
    stored::<String>("é".to_owned(), "é".as_bytes());
    stored::<Json<Tree>>(tree("fir", 60.5), br#"{"name":"fir","metres":60.5,"planted":null}"#);
    assert_eq!(AsValue::<Vec<u8>>::value_bytes(&"any").expect("it has bytes"), &b"any"[..]);
}

#[test]
fn a_float_keeps_all_of_its_bits() {
    for bits in [0_u64, 1 << 63, f64::NAN.to_bits() | 5, f64::NEG_INFINITY.to_bits(), 1] {
        let bytes =
            AsValue::<f64>::value_bytes(&f64::from_bits(bits)).expect("it has bytes").into_owned();
        assert_eq!(<f64 as Value>::decode(bytes).expect("a float").to_bits(), bits);
    }
    for metres in [0.1 + 0.2, f64::MAX, f64::MIN_POSITIVE, 5e-324, 123_456_789.123_456_79, -0.0] {
        let bytes = AsValue::<Json<f64>>::value_bytes(&metres).expect("it has bytes").into_owned();
        let found = <Json<f64> as Value>::decode(bytes).expect("a float");
        assert_eq!(found.to_bits(), metres.to_bits(), "{metres}");
    }
}

#[test]
fn a_map_of_values_has_every_method() {
    for kind in kinds() {
        let kept = kind();
        let map: TypedMap<String, Json<Tree>> = kept.map.typed().with_values();
        map.insert("ash", tree("ash", 40.0)).expect("fits");
        map.update("ash", tree("ash", 41.0)).expect("it is there");
        assert_eq!(map.upsert("fir", tree("fir", 1.0)).expect("fits"), Upserted::Inserted);
        let oak = tree("oak", 30.0);
        map.put("oak", &oak).expect("fits");
        assert_eq!(map.swap("oak", tree("oak", 31.0)).expect("fits"), Some(tree("oak", 30.0)));
        assert_eq!(map.get("ash").expect("reads"), Some(tree("ash", 41.0)));
        assert_eq!(map.read("oak", |oak| oak.metres).expect("reads"), Some(31.0));
        let found = map.get_many(&["fir", "elm"]).expect("reads");
        assert_eq!(found, [Some(tree("fir", 1.0)), None]);
        let mut seen = Vec::new();
        map.read_many(&["elm", "fir"], |place, tree| {
            seen.push((place, tree.map(|tree| tree.name)))
        })
        .expect("reads");
        assert_eq!(seen, [(0, None), (1, Some("fir".to_owned()))]);

        map.compare_exchange("fir", tree("fir", 1.0), tree("fir", 2.0)).expect("it is so");
        let refused = map.compare_remove("fir", tree("fir", 1.0)).expect_err("another value");
        let Error::ValueMismatch { actual } = refused else { panic!("{refused}") };
        assert_eq!(map.value_of(actual).expect("a tree"), tree("fir", 2.0));
        let grown =
            |tree: Option<Tree>| tree.map(|tree| Tree { metres: tree.metres + 1.0, ..tree });
        assert_eq!(map.modify("fir", grown).expect("fits"), Some(Upserted::Updated));
        assert_eq!(map.modify("elm", grown).expect("fits"), None);
        let entry = map.entry("fir").expect("a key").and_modify(|fir| fir.metres *= 2.0);
        assert_eq!(entry.or_absent().expect("fits"), Some(tree("fir", 6.0)));
        let entry = map.entry("elm").expect("a key").and_modify(|elm| elm.metres *= 2.0);
        assert_eq!(entry.or_insert(tree("elm", 5.0)).expect("fits"), tree("elm", 5.0));
        let entry = map.entry("elm").expect("a key");
        assert_eq!(entry.or_insert_with(|| tree("no", 0.0)).expect("fits"), tree("elm", 5.0));

        let names = |scan: &mut dyn Iterator<Item = Result<(String, Tree), Error>>| {
            scan.map(|record| record.expect("reads").1.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&mut map.range("b"..).rev()), ["oak", "fir", "elm"]);
        let mut scan = map.prefix("e");
        let record = scan.next_record().expect("reads").expect("a record");
        assert_eq!(record, ("elm".to_owned(), tree("elm", 5.0)));
        assert!(scan.next_record_back().expect("reads").is_none());
        assert_eq!(map.first().expect("reads").expect("one").1, tree("ash", 41.0));
        assert_eq!(map.retain(|_, tree| tree.metres > 5.0).expect("removes"), 1);
        assert_eq!(map.pop_last().expect("pops").expect("one").1, tree("oak", 31.0));
        map.upsert_many(&[("yew", tree("yew", 9.0))]).expect("fits");
        map.compare_remove("yew", tree("yew", 9.0)).expect("it is so");
        assert_eq!(map.take("fir").expect("removes"), Some(tree("fir", 6.0)));
        assert_eq!(map.pop_first().expect("pops").expect("one").0, "ash");
        assert!(map.is_empty().expect("reads"));
    }
}

/// Bytes that are no value stay, or are in the error.
#[test]
fn a_value_of_another_type_is_an_error_and_is_not_lost() {
    for kind in kinds() {
        let kept = kind();
        let bytes = kept.map.clone().typed::<u32>();
        let map: TypedMap<u32, u64> = kept.map.typed().with_values();
        let put = || bytes.put(1, "text").expect("fits");
        put();
        bytes.put(2, [0, 0, 0, 0, 0, 0, 0, 9]).expect("fits");
        let told = |refused: Option<Error>| match refused {
            Some(Error::Value(ValueError::NotDecoded { value, .. })) => assert_eq!(value, b"text"),
            other => panic!("{other:?}"),
        };
        told(map.get(1).err());
        told(map.read(1, |_| ()).err());
        told(map.get_many(&[2, 1]).err());
        let mut seen = Vec::new();
        told(map.read_many(&[2, 1, 2], |place, value| seen.push((place, value))).err());
        assert_eq!(seen, [(0, Some(9))]);
        told(map.first().err());
        told(map.pop_first().err());
        told(map.retain(|_, _| false).err());
        told(map.modify(1, |_| Some(3)).err());
        told(map.entry(1).expect("a key").and_modify(|_| ()).or_insert(3).err());
        told(map.entry(1).expect("a key").or_absent().err());
        let found: Vec<_> = map.range(..).map(|record| record.ok()).collect();
        assert_eq!(found, [None, Some((2, 9))], "{}", kept.name);
        assert_eq!(bytes.get(1).expect("reads"), Some(b"text".to_vec()));
        told(map.swap(1, 3).err());
        assert_eq!(map.get(1).expect("reads"), Some(3));
        put();
        told(map.take(1).err());
        assert!(!map.contains_key(1).expect("reads"));
    }
}

#[test]
fn a_value_without_json_is_refused_and_nothing_is_written() {
    let kept = kinds().swap_remove(0)();
    type Odd = BTreeMap<(u8, u8), u8>;
    let map: TypedMap<u8, Json<Odd>> = kept.map.typed().with_values();
    let odd = Odd::from([((1, 2), 3)]);
    for refused in [
        map.insert(1, &odd).err(),
        map.upsert_many(&[(2, Odd::new()), (1, odd.clone())]).err(),
        map.modify(1, |_| Some(odd.clone())).err(),
        map.entry(1).expect("a key").or_insert(&odd).err(),
    ] {
        let Some(Error::Value(ValueError::NotEncoded { .. })) = refused else {
            panic!("{refused:?}")
        };
    }
    assert!(map.is_empty().expect("reads"));
}

#[derive(Serialize, Deserialize, Default)]
struct Nest {
    inner: Option<Box<Nest>>,
}

#[test]
fn a_value_whose_json_could_not_be_read_is_refused() {
    let kept = kinds().swap_remove(0)();
    let nests: TypedMap<u8, Json<Nest>> = kept.map.clone().typed().with_values();
    let nest =
        |depth| (0..depth).fold(Nest::default(), |inner, _| Nest { inner: Some(Box::new(inner)) });
    nests.insert(1, nest(100)).expect("fits");
    assert!(nests.get(1).expect("reads").is_some());
    let refused = nests.insert(2, nest(200)).expect_err("it is too deep");
    assert!(matches!(refused, Error::Value(ValueError::NotEncoded { .. })), "{refused}");
    let floats: TypedMap<u8, Json<f64>> = kept.map.typed().with_values();
    let refused = floats.insert(2, f64::NAN).expect_err("JSON has no NaN");
    assert!(matches!(refused, Error::Value(ValueError::NotEncoded { .. })), "{refused}");
    assert!(!floats.contains_key(2).expect("reads"));
}

/// Each step of an entry and each change is one step: no count is lost.
#[test]
fn threads_count_in_typed_values() {
    const THREADS: u64 = 4;
    const STEPS: u64 = 500;
    for kind in kinds() {
        let kept = kind();
        let map: TypedMap<String, u64> = kept.map.typed().with_values();
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..STEPS {
                        let entry = map.entry("entry").expect("a key");
                        entry.and_modify(|count| *count += 1).or_insert(1).expect("fits");
                        map.modify("modify", |count| Some(count.unwrap_or(0) + 1)).expect("fits");
                    }
                });
            }
        });
        let counts = map.get_many(&["entry", "modify"]).expect("reads");
        assert_eq!(counts, [Some(THREADS * STEPS), Some(THREADS * STEPS)], "{}", kept.name);
    }
}
