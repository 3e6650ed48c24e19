//! The comparison of a map with the data set.

use pando::{Map, Order};

use super::data_set::DataSet;
use crate::failure::Failure;
use crate::format::escape::escaped_text;

/// The records after a kill.
pub struct Left {
    /// The number of present records.
    pub present_count: u64,
    /// The absent records of the data set.
    pub missing: Vec<usize>,
}

/// Checks that every acknowledged record is present with its exact value.
pub fn acknowledged_are_there(
    map: &Map,
    data: &DataSet,
    is_acknowledged: &[bool],
) -> Result<(), Failure> {
    for (index, _) in is_acknowledged.iter().enumerate().filter(|(_, acknowledged)| **acknowledged)
    {
        let (key, value) = data.record(index);
        if map.read(key, |found| found == value)? != Some(true) {
            return Err(violated_value(key, value, map.get(key)?.as_deref()));
        }
    }
    Ok(())
}

/// Checks that every present record is one whole record of the data set, and keys strictly ascend.
pub fn whole_records_only(map: &Map, data: &DataSet) -> Result<Left, Failure> {
    let mut scan = map.range(..);
    let mut left = Left { present_count: 0, missing: Vec::new() };
    let mut index = 0;
    let mut last_key: Option<Vec<u8>> = None;
    while let Some((key, value)) = scan.next_record()? {
        in_strict_order(last_key.as_deref(), key, Order::Ascending)?;
        while index < data.len() && data.record(index).0 < key {
            left.missing.push(index);
            index += 1;
        }
        match (index < data.len()).then(|| data.record(index)) {
            Some((known_key, known_value)) if known_key == key => {
                if known_value != value {
                    return Err(violated_value(key, known_value, Some(value)));
                }
            }
            _ => {
                return Err(Failure::Violation(format!(
                    "every key that is there is one of the data set; {} is not",
                    shown(key)
                )));
            }
        }
        left.present_count += 1;
        index += 1;
        last_key.get_or_insert_default().clear();
        last_key.get_or_insert_default().extend_from_slice(key);
    }
    left.missing.extend(index..data.len());
    Ok(left)
}

/// Checks that a scan in `order` gives exactly the records of the data set that `is_there` names.
pub fn scan_is(
    map: &Map,
    data: &DataSet,
    order: Order,
    is_there: impl Fn(usize) -> bool,
) -> Result<(), Failure> {
    let mut scan = map.range(..);
    let mut expected = (0..data.len()).filter(|&index| is_there(index));
    loop {
        let next = match order {
            Order::Ascending => expected.next(),
            Order::Descending => expected.next_back(),
        };
        let next = next.map(|index| data.record(index));
        match (next, scan.next_record_in(order)?) {
            (None, None) => return Ok(()),
            (Some((key, value)), Some((found_key, found))) if key == found_key => {
                if value != found {
                    return Err(violated_value(key, value, Some(found)));
                }
            }
            (next, found) => {
                let text = |record: Option<(&[u8], &[u8])>| {
                    record.map_or("its end".to_owned(), |(key, _)| shown(key))
                };
                return Err(Failure::Violation(format!(
                    "a scan ({order:?}) gives every record once and in order; it should come to \
                     {} and came to {}",
                    text(next),
                    text(found)
                )));
            }
        }
    }
}

/// Checks that the map has so many records.
pub fn length_is(map: &Map, expected: u64) -> Result<(), Failure> {
    let found = map.len()?;
    if found == expected {
        return Ok(());
    }
    Err(Failure::Violation(format!("the map has {expected} records; it counts {found}")))
}

/// The violation of a record whose value is not the one that was written.
pub fn violated_value(key: &[u8], value: &[u8], found: Option<&[u8]>) -> Failure {
    let found = found.map_or("is not there".to_owned(), |found| format!("is {}", shown(found)));
    Failure::Violation(format!(
        "the value of {} is what was written, {}; it {found}",
        shown(key),
        shown(value)
    ))
}

/// The violation of an absent record.
pub fn violated_presence(key: &[u8]) -> Failure {
    Failure::Violation(format!("{} is there to be deleted; it is not", shown(key)))
}

