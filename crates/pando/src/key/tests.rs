//! Encodings keep the order, come back, and refuse what they are not.

use std::fmt::Debug;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::collection::vec;
use proptest::prelude::*;

use super::{AsKey, Key, KeyError};

fn whole<K: Key>(key: &K) -> Vec<u8> {
    let mut bytes = Vec::new();
    AsKey::<K>::encode(key, &mut bytes).expect("it has an encoding");
    bytes
}

fn element<K: Key>(key: &K) -> Vec<u8> {
    let mut bytes = Vec::new();
    AsKey::<K>::encode_element(key, &mut bytes).expect("it has an encoding");
    bytes
}

/// What every encoding owes, for two keys and what may follow them in a tuple.
fn owes<K: Key + PartialEq + PartialOrd + Debug>(left: &K, right: &K, follower: &[u8]) {
    let order = left.partial_cmp(right);
    assert_eq!(order, whole(left).partial_cmp(&whole(right)), "{left:?} {right:?}");
    assert_eq!(order, element(left).partial_cmp(&element(right)), "{left:?} {right:?}");
    assert_eq!(&K::decode(&whole(left)).unwrap(), left);

    let mut followed = element(left);
    followed.extend_from_slice(follower);
    let mut rest = followed.as_slice();
    assert_eq!(&K::decode_element(&mut rest).unwrap(), left);
    assert_eq!(rest, follower);
    if left != right {
        assert!(!element(right).starts_with(&element(left)), "{left:?} {right:?}");
    }
}

/// Byte strings full of the bytes that the escaping treats in a special way.
fn strings() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(0u8), Just(0xFF), Just(1), any::<u8>()], 0..6)
}

fn texts() -> impl Strategy<Value = String> {
    vec(prop_oneof![Just('\0'), Just('\u{1}'), Just('a'), Just('\u{10FFFF}'), any::<char>()], 0..6)
        .prop_map(|characters| characters.into_iter().collect())
}

/// Numbers of all magnitudes, except NaN.
fn floats() -> impl Strategy<Value = (f64, f32)> {
    let numbers = (any::<u64>(), any::<u32>())
        .prop_map(|(double, single)| (f64::from_bits(double), f32::from_bits(single)));
    let special = Just((0.0, 0.0)).boxed();
    let negative = Just((-0.0, -0.0)).boxed();
    let infinite = Just((f64::INFINITY, f32::NEG_INFINITY)).boxed();
    prop_oneof![8 => numbers, 1 => special, 1 => negative, 1 => infinite]
        .prop_filter("NaN has no key", |(double, single)| !double.is_nan() && !single.is_nan())
}

