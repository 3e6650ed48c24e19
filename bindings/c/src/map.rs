//! Maps.

use std::borrow::Cow;
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use pando::{Map, Pool, Record, Upserted};

use crate::bytes::{fill, items, items_mut, pando_bytes, pando_slice, put, required, two_places};
use crate::error::{call, free, pando_error};
use crate::failure::Failure;
use crate::handle::{self, Object};
use crate::options::acknowledge;

/// A map of a pool.
pub struct pando_map {
    _private: [u8; 0],
}

/// The map behind a handle.
pub(crate) struct MapObject {
    pub map: Map,
    /// Keeps the pool open, and knows whether the process has forked.
    pub pool: Pool,
    name: std::ffi::CString,
}

impl Object for MapObject {
    const KIND: u64 = 3;
    const NAME: &'static str = "pando_map";
    fn pool(&self) -> Option<&Pool> {
        Some(&self.pool)
    }
}

impl MapObject {
    pub fn new(map: Map, pool: &Pool) -> Self {
        let name = std::ffi::CString::new(map.name()).unwrap_or_default();
        Self { map, pool: pool.clone(), name }
    }

    pub fn into_handle(self) -> *mut pando_map {
        handle::give(self) as *mut pando_map
    }
}

fn object<'call>(map: *const pando_map) -> Result<&'call MapObject, Failure> {
    handle::get::<MapObject>(map as usize)
}

pub(crate) fn map<'call>(map: *const pando_map) -> Result<&'call Map, Failure> {
    object(map).map(|object| &object.map)
}

/// A record that the caller lends, or that is lent to a visit.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pando_record {
    /// The key.
    pub(crate) key: pando_slice,
    /// The value.
    pub(crate) value: pando_slice,
}

/// Reads a value that is lent for the time of the visit. It must return soon: the pool reuses no
/// memory meanwhile.
pub type pando_read_visit = Option<extern "C" fn(context: *mut c_void, value: pando_slice)>;

/// Frees the handle. NULL is left alone.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_free(map: *mut pando_map) -> *mut pando_error {
    free::<MapObject>(map as usize)
}

/// The name of the map, or NULL for a wrong handle. Valid until the handle is freed.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_name(map: *const pando_map) -> *const c_char {
    match handle::look::<MapObject>(map as usize) {
        Ok(object) => object.name.as_ptr(),
        Err(_) => std::ptr::null(),
    }
}

/// Whether the map takes part in transactions; false for a wrong handle.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_is_transactional(map: *const pando_map) -> bool {
    self::map(map).is_ok_and(Map::is_transactional)
}

/// The longest key and the longest value of the map, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_limits(
    map: *const pando_map,
    max_key_bytes: Option<&mut MaybeUninit<usize>>,
    max_value_bytes: Option<&mut MaybeUninit<usize>>,
) -> *mut pando_error {
    call(|| {
        let limits = self::map(map)?.limits();
        put(max_key_bytes, limits.max_key_bytes);
        put(max_value_bytes, limits.max_value_bytes);
        Ok(())
    })
}

/// A further handle of the map, whose writes return when acknowledge, a pando_acknowledge, says.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_acknowledge(
    map: *const pando_map,
    acknowledge: u32,
    other: Option<&mut MaybeUninit<*mut pando_map>>,
) -> *mut pando_error {
    call(|| {
        let other = required(other, "the place of the map")?;
        let MapObject { map, pool, .. } = object(map)?;
        let map = map.clone().acknowledge(self::acknowledge(acknowledge)?)?;
        other.write(MapObject::new(map, pool).into_handle());
        Ok(())
    })
}

/// Adds a record with a new key. PANDO_CODE_KEY_EXISTS if the key is present.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_insert(
    map: *const pando_map,
    key: pando_slice,
    value: pando_slice,
) -> *mut pando_error {
    call(|| Ok(self::map(map)?.insert(key.bytes("key")?, value.bytes("value")?)?))
}

/// Replaces the value of a present key. PANDO_CODE_KEY_NOT_FOUND if the key is absent.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_update(
    map: *const pando_map,
    key: pando_slice,
    value: pando_slice,
) -> *mut pando_error {
    call(|| Ok(self::map(map)?.update(key.bytes("key")?, value.bytes("value")?)?))
}

/// Adds the record, or replaces its value.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_put(
    map: *const pando_map,
    key: pando_slice,
    value: pando_slice,
) -> *mut pando_error {
    call(|| Ok(self::map(map)?.put(key.bytes("key")?, value.bytes("value")?)?))
}

