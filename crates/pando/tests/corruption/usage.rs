//! Every operation on a pool.

use std::path::{Path, PathBuf};

use pando::{DomainChoice, Error, KeyRange, Map, Order, Pool, PoolOptions};

use crate::damage::Choices;
use crate::images::Image;

/// A file in memory, if the machine has such a folder.
pub struct Scratch {
    _folder: tempfile::TempDir,
    pub path: PathBuf,
}

impl Scratch {
    pub fn new() -> Self {
        let shared = Path::new("/dev/shm");
        let folder =
            tempfile::tempdir_in(shared).or_else(|_| tempfile::tempdir()).expect("a folder");
        let path = folder.path().join("pool");
        Self { _folder: folder, path }
    }
}

/// Writes `bytes` to a new file. Pages of zeros become holes.
fn write(bytes: &[u8], path: &Path) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create_new(path).expect("creates");
    file.set_len(bytes.len() as u64).expect("sets the length");
    for (index, page) in bytes.chunks(4096).enumerate() {
        if page != &[0; 4096][..page.len()] {
            file.write_all_at(page, index as u64 * 4096).expect("writes");
        }
    }
}

/// Whether anything has named damage so far.
#[derive(Default)]
struct Seen(bool);

impl Seen {
    /// Notes an error, if there is one.
    fn note<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.0 |= matches!(
                    error,
                    Error::Damaged(_) | Error::MapDamaged { .. } | Error::KeysOutOfOrder { .. }
                );
                None
            }
        }
    }
}

/// Opens a pool with the content `bytes` and uses it; whether an error or a report named damage. An
/// `Err` is a failure of the test.
pub fn open_and_use(image: &Image, bytes: &[u8], choices: &mut Choices) -> Result<bool, String> {
    let mut seen = Seen::default();
    if choices.below(2) == 0 {
        resume(image, bytes, &mut seen)?;
    }
    let scratch = Scratch::new();
    write(bytes, &scratch.path);
    let Some(pool) = seen.note(open(&scratch)) else { return Ok(true) };
    let first = choices.below(3);
    if first == 0 {
        look(&pool, &mut seen)?;
    }
    let opened = pool.open_map("map");
    seen.0 |= opened.is_err();
    if let Some(map) = seen.note(opened) {
        read(&map, image, choices, &mut seen)?;
        change(&map, image, choices, &mut seen);
        if first == 1 {
            read(&map, image, choices, &mut seen)?;
        }
    }
    look(&pool, &mut seen)?;
    if choices.below(2) == 0 {
        seen.note(pool.drop_map("map"));
        look(&pool, &mut seen)?;
    }
    if let Some(map) = seen.note(pool.map("map")) {
        seen.note(map.upsert(b"key", b"value"));
    }
    seen.note(pool.close());
    Ok(seen.0)
}

fn open(scratch: &Scratch) -> Result<Pool, Error> {
    Pool::open(&scratch.path, &PoolOptions::new().domain(DomainChoice::Process))
}

/// Opens the pool as a crash leaves it while its map is freed, and waits until the map is freed.
fn resume(image: &Image, bytes: &[u8], seen: &mut Seen) -> Result<(), String> {
    let scratch = Scratch::new();
    let mut bytes = bytes.to_vec();
    let slot = bytes.get_mut(image.slot_off as usize..).and_then(<[u8]>::first_chunk_mut);
    *slot.expect("the slot lies in the pool") = image.dropped_word.to_le_bytes();
    write(&bytes, &scratch.path);
    let Some(pool) = seen.note(open(&scratch)) else { return Ok(()) };
    look(&pool, seen)?;
    if let Some(map) = seen.note(pool.map("map")) {
        seen.note(map.upsert(b"key", b"value"));
    }
    seen.note(pool.close());
    Ok(())
}

/// The operations on a pool that may be damaged.
fn look(pool: &Pool, seen: &mut Seen) -> Result<(), String> {
    seen.note(pool.maps());
    seen.note(pool.stat());
    if let Some(report) = seen.note(pool.check()) {
        seen.0 |= !report.is_consistent();
    }
    if let Some(report) = seen.note(pool.check_online()) {
        seen.0 |= !report.is_consistent();
    }
    let mut last: Option<Vec<u8>> = None;
    let mut ascends = true;
    let copied = pool.salvage("map", |key, _| {
        ascends &= last.as_deref().is_none_or(|last| last < key);
        last = Some(key.to_vec());
    });
    match seen.note(copied) {
        Some(report) if !ascends && report.is_consistent() => {
            Err("salvage finds nothing wrong, and its keys do not ascend".to_owned())
        }
        _ => Ok(()),
    }
}

fn read(map: &Map, image: &Image, choices: &mut Choices, seen: &mut Seen) -> Result<(), String> {
    for _ in 0..16 {
        seen.note(map.get(choices.pick(&image.keys).as_slice()));
    }
    let absent = |key: &[u8]| [key, b"!"].concat();
    for _ in 0..8 {
        seen.note(map.get(absent(choices.pick(&image.keys).as_slice())));
    }
    let some: Vec<&[u8]> = (0..8).map(|_| choices.pick(&image.keys).as_slice()).collect();
    seen.note(map.get_many(&some));
    for order in [Order::Ascending, Order::Descending] {
        scan(map, image, KeyRange::all(), order, seen)?;
        scan(map, image, KeyRange::from(choices.pick(&image.keys).as_slice()..), order, seen)?;
    }
    seen.note(map.len());
    Ok(())
}

fn scan(
    map: &Map,
    image: &Image,
    range: KeyRange,
    order: Order,
    seen: &mut Seen,
) -> Result<(), String> {
    let mut scan = map.range(range);
    let mut last: Option<Vec<u8>> = None;
    for count in 0.. {
        let Some(Some((key, _))) = seen.note(scan.next_record_in(order)) else { break };
        let key = key.to_vec();
        let goes_on = last.as_ref().is_none_or(|last| match order {
            Order::Ascending => *last < key,
            Order::Descending => *last > key,
        });
        if !goes_on {
            return Err(format!("a scan, {order:?}, lends {key:?} behind {last:?}"));
        }
        if count > 100 * image.keys.len() {
            return Err(format!("a scan, {order:?}, does not end"));
        }
        last = Some(key);
    }
    Ok(())
}

fn change(map: &Map, image: &Image, choices: &mut Choices, seen: &mut Seen) {
    let long = vec![5; 2_000];
    for round in 0..40 {
        let key = choices.pick(&image.keys);
        let old = vec![9; 8];
        match round % 5 {
            0 => drop(seen.note(map.upsert(key, 8_u64.to_le_bytes()))),
            1 => drop(seen.note(map.remove(key))),
            2 => drop(seen.note(map.update(key, &long[..choices.below(2_000) as usize]))),
            3 => drop(seen.note(map.compare_exchange(key, &old, [8; 8]))),
            _ => {
                let mut new = key.clone();
                match new.last_mut() {
                    Some(last) => *last ^= 1,
                    None => new.push(1),
                }
                seen.note(map.insert(&new, [7; 8]));
            }
        }
    }
    seen.note(map.modify(choices.pick(&image.keys).as_slice(), |value, new| {
        new.extend_from_slice(value.unwrap_or_default());
        new.push(1);
        new.len() < 3_000
    }));
    // A run of removes empties leaves.
    let first = choices.below(image.keys.len() as u64) as usize;
    for key in image.keys.iter().skip(first).take(60) {
        seen.note(map.remove(key));
    }
    // And a run of inserts fills them.
    for key in image.keys.iter().skip(first).take(60) {
        seen.note(map.upsert(key, [6; 8]));
    }
}