fn in_strict_order(last: Option<&[u8]>, key: &[u8], order: Order) -> Result<(), Failure> {
    let is_ordered = last.is_none_or(|last| match order {
        Order::Ascending => last < key,
        Order::Descending => last > key,
    });
    if is_ordered {
        return Ok(());
    }
    Err(Failure::Violation(format!(
        "keys of a scan are in strict order; {} follows {}",
        shown(key),
        shown(last.unwrap_or_default())
    )))
}

/// Bytes for a message: escaped, and shortened.
fn shown(bytes: &[u8]) -> String {
    const SHOWN_BYTES: usize = 80;
    match bytes.get(..SHOWN_BYTES) {
        None => format!("\"{}\"", escaped_text(bytes)),
        Some(begin) => format!("\"{}\"... ({} bytes)", escaped_text(begin), bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use pando::{Pool, PoolOptions};

    use super::super::data_set::Builder;
    use super::*;

    const COUNT: usize = 300;

    fn data() -> DataSet {
        let mut builder = Builder::default();
        for number in 0..COUNT {
            builder.add(format!("{number:04}").as_bytes(), format!("v{number}").as_bytes());
        }
        builder.finish()
    }

    fn map_of(data: &DataSet, is_there: impl Fn(usize) -> bool) -> Map {
        let map = Pool::volatile(&PoolOptions::new()).unwrap().map("tour").unwrap();
        for index in (0..data.len()).filter(|&index| is_there(index)) {
            let (key, value) = data.record(index);
            map.insert(key, value).unwrap();
        }
        map
    }

    #[test]
    fn what_is_whole_passes() {
        let data = data();
        let map = map_of(&data, |index| index % 3 != 0);
        let is_acknowledged: Vec<bool> = (0..COUNT).map(|index| index % 3 == 1).collect();
        acknowledged_are_there(&map, &data, &is_acknowledged).unwrap();
        let left = whole_records_only(&map, &data).unwrap();
        assert_eq!(left.present_count, 200);
        assert!(left.missing.iter().copied().eq((0..COUNT).step_by(3)));
        for order in [Order::Ascending, Order::Descending] {
            scan_is(&map, &data, order, |index| index % 3 != 0).unwrap();
        }
        length_is(&map, 200).unwrap();
    }

    #[test]
    fn a_lost_record_is_noticed() {
        let data = data();
        let map = map_of(&data, |index| index != 7);
        let lost = acknowledged_are_there(&map, &data, &[true; COUNT]).unwrap_err().to_string();
        assert!(lost.contains("\"0007\"") && lost.contains("is not there"), "{lost}");
        for order in [Order::Ascending, Order::Descending] {
            assert!(scan_is(&map, &data, order, |_| true).is_err());
        }
        assert!(length_is(&map, COUNT as u64).is_err());
    }

    #[test]
    fn half_a_record_is_noticed() {
        let data = data();
        let map = map_of(&data, |_| true);
        map.update(b"0008", b"v").unwrap();
        assert!(whole_records_only(&map, &data).is_err());
        assert!(acknowledged_are_there(&map, &data, &[true; COUNT]).is_err());
        assert!(scan_is(&map, &data, Order::Ascending, |_| true).is_err());
    }

    #[test]
    fn a_record_that_nobody_wrote_is_noticed() {
        let data = data();
        for key in [&b""[..], b"0007x", b"zzz"] {
            let map = map_of(&data, |_| true);
            map.insert(key, b"").unwrap();
            let foreign = whole_records_only(&map, &data).err().unwrap();
            assert_eq!(foreign.exit_code(), 10);
            assert!(scan_is(&map, &data, Order::Descending, |_| true).is_err());
        }
    }

    #[test]
    fn order_is_strict() {
        assert!(in_strict_order(Some(b"a"), b"b", Order::Ascending).is_ok());
        assert!(in_strict_order(Some(b"a"), b"a", Order::Ascending).is_err());
        assert!(in_strict_order(Some(b"a"), b"b", Order::Descending).is_err());
        assert!(in_strict_order(None, b"", Order::Descending).is_ok());
    }
}
