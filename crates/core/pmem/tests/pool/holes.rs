//! Unused room goes back to the system, and is made again before a store.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_pmem::layout::{FRONTIER_OFF, PUNCHED_OFF};
use pando_pmem::testing::give_to;
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_pmem::{Domain, Error, Pool, Process};

use crate::common::{
    Mounted, active, create, folder, folder_and_pool, free, give, holds, named, open, options,
    room, root,
};

const CHUNK: u64 = 65_536;
/// The kind of a hole, in its word of the chunk table.
const HOLE_KIND: u64 = 5;

fn allocated(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

fn holes<D: Domain>(pool: &Pool<D>) -> u64 {
    pool.usage().unwrap().hole_chunks
}

fn counted<D: Domain>(pool: &Pool<D>) -> u64 {
    pool.word(PUNCHED_OFF).load(Ordering::Acquire)
}

/// Returns all unused room, one MiB at a time; returns the number of bytes.
fn release_all<D: Domain>(pool: &Pool<D>) -> u64 {
    let step = || Some(pool.release_unused(1 << 20).unwrap()).filter(|&bytes| bytes > 0);
    std::iter::from_fn(step).inspect(|&bytes| assert!(bytes <= 1 << 20)).sum()
}

/// A pool of some MiB, in which seven blocks of eight were freed.
fn emptied(path: &Path) -> Arc<Pool<Process>> {
    let pool = create::<Process>(path, 64);
    for index in 0..80 {
        let bytes = if index % 2 == 0 { 100_000 } else { 5_000 };
        give(&pool, index, bytes, index as u8);
    }
    (0..80).filter(|index| index % 8 != 0).for_each(|index| free(&pool, index));
    pool
}

fn check_left(pool: &Pool<Process>) {
    for index in (0..80).step_by(8) {
        assert!(holds(pool, named(pool, index), 100_000, index as u8), "block {index}");
    }
}

/// Elsewhere the system would not use huge pages.
#[test]
fn a_file_is_mapped_at_a_multiple_of_huge_pages() {
    for mib in [1, 3, 64] {
        let folder = folder();
        let pool: Arc<Pool<Process>> = create(&folder.path().join("aligned.pando"), mib);
        assert!(pool.addresses().start.is_multiple_of(2 << 20), "{mib} MiB");
    }
}

#[test]
fn an_emptied_pool_returns_its_room_and_opening_it_takes_none_back() {
    let (_folder, path) = folder_and_pool();
    let pool = emptied(&path);
    let (length, before) = (path.metadata().unwrap().len(), allocated(&path));
    let given = release_all(&pool);
    assert!(given >= 30 * 2 * CHUNK, "{given} bytes");
    assert_eq!((holes(&pool) * CHUNK, counted(&pool) * CHUNK), (given, given));
    assert_eq!(path.metadata().unwrap().len(), length);
    assert_eq!(allocated(&path), before - given);
    check_left(&pool);
    drop(pool);
    for _ in 0..2 {
        let pool = open::<Process>(&path);
        assert_eq!(allocated(&path), before - given, "room that was returned was taken again");
        assert_eq!(holes(&pool) * CHUNK, given);
        pool.abandon();
    }
}

#[test]
fn a_hole_has_room_again_before_it_is_written_to() {
    let (_folder, path) = folder_and_pool();
    let pool = emptied(&path);
    let before = allocated(&path);
    release_all(&pool);
    let frontier = pool.word(FRONTIER_OFF).load(Ordering::Acquire);
    // Spans of several lengths, and slabs, until all holes are used.
    let mut index = 100;
    while holes(&pool) > 0 {
        let bytes = [30_000, 3 * CHUNK, 60_000, CHUNK + 1][index as usize % 4];
        give(&pool, index, bytes, index as u8);
        index += 1;
        assert!(index < 400, "{:?}", pool.usage().unwrap());
    }
    assert!(pool.word(FRONTIER_OFF).load(Ordering::Acquire) < 2 * frontier);
    assert!(allocated(&path) >= before);
    assert_eq!(counted(&pool), 0);
    check_left(&pool);
}

#[test]
fn a_full_file_system_refuses_what_needs_a_hole_and_nothing_faults() {
    let Some(mounted) = Mounted::new("tmpfs", "size=12m") else { return };
    let path = mounted.path().join("pool");
    let pool = emptied(&path);
    // Some room stays: it serves blocks when no hole can.
    assert!(pool.release_unused(20 * CHUNK).unwrap() > 0);
    let filler = mounted.path().join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    drop(file);
    let (mut given, mut refused) = (Vec::new(), 0);
    for index in 100..300 {
        let guard = pool.pin().unwrap();
        match guard.reserve([CHUNK, 3 * CHUNK][index as usize % 2]) {
            Ok(mut block) => {
                block.write(0, &[index as u8; CHUNK as usize]);
                give_to(&guard, root(index), block);
                given.push(index);
            }
            Err(Error::FileSystemFull { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(!given.is_empty() && refused > 0, "{} given, {refused} refused", given.len());
    assert!(holes(&pool) > 0);
    assert_eq!(counted(&pool), holes(&pool));
    for index in &given {
        assert!(holds(&pool, named(&pool, *index), CHUNK, *index as u8), "block {index}");
    }
    // Truncated, not removed: a process that another test has just forked may have the file open.
    fs::File::create(&filler).unwrap();
    give(&pool, 400, 3 * CHUNK, 7);
    assert_eq!(pool.usage().unwrap().claimed_chunks, 0);
}

/// The system keeps a part of a huge page that another thread has. Here the room is taken from
/// outside instead.
#[test]
fn room_that_the_system_has_kept_is_returned_later() {
    let Some(mounted) = Mounted::new("tmpfs", "size=24m") else { return };
    let path = mounted.path().join("pool");
    let pool = emptied(&path);
    release_all(&pool);
    let (before, counts) = (allocated(&path), (holes(&pool), counted(&pool)));
    let word = |index| pool.word(pool.geometry().chunk_word_off(index)).load(Ordering::Acquire);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let kept = (0..pool.word(FRONTIER_OFF).load(Ordering::Acquire))
        .filter(|&index| word(index) >> 24 == HOLE_KIND)
        .step_by(3)
        .map(|index| file.write_all_at(&[0; CHUNK as usize], pool.geometry().chunk_off(index)))
        .map(Result::unwrap)
        .count() as u64;
    assert!(kept > 10, "{kept} holes");
    assert_eq!(allocated(&path), before + kept * CHUNK);
    assert_eq!(pool.release_unused(1 << 20).unwrap(), kept * CHUNK);
    assert_eq!((allocated(&path), (holes(&pool), counted(&pool))), (before, counts));
    assert_eq!(pool.release_unused(1 << 20).unwrap(), 0);
    assert_eq!(pool.usage().unwrap().claimed_chunks, 0);
    check_left(&pool);
}

/// The system keeps room of holes, and a second punch returns nothing of it: further searches punch
/// nothing, until the system keeps more.
#[test]
fn room_that_the_system_never_returns_is_not_punched_again() {
    let Some(mounted) = Mounted::new("tmpfs", "size=24m") else { return };
    let path = mounted.path().join("pool");
    let pool = emptied(&path);
    release_all(&pool);
    let before = allocated(&path);
    let word = |index| pool.word(pool.geometry().chunk_word_off(index)).load(Ordering::Acquire);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let holes: Vec<_> = (0..pool.word(FRONTIER_OFF).load(Ordering::Acquire))
        .filter(|&index| word(index) >> 24 == HOLE_KIND)
        .collect();
    // As above.
    let keep = |index| {
        file.write_all_at(&[0; CHUNK as usize], pool.geometry().chunk_off(index)).unwrap();
    };
    let release = || pool.release_unused(1 << 20).unwrap();
    // Whether a search that returns nothing has punched any hole.
    let punches = || {
        let (released, has_punched) = refuse(Resource::Hole, 0, u64::MAX, release);
        assert_eq!(released, 0);
        has_punched
    };
    assert!(!punches());
    holes[..3].iter().copied().for_each(keep);
    assert!(punches());
    assert!(!punches() && !punches());
    keep(holes[3]);
    assert!(punches());
    assert!(!punches());
    // Now the system returns all of it.
    keep(holes[4]);
    assert_eq!(release(), 5 * CHUNK);
    assert_eq!(allocated(&path), before);
    keep(holes[0]);
    assert!(punches());
    keep(holes[1]);
    assert_eq!((release(), release()), (2 * CHUNK, 0));
    assert_eq!(pool.usage().unwrap().claimed_chunks, 0);
    check_left(&pool);
}

/// An optimistic read may load from a chunk that is free by then. That would take room, or fault.
#[test]
fn a_pool_in_memory_in_which_someone_looks_without_a_pin_keeps_its_room() {
    let Some(mounted) = Mounted::new("tmpfs", "size=12m") else { return };
    let path = mounted.path().join("pool");
    let pool = emptied(&path);
    assert!(pool.optimistic_read().unwrap().is_valid());
    assert_eq!((pool.release_unused(u64::MAX).unwrap(), holes(&pool)), (0, 0));
    assert_eq!(pool.usage().unwrap().claimed_chunks, 0);
    drop(pool);
    assert!(release_all(&open::<Process>(&path)) > 0);
}

#[test]
fn a_compacted_pool_ends_with_its_last_block_and_grows_again() {
    let (_folder, path) = folder_and_pool();
    let pool = emptied(&path);
    let taken = allocated(&path);
    let done = pool.compact().unwrap();
    assert_eq!((done.before_bytes, done.after_bytes), (taken, allocated(&path)));
    assert_eq!(done.size_bytes, path.metadata().unwrap().len());
    // Ten blocks of two chunks, and the part before the chunks.
    assert!(done.after_bytes <= 20 * CHUNK + 327_680, "{done:?}");
    let pool = open::<Process>(&path);
    assert!(pool.was_clean());
    check_left(&pool);
    for index in 100..180 {
        give(&pool, index, 100_000, index as u8);
    }
    (0..80).step_by(8).for_each(|index| free(&pool, index));
    (100..180).for_each(|index| {
        assert!(holds(&pool, named(&pool, index), 100_000, index as u8));
        free(&pool, index);
    });
    let done = pool.compact().unwrap();
    // The part before the chunks, and a page of their table.
    assert_eq!((done.after_bytes, done.size_bytes), (294_912 + 4096, 327_680 + CHUNK));
    assert_eq!(active(&open::<Process>(&path)), []);
    let held = open::<Process>(&path);
    let other = Arc::clone(&held);
    assert!(matches!(other.compact(), Err(Error::HandleHeld(_))));
}

/// The count is wrong after a crash in a claim, or it is damaged; and a copy leaves out zeros, or
/// fills holes.
#[test]
fn a_wrong_count_and_a_copy_are_put_right_when_the_pool_is_opened() {
    let folder = folder();
    let (path, copy) = (folder.path().join("pool"), folder.path().join("copy"));
    let pool = emptied(&path);
    let zeros = give(&pool, 100, 40 * CHUNK, 0);
    let given = release_all(&pool);
    let right = (allocated(&path), given / CHUNK);
    for wrong in [0, right.1 - 1, u64::MAX, 1 << 50] {
        pool.word(PUNCHED_OFF).store(wrong, Ordering::Release);
        let content = fs::read(&path).unwrap();
        let file = fs::File::create(&copy).unwrap();
        file.set_len(content.len() as u64).unwrap();
        for (index, page) in content.chunks(4096).enumerate() {
            if page.iter().any(|&byte| byte != 0) {
                std::os::unix::fs::FileExt::write_all_at(&file, page, index as u64 * 4096).unwrap();
            }
        }
        assert!(allocated(&copy) < right.0);
        let opened = open::<Process>(&copy);
        assert_eq!((allocated(&copy), counted(&opened)), right, "count {wrong:#x}");
        assert_eq!(holes(&opened), right.1);
        assert!(holds(&opened, zeros, 40 * CHUNK, 0));
        check_left(&opened);
    }
}

#[test]
fn anonymous_memory_goes_back_too() {
    let pool = Pool::<Process>::anonymous(&options(64)).unwrap();
    let block = give(&pool, 0, 40 * CHUNK, 9);
    free(&pool, 0);
    assert_eq!(release_all(&pool), 40 * CHUNK);
    assert_eq!(pool.load_bytes(block, 8), [0; 8], "the memory is still there");
    assert_eq!(give(&pool, 1, 40 * CHUNK, 3), block);
    assert!(holds(&pool, block, 40 * CHUNK, 3));
    assert_eq!(active(&pool).len(), 1);
    assert!(room(&pool, CHUNK) > 0);
}
