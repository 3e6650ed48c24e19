//! A crash at every write of the allocator, and at every write of the recovery after it: the block
//! belongs to its word or is free, no block leaks, and a second recovery finds the same.

use std::path::Path;
use std::sync::Arc;

use pando_pmem::testing::{CutShort, give_to, kill_after};
use pando_pmem::{CreateOptions, Domain, OpenPool, Pool};

use crate::common::{active, create, folder, free, give, holds, named, open, options, room, root};

type Cut = Pool<CutShort>;

/// Checks that each active block is named by one root, and that no other chunk or block is in use.
fn check(pool: &Cut, bytes: u64, most: usize, label: &str) {
    let mut owned: Vec<u64> =
        (0..16).map(|index| named(pool, index)).filter(|&off| off != 0).collect();
    owned.sort_unstable();
    let found: Vec<u64> = active(pool).iter().map(|block| block.off).collect();
    assert_eq!(found, owned, "{label}: allocated against named");
    for index in 0..16 {
        let off = named(pool, index);
        assert!(off == 0 || holds(pool, off, bytes, index as u8), "{label}: content of {index}");
    }
    assert_eq!(pool.usage().unwrap().claimed_chunks, 0, "{label}: chunks without an owner");
    assert_eq!(room(pool, bytes), most - owned.len(), "{label}: room");
}

fn cut_open(path: &Path, writes: u64) -> bool {
    match kill_after(writes, || Pool::<CutShort>::open(path, &OpenPool::default()).unwrap()) {
        Some(pool) => {
            pool.abandon();
            false
        }
        None => true,
    }
}

/// Gives each of these words a block of `bytes`, stamped with the word's number.
fn give_each(pool: &Cut, indexes: impl IntoIterator<Item = u64>, bytes: u64) {
    for index in indexes {
        give(pool, index, bytes, index as u8);
    }
}

/// Kills `work` before each of its writes, and the recovery of each of these crashes too.
fn crash_everywhere(
    what: &str,
    bytes: u64,
    prepare: impl Fn(&Arc<Cut>),
    work: impl Fn(&Arc<Cut>),
    done: impl Fn(&Cut) -> bool,
) {
    let folder = folder();
    let most = room(&create::<CutShort>(&folder.path().join("empty"), 1), bytes);
    let mut recoveries = 0;
    let mut finished = false;
    let mut writes = 0;
    while !finished {
        let path = folder.path().join("pool");
        let pool = create::<CutShort>(&path, 1);
        prepare(&pool);
        finished = kill_after(writes, || work(&pool)).is_some();
        pool.abandon();
        let mut cut = true;
        let mut recovery_writes = 0;
        while cut {
            let image = folder.path().join("image");
            std::fs::copy(&path, &image).unwrap();
            cut = cut_open(&image, recovery_writes);
            let label = format!("{what}, killed at {writes}, recovery killed at {recovery_writes}");
            for _ in 0..2 {
                let pool = open::<CutShort>(&image);
                check(&pool, bytes, most, &label);
                assert!(!finished || done(&pool), "{label}: a finished operation was undone");
                pool.abandon();
            }
            std::fs::remove_file(&image).unwrap();
            recovery_writes += 1;
            recoveries += 1;
        }
        std::fs::remove_file(&path).unwrap();
        writes += 1;
    }
    println!("{what}: {} writes, {recoveries} recoveries", writes - 1);
    assert!(writes > 5);
}

const SIZES: [u64; 3] = [500, 30_000, 150_000];

#[test]
fn a_crash_at_every_write_of_the_first_activation() {
    for bytes in SIZES {
        let what = format!("activate the first {bytes} bytes");
        let work = |pool: &Arc<Cut>| give_each(pool, [0], bytes);
        crash_everywhere(&what, bytes, |_| {}, work, |pool| named(pool, 0) != 0);
    }
}

#[test]
fn a_crash_at_every_write_of_a_later_activation() {
    for bytes in SIZES {
        let what = format!("activate {bytes} bytes more");
        let prepare = |pool: &Arc<Cut>| give_each(pool, [1], bytes);
        let work = |pool: &Arc<Cut>| give_each(pool, [2], bytes);
        crash_everywhere(&what, bytes, prepare, work, |pool| named(pool, 2) != 0);
    }
}

#[test]
fn a_crash_at_every_write_of_a_free() {
    for bytes in SIZES {
        let what = format!("free {bytes} bytes");
        let prepare = |pool: &Arc<Cut>| give_each(pool, [1, 2], bytes);
        let work = |pool: &Arc<Cut>| free(pool, 1);
        crash_everywhere(&what, bytes, prepare, work, |pool| named(pool, 1) == 0);
    }
}

#[test]
fn a_crash_at_every_write_of_a_free_in_a_later_generation() {
    let folder = folder();
    for bytes in SIZES {
        let what = format!("free {bytes} bytes that are older than the crash");
        let older = folder.path().join("older");
        let pool = create::<CutShort>(&older, 1);
        give_each(&pool, [1, 2], bytes);
        pool.abandon();
        let most = room(&create::<CutShort>(&folder.path().join("empty"), 1), bytes);
        for writes in 0.. {
            let image = folder.path().join("image");
            std::fs::copy(&older, &image).unwrap();
            let pool = open::<CutShort>(&image);
            let finished = kill_after(writes, || {
                free(&pool, 1);
                give(&pool, 3, bytes, 3);
            });
            pool.abandon();
            let pool = open::<CutShort>(&image);
            check(&pool, bytes, most, &format!("{what}, killed at {writes}"));
            drop(pool);
            std::fs::remove_file(&image).unwrap();
            if finished.is_some() {
                break;
            }
        }
        std::fs::remove_file(folder.path().join("empty")).unwrap();
        std::fs::remove_file(&older).unwrap();
    }
}