/// As pando_map_put; inserted gets whether the key was absent. In a store this reads the record.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_upsert(
    map: *const pando_map,
    key: pando_slice,
    value: pando_slice,
    inserted: Option<&mut MaybeUninit<bool>>,
) -> *mut pando_error {
    call(|| {
        let upserted = self::map(map)?.upsert(key.bytes("key")?, value.bytes("value")?)?;
        put(inserted, upserted == Upserted::Inserted);
        Ok(())
    })
}

/// As pando_map_put; old gets the value that was replaced, and found whether there was one. Both
/// are one step. old and found may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_swap(
    map: *const pando_map,
    key: pando_slice,
    value: pando_slice,
    old: Option<&mut pando_bytes>,
    found: Option<&mut MaybeUninit<bool>>,
) -> *mut pando_error {
    call(|| {
        let replaced = self::map(map)?.swap(key.bytes("key")?, value.bytes("value")?)?;
        answer(replaced.as_deref(), old, found);
        Ok(())
    })
}

/// Writes a value, if there is one, and whether there is one.
pub(crate) fn answer(
    value: Option<&[u8]>,
    place: Option<&mut pando_bytes>,
    found: Option<&mut MaybeUninit<bool>>,
) {
    if let Some(value) = value {
        fill(place, value);
    }
    put(found, value.is_some());
}

/// Writes the record that `look` finds, if there is one, and whether there is one. It looks for
/// none if there is one place for both the key and the value.
fn answer_record(
    look: impl FnOnce() -> Result<Option<(Vec<u8>, Vec<u8>)>, Failure>,
    key: *mut pando_bytes,
    value: *mut pando_bytes,
    found: Option<&mut MaybeUninit<bool>>,
) -> Result<(), Failure> {
    let [key, value] = two_places(key, value)?;
    let record = look()?;
    put(found, record.is_some());
    if let Some((found_key, found_value)) = record {
        fill(key, &found_key);
        fill(value, &found_value);
    }
    Ok(())
}

/// Copies the value of the key into value, and sets found; value is unchanged if the key is absent.
/// key may lie in value.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_get(
    map: *const pando_map,
    key: pando_slice,
    value: Option<&mut pando_bytes>,
    found: Option<&mut MaybeUninit<bool>>,
) -> *mut pando_error {
    call(|| {
        let found = required(found, "found")?;
        let mut key = Cow::Borrowed(key.bytes("key")?);
        if value.as_ref().is_some_and(|value| value.holds(&key)) {
            // The read may use the key after it has lent the value.
            key = Cow::Owned(key.into_owned());
        }
        let read = self::map(map)?.read(&key, |lent| fill(value, lent))?;
        found.write(read.is_some());
        Ok(())
    })
}

/// Lends the value of the key to visit, without a copy, and sets found.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_read(
    map: *const pando_map,
    key: pando_slice,
    visit: pando_read_visit,
    context: *mut c_void,
    found: Option<&mut MaybeUninit<bool>>,
) -> *mut pando_error {
    call(|| {
        let visit = visit.ok_or_else(|| Failure::null("visit"))?;
        let lend = |lent: &[u8]| visit(context, pando_slice::lend(lent));
        let read = self::map(map)?.read(key.bytes("key")?, lend)?;
        put(found, read.is_some());
        Ok(())
    })
}

/// Whether the key is present.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_contains(
    map: *const pando_map,
    key: pando_slice,
    found: Option<&mut MaybeUninit<bool>>,
) -> *mut pando_error {
    call(|| {
        required(found, "found")?.write(self::map(map)?.contains_key(key.bytes("key")?)?);
        Ok(())
    })
}

/// Removes the record; found gets whether there was one, and may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_remove(
    map: *const pando_map,
    key: pando_slice,
    found: Option<&mut MaybeUninit<bool>>,
) -> *mut pando_error {
    call(|| {
        put(found, self::map(map)?.remove(key.bytes("key")?)?);
        Ok(())
    })
}

/// Removes the record, and puts its value into value, as one step.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_take(
    map: *const pando_map,
    key: pando_slice,
    value: Option<&mut pando_bytes>,
    found: Option<&mut MaybeUninit<bool>>,
) -> *mut pando_error {
    call(|| {
        let taken = self::map(map)?.take(key.bytes("key")?)?;
        answer(taken.as_deref(), value, found);
        Ok(())
    })
}

/// Replaces the value of the key by value if it is expected, as one step. PANDO_CODE_KEY_NOT_FOUND
/// if the key is absent; PANDO_CODE_VALUE_MISMATCH if the value is another one, which
/// pando_error_bytes lends.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_compare_exchange(
    map: *const pando_map,
    key: pando_slice,
    expected: pando_slice,
    value: pando_slice,
) -> *mut pando_error {
    call(|| {
        let (key, expected) = (key.bytes("key")?, expected.bytes("expected")?);
        Ok(self::map(map)?.compare_exchange(key, expected, value.bytes("value")?)?)
    })
}