/// Times around 1970, and times far away.
fn times() -> impl Strategy<Value = SystemTime> {
    let seconds = prop_oneof![0..3_u64, 0..1_u64 << 40];
    (any::<bool>(), seconds, 0..1_000_000_000_u32).prop_map(|(is_before, seconds, nanoseconds)| {
        let distance = Duration::new(seconds, nanoseconds);
        if is_before { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
    })
}

macro_rules! keeps_order {
    ($($name:ident: $strategy:expr;)*) => {$(
        proptest! {
            #[test]
            fn $name(left in $strategy, right in $strategy, follower in strings()) {
                owes(&left, &right, &follower);
            }
        }
    )*};
}

keeps_order! {
    u8_keeps_order: any::<u8>();
    u16_keeps_order: any::<u16>();
    u32_keeps_order: any::<u32>();
    u64_keeps_order: any::<u64>();
    u128_keeps_order: any::<u128>();
    i8_keeps_order: any::<i8>();
    i16_keeps_order: any::<i16>();
    i32_keeps_order: any::<i32>();
    i64_keeps_order: any::<i64>();
    i128_keeps_order: any::<i128>();
    bool_keeps_order: any::<bool>();
    char_keeps_order: any::<char>();
    array_keeps_order: any::<[u8; 3]>();
    bytes_in_a_tuple_keep_order: (strings(),);
    text_in_a_tuple_keeps_order: (texts(),);
    option_keeps_order: proptest::option::of(any::<i8>());
    optional_text_keeps_order: proptest::option::of((texts(),));
    pair_keeps_order: (strings(), any::<i16>());
    triple_keeps_order: (texts(), strings(), any::<bool>());
    four_keep_order: (any::<u8>(), texts(), proptest::option::of(strings()), strings());
    f32_keeps_order: floats().prop_map(|(_, float)| float);
    f64_keeps_order: floats().prop_map(|(float, _)| float);
    time_keeps_order: times();
    nested_keeps_order: ((strings(), any::<u8>()), (strings(), strings()));
}

proptest! {
    #[test]
    fn whole_strings_are_their_own_bytes(left in strings(), right in texts()) {
        prop_assert_eq!(&whole(&left), &left);
        prop_assert_eq!(whole(&right), right.as_bytes());
        prop_assert_eq!(Vec::<u8>::decode(&left), Ok(left));
        prop_assert_eq!(String::decode(right.as_bytes()), Ok(right));
    }

    #[test]
    fn borrowed_forms_encode_as_the_key(text in texts(), number in any::<u64>()) {
        let owned = whole(&(text.clone(), number));
        let mut borrowed = Vec::new();
        AsKey::<(String, u64)>::encode(&(text.as_str(), &number), &mut borrowed).expect("it has");
        prop_assert_eq!(owned, borrowed);
    }

    #[test]
    fn any_bytes_decode_or_are_refused(bytes in strings()) {
        let _ = <(String, Option<i16>)>::decode(&bytes);
        let _ = <(Vec<u8>, char, bool)>::decode(&bytes);
        if let Ok(key) = <(Vec<u8>, Option<u8>)>::decode(&bytes) {
            prop_assert_eq!(whole(&key), bytes);
        }
    }
}

#[test]
fn nan_is_refused_and_negative_zero_is_zero() {
    let refused = |what| Err(KeyError::NotANumber { what });
    assert_eq!(AsKey::<f64>::encode(&f64::NAN, &mut Vec::new()), refused("f64"));
    assert_eq!(AsKey::<f32>::encode(&-f32::NAN, &mut Vec::new()), refused("f32"));
    assert_eq!(whole(&-0.0_f64), whole(&0.0_f64));
    assert_eq!(f64::decode(&whole(&-0.0_f64)).map(f64::to_bits), Ok(0));
    assert_eq!(whole(&-0.0_f32), whole(&0.0_f32));
    let least = whole(&f64::from_bits(1));
    assert!(whole(&-f64::from_bits(1)) < whole(&0.0_f64) && whole(&0.0_f64) < least);
}

#[test]
fn encodings_are_what_the_table_says() {
    assert_eq!(whole(&1u16), [0, 1]);
    assert_eq!(whole(&-1i16), [0x7F, 0xFF]);
    assert_eq!(whole(&1i16), [0x80, 1]);
    assert_eq!(whole(&1.0f64), [0xBF, 0xF0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(whole(&true), [1]);
    assert_eq!(whole(&'a'), [0, 0, 0, 0x61]);
    assert_eq!(whole(&("a\0".to_owned(), 7u8)), [0x61, 0, 0xFF, 0, 0, 7]);
    assert_eq!(whole(&Some(7u8)), [1, 7]);
    assert_eq!(whole(&None::<u8>), [0]);
}

#[test]
fn wrong_bytes_are_typed_errors() {
    let too_short = KeyError::TooShort { what: "u32", needed_bytes: 4, found_bytes: 2 };
    assert_eq!(u32::decode(&[0, 1]), Err(too_short));
    assert_eq!(u8::decode(&[0, 1]), Err(KeyError::TrailingBytes { found_bytes: 1 }));
    assert_eq!(bool::decode(&[2]), Err(KeyError::UnknownTag { what: "bool", found: 2 }));
    assert_eq!(char::decode(&[0, 0, 0xD8, 0]), Err(KeyError::NotACharacter { found: 0xD800 }));
    assert_eq!(String::decode(b"a\xff"), Err(KeyError::NotUtf8 { valid_bytes: 1 }));
    assert_eq!(<(String,)>::decode(b"a"), Err(KeyError::Unterminated));
    assert_eq!(<(String,)>::decode(b"a\0"), Err(KeyError::Unterminated));
    assert_eq!(<(String,)>::decode(b"a\0\x07"), Err(KeyError::UnknownEscape { found: 7 }));
}