/// Two blocks fill a slab. They are freed while another slab is current. So their slab dissolves,
/// and its chunk becomes part of a span.
#[test]
fn a_crash_at_every_write_while_a_slab_dissolves_and_its_chunk_is_used_again() {
    let bytes = 32_000;
    let prepare = |pool: &Arc<Cut>| give_each(pool, 1..=3, bytes);
    let work = |pool: &Arc<Cut>| {
        free(pool, 1);
        free(pool, 2);
        for _ in 0..8 {
            pool.pin().unwrap().collect();
        }
        // This takes the first chunk, which is free again.
        let guard = pool.pin().unwrap();
        let mut block = guard.reserve(bytes).unwrap();
        block.write(0, &[4; 32_000]);
        give_to(&guard, root(4), block);
        let mut span = guard.reserve(65_536).unwrap();
        span.write(0, &[5; 32_000]);
        drop(span);
    };
    crash_everywhere("dissolve", bytes, prepare, work, |pool| named(pool, 4) != 0);
}

#[test]
fn a_crash_at_every_write_while_chunks_lose_their_room_and_get_it_again() {
    let bytes = 150_000;
    let prepare = |pool: &Arc<Cut>| {
        give_each(pool, [1, 2], bytes);
        free(pool, 1);
        pool.reclaim().unwrap();
    };
    let work = |pool: &Arc<Cut>| {
        assert!(pool.release_unused(u64::MAX).unwrap() > 0);
        give(pool, 3, bytes, 3);
    };
    crash_everywhere("lose room", bytes, prepare, work, |pool| named(pool, 3) != 0);
}

#[test]
fn a_crash_at_every_write_of_compaction() {
    let bytes = 150_000;
    let folder = folder();
    let (path, image) = (folder.path().join("pool"), folder.path().join("image"));
    let pool = create::<CutShort>(&path, 1);
    let most = room(&pool, bytes);
    give_each(&pool, 0..3, bytes);
    free(&pool, 0);
    free(&pool, 2);
    drop(pool);
    for writes in 0.. {
        std::fs::copy(&path, &image).unwrap();
        let pool = open::<CutShort>(&image);
        let finished = kill_after(writes, || pool.compact().unwrap());
        for _ in 0..2 {
            let pool = open::<CutShort>(&image);
            check(&pool, bytes, most, &format!("compaction, killed at {writes}"));
            pool.abandon();
        }
        if let Some(done) = finished {
            assert!(done.after_bytes < done.before_bytes, "{done:?}");
            break;
        }
        std::fs::remove_file(&image).unwrap();
    }
}

#[test]
fn a_crash_at_every_write_of_growth() {
    let bytes = 30_000;
    let prepare = |_: &Arc<Cut>| {};
    let work = |pool: &Arc<Cut>| give_each(pool, 0..8, bytes);
    crash_everywhere("grow by eight", bytes, prepare, work, |pool| named(pool, 7) != 0);
}

#[test]
fn a_crash_at_every_write_of_create() {
    let folder = folder();
    let options = CreateOptions { max_bytes: 1 << 20, initial_bytes: 0 };
    for writes in 0.. {
        let path = folder.path().join("pool");
        let created = kill_after(writes, || Pool::<CutShort>::create(&path, &options).unwrap());
        let finished = created.is_some();
        if let Some(pool) = created {
            pool.abandon();
        }
        // Absent, or a whole pool; no temporary file.
        assert!(std::fs::read_dir(folder.path()).unwrap().count() <= 1);
        if path.exists() {
            let pool = open::<CutShort>(&path);
            give(&pool, 0, 500, 0);
            check(&pool, 500, 10 * 127, "created");
            drop(pool);
            std::fs::remove_file(&path).unwrap();
        }
        if finished {
            break;
        }
    }
}

thread_local! {
    static FLUSHED: std::cell::RefCell<std::collections::HashSet<usize>> = Default::default();
}

/// A domain that notes the lines that were written back.
#[derive(Clone, Copy, Debug, Default)]
struct Noting;

impl Domain for Noting {
    fn needs_write_back() -> bool {
        true
    }

    unsafe fn write_back(address: *const u8) {
        FLUSHED.with_borrow_mut(|lines| lines.insert(address as usize / 64));
    }

    fn fence() {}
}

/// After power loss, a line that was not written back has the medium's content. In a chunk that was
/// part of a span, that is the owner's data, which may look like taken bits of a later generation.
#[test]
fn a_new_slab_leaves_no_taken_word_to_what_the_medium_held() {
    let pool = Pool::<Noting>::anonymous(&options(1)).unwrap();
    FLUSHED.with_borrow_mut(|lines| lines.clear());
    let off = give(&pool, 0, 64, 1);
    let chunk = pool.geometry().chunk_off(0);
    assert_eq!(off, chunk + 512);
    // SAFETY: the header of a slab, of which only the address is taken.
    let address = unsafe { pool.bytes(chunk, 448) }.as_ptr() as usize;
    for at in (0..448).step_by(64) {
        let flushed = FLUSHED.with_borrow(|lines| lines.contains(&((address + at) / 64)));
        assert!(flushed, "the slab's header at byte {at} was not written back");
    }
}