/// Removes the record if its value is expected; otherwise as pando_map_compare_exchange.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_compare_remove(
    map: *const pando_map,
    key: pando_slice,
    expected: pando_slice,
) -> *mut pando_error {
    call(|| Ok(self::map(map)?.compare_remove(key.bytes("key")?, expected.bytes("expected")?)?))
}

fn keys<'call>(keys: *const pando_slice, count: usize) -> Result<Vec<&'call [u8]>, Failure> {
    items(keys, count, "keys")?.iter().map(|key| key.bytes("a key")).collect()
}

/// Copies the values of count keys into values[0..count], and sets found[0..count]. Each key is
/// read by itself. All keys are read before the first value is written, so that keys may lie in
/// values.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_get_many(
    map: *const pando_map,
    keys: *const pando_slice,
    count: usize,
    values: *mut pando_bytes,
    found: *mut bool,
) -> *mut pando_error {
    call(|| {
        let keys = self::keys(keys, count)?;
        let values = items_mut(values, count, "values")?;
        let found = items_mut(found.cast::<MaybeUninit<bool>>(), count, "found")?;
        let (mut bytes, mut places) = (Vec::new(), vec![None; count]);
        self::map(map)?.read_many(&keys, |index, value| {
            places[index] = value.map(|value| {
                bytes.extend_from_slice(value);
                bytes.len() - value.len()..bytes.len()
            });
        })?;
        for ((value, found), place) in values.iter_mut().zip(found).zip(places) {
            found.write(place.is_some());
            if let Some(place) = place {
                value.fill(&bytes[place]);
            }
        }
        Ok(())
    })
}

/// Puts count records, in their order. Each is an operation of its own: after an error the records
/// before the refused one are written. A pando_batch is one commit.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_put_many(
    map: *const pando_map,
    records: *const pando_record,
    count: usize,
) -> *mut pando_error {
    call(|| {
        let lent = |record: &pando_record| {
            Ok((record.key.bytes("a key")?, record.value.bytes("a value")?))
        };
        let records = items(records, count, "records")?.iter().map(lent);
        let records = records.collect::<Result<Vec<Record<'_>>, Failure>>()?;
        Ok(self::map(map)?.upsert_many(&records)?)
    })
}

/// Removes count keys, in their order; removed gets how many were present, and may be NULL. Each is
/// an operation of its own.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_remove_many(
    map: *const pando_map,
    keys: *const pando_slice,
    count: usize,
    removed: Option<&mut MaybeUninit<u64>>,
) -> *mut pando_error {
    call(|| {
        put(removed, self::map(map)?.remove_many(&self::keys(keys, count)?)?);
        Ok(())
    })
}

/// The record with the smallest key. key, value and found may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_first(
    map: *const pando_map,
    key: *mut pando_bytes,
    value: *mut pando_bytes,
    found: Option<&mut MaybeUninit<bool>>,
) -> *mut pando_error {
    call(|| answer_record(|| Ok(self::map(map)?.first()?), key, value, found))
}

/// The record with the largest key. key, value and found may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_last(
    map: *const pando_map,
    key: *mut pando_bytes,
    value: *mut pando_bytes,
    found: Option<&mut MaybeUninit<bool>>,
) -> *mut pando_error {
    call(|| answer_record(|| Ok(self::map(map)?.last()?), key, value, found))
}

/// Removes the record with the smallest key: each record comes to one caller.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_pop_first(
    map: *const pando_map,
    key: *mut pando_bytes,
    value: *mut pando_bytes,
    found: Option<&mut MaybeUninit<bool>>,
) -> *mut pando_error {
    call(|| answer_record(|| Ok(self::map(map)?.pop_first()?), key, value, found))
}

/// Removes the record with the largest key: each record comes to one caller.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_pop_last(
    map: *const pando_map,
    key: *mut pando_bytes,
    value: *mut pando_bytes,
    found: Option<&mut MaybeUninit<bool>>,
) -> *mut pando_error {
    call(|| answer_record(|| Ok(self::map(map)?.pop_last()?), key, value, found))
}

/// Removes all records, each as a step of its own; removed gets how many, and may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_clear(
    map: *const pando_map,
    removed: Option<&mut MaybeUninit<u64>>,
) -> *mut pando_error {
    call(|| {
        put(removed, self::map(map)?.clear()?);
        Ok(())
    })
}

/// The number of records. It visits every leaf, and in a store every record; beside writers it is
/// approximate.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_len(
    map: *const pando_map,
    len: Option<&mut MaybeUninit<u64>>,
) -> *mut pando_error {
    call(|| {
        required(len, "len")?.write(self::map(map)?.len()?);
        Ok(())
    })
}
