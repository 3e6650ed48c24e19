//! Random calls of the allocator, compared with a model, by one thread and by several.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};

use pando_pmem::{BLOCK_ALIGN, Error, Pool, Process};

use pando_index::random::Random;
use pando_pmem::testing::{give_to, take_from};

use crate::common::{active, create, folder_and_pool, free, holds, open, random, room, root};

const ROOTS: u64 = 200;

fn some_size(random: &mut Random) -> u64 {
    match random.below(20) {
        0..8 => 1 + random.below(300),
        8..14 => 1 + random.below(4096),
        14..19 => 1 + random.below(40_000),
        _ => 1 + random.below(300_000),
    }
}

#[test]
fn random_work_agrees_with_a_model_across_closings_and_crashes() {
    let mut random = random(0x00A1_10C8);
    let (_folder, path) = folder_and_pool();
    let mut pool = create::<Process>(&path, 4);
    // By root: offset, requested bytes, stamp.
    let mut model: BTreeMap<u64, (u64, u64, u8)> = BTreeMap::new();
    let (mut full, mut given) = (0, 0);
    for step in 0..15_000_u64 {
        let index = random.below(ROOTS);
        match random.below(1000) {
            0 => {
                drop(pool);
                pool = open(&path);
            }
            1 => {
                pool.abandon();
                pool = open(&path);
            }
            2..500 if !model.contains_key(&index) => {
                let (bytes, stamp) = (some_size(&mut random), step as u8);
                let guard = pool.pin().unwrap();
                let mut block = match guard.reserve(bytes) {
                    Ok(block) => block,
                    Err(Error::PoolFull { .. }) => {
                        full += 1;
                        continue;
                    }
                    Err(error) => panic!("{error}"),
                };
                let (off, len) = (block.off(), block.bytes());
                assert!(off.is_multiple_of(BLOCK_ALIGN) && len >= bytes);
                for &(other, other_bytes, _) in model.values() {
                    assert!(off + len <= other || other + other_bytes <= off, "step {step}");
                }
                block.write(0, &vec![stamp; bytes as usize]);
                if random.below(5) > 0 {
                    give_to(&guard, root(index), block);
                    model.insert(index, (off, bytes, stamp));
                    given += 1;
                }
            }
            _ => {
                if let Some((off, bytes, stamp)) = model.remove(&index) {
                    assert!(holds(&pool, off, bytes, stamp), "step {step}");
                    free(&pool, index);
                }
            }
        }
        if step % 500 == 0 {
            let mut expected: Vec<u64> = model.values().map(|block| block.0).collect();
            expected.sort_unstable();
            let found: Vec<u64> = active(&pool).iter().map(|block| block.off).collect();
            assert_eq!(found, expected, "step {step}");
        }
    }
    println!("{given} blocks given, {full} times full");
    assert!(given > 3000 && full > 10);
    for (index, (off, bytes, stamp)) in model {
        assert!(holds(&pool, off, bytes, stamp));
        free(&pool, index);
    }
    drop(pool);
    let pool = open::<Process>(&path);
    assert_eq!(active(&pool), []);
    assert_eq!(room(&pool, 65_536), pool.geometry().max_chunks as usize);
}

/// A stamped block on its way to the thread that frees it.
struct Parcel {
    root: u64,
    bytes: u64,
    stamp: u64,
}

const THREADS: u64 = 4;
const ROUNDS: u64 = 6000;
static STAMP: AtomicU64 = AtomicU64::new(1);

fn allocate(pool: &Pool<Process>, root_off: u64, bytes: u64) -> Option<Parcel> {
    let stamp = STAMP.fetch_add(1, Ordering::Relaxed);
    let guard = pool.pin().unwrap();
    let mut block = guard.reserve(bytes).ok()?;
    let words: Vec<u8> = stamp.to_le_bytes().repeat(bytes as usize / 8);
    block.write(0, &words);
    give_to(&guard, root_off, block);
    Some(Parcel { root: root_off, bytes, stamp })
}

fn verify_and_free(pool: &Pool<Process>, parcel: &Parcel) {
    let guard = pool.pin().unwrap();
    let off = pool.word(parcel.root).load(Ordering::Acquire);
    // SAFETY: the block belongs to this thread since it received the parcel.
    let content = unsafe { pool.bytes(off, parcel.bytes) };
    for word in content.as_chunks::<8>().0 {
        assert_eq!(u64::from_le_bytes(*word), parcel.stamp, "a block was allocated twice");
    }
    assert!(take_from(&guard, parcel.root));
}

fn work(
    pool: &Pool<Process>,
    own: u64,
    inbox: &mpsc::Receiver<Parcel>,
    others: &[mpsc::Sender<Parcel>],
) {
    let mut random = random(0xF0 + own);
    let mut mine: Vec<Parcel> = Vec::new();
    let mut roots: Vec<u64> = (0..200).map(|index| root(own * 200 + index)).collect();
    for _ in 0..ROUNDS {
        // Few sizes, so that slabs fill, become empty, dissolve and are made again for other sizes.
        let bytes = [64, 64, 4096, 16_000, 32_000, 32_000, 70_000][random.below(7) as usize];
        if mine.len() < 30
            && let Some(root_off) = roots.pop()
        {
            match allocate(pool, root_off, bytes) {
                Some(parcel) => mine.push(parcel),
                None => roots.push(root_off),
            }
        }
        while let Ok(parcel) = inbox.try_recv() {
            verify_and_free(pool, &parcel);
        }
        if !mine.is_empty() && random.below(3) > 0 {
            let parcel = mine.swap_remove(random.below(mine.len() as u64) as usize);
            if random.below(2) == 0 {
                let _ = others[random.below(THREADS) as usize].send(parcel);
            } else {
                verify_and_free(pool, &parcel);
                roots.push(parcel.root);
            }
        }
    }
    mine.iter().for_each(|parcel| verify_and_free(pool, parcel));
}

#[test]
fn threads_that_free_each_others_blocks_never_share_one_and_leak_none() {
    let (_folder, path) = folder_and_pool();
    let pool: Arc<Pool<Process>> = create(&path, 8);
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel()).unzip();
    let done = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for (own, inbox) in inboxes.into_iter().enumerate() {
            let (pool, others, done) = (&pool, senders.clone(), &done);
            scope.spawn(move || {
                work(pool, own as u64, &inbox, &others);
                drop(others);
                done.wait();
                while let Ok(parcel) = inbox.try_recv() {
                    verify_and_free(pool, &parcel);
                }
                done.wait();
                // Each thread unpins now whenever it runs, so waiting blocks become free.
                let is_free = (0..1_000_000).any(|_| {
                    std::thread::yield_now();
                    let guard = pool.pin().unwrap();
                    guard.collect();
                    guard.waiting() == 0
                });
                assert!(is_free, "blocks wait for ever");
            });
        }
    });
    assert_eq!(active(&pool), []);
    drop(pool);
    let pool = open::<Process>(&path);
    assert_eq!(room(&pool, 65_536), pool.geometry().max_chunks as usize, "chunks were lost");
}
