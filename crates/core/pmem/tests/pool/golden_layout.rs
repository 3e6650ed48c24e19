//! Offsets and values that other processes and later versions rely on. The test fails on any change
//! of the persistent format; then the version must change too. (Words that are void in the next
//! generation, such as taken bits, may change without that, if the former form is void too.)

use std::sync::atomic::Ordering;

use pando_pmem::testing::LogicalThread;
use pando_pmem::{Pool, Process, layout};

use crate::common::{create, folder, give, options, root, shared};

fn word(pool: &Pool<Process>, off: u64) -> u64 {
    pool.word(off).load(Ordering::Acquire)
}

#[test]
fn golden_participant_slot() {
    let folder = folder();
    let pool = create::<Process>(&folder.path().join("pool"), 1);
    let guard = pool.pin().unwrap();
    assert_eq!(word(&pool, 4096), 1, "global epoch");
    assert_eq!(word(&pool, 4096 + 64), 1, "slots ever claimed");
    assert_eq!(word(&pool, 8192), 1, "readied in generation 1");
    assert_eq!(word(&pool, 8192 + 8), 1 << 48 | 1 << 47 | 1, "version 1, pinned in epoch 1");
    assert_eq!(word(&pool, 8192 + 24), 1 << 32 | 1, "of process 0 in generation 1");
    drop(guard);
    assert_eq!(word(&pool, 8192 + 8), 1, "not pinned");
    drop(pool.pin());
    assert_eq!(word(&pool, 8192 + 8), 1, "the thread still has that version");
    let off = give(&pool, 0, 64, 1);
    let log: Vec<u64> = [64, 72, 80].iter().map(|at| word(&pool, 8192 + at)).collect();
    assert_eq!(log, [0, off, root(0)], "the log's kind, block and word");
    std::thread::scope(|scope| scope.spawn(|| drop(pool.pin())).join().unwrap());
    assert_eq!([0, 8].map(|at| word(&pool, 8192 + 128 + at)), [1, 1], "not pinned");
    std::thread::scope(|scope| scope.spawn(|| drop(pool.pin())).join().unwrap());
    assert_eq!(word(&pool, 8192 + 128 + 8), 2, "taken by another thread");
}

#[test]
fn golden_processes() {
    let folder = folder();
    let path = folder.path().join("pool");
    drop(create::<Process>(&path, 1));
    let pools: Vec<_> = (0..2).map(|_| shared::<Process>(&path)).collect();
    let pool = &pools[0];
    let process = 2 << 32 | u64::from(std::process::id());
    let table = [0, 8, 16].map(|at| word(pool, 4096 + 2048 + at));
    assert_eq!(table, [process, process, 0], "generation 2");
    let slot = pools[1].pin().unwrap().slot() as u64;
    assert_eq!(word(pool, 8192 + 128 * slot + 24), 2 << 32 | 2, "of process 1");
    assert_eq!([512, 576, 584].map(|at| word(pool, 4096 + at)), [0; 3], "no census, no death");

    pools[1].drop_locks_like_a_kill();
    pool.recover_dead(|_, _| {}).unwrap();
    assert_eq!(word(pool, 4096 + 576), 2 << 32 | 1, "deaths");
    pool.step_census().unwrap();
    assert_eq!(word(pool, 4096 + 512), 2 << 32 | 1 << 2, "census 1, begun");
    (0..3).for_each(|_| assert_eq!(pool.step_census().unwrap(), 0));
    assert_eq!(word(pool, 4096 + 512), 2 << 32 | 1 << 2 | 1, "census 1, all changes stamped");
    pool.step_census().unwrap();
    assert_eq!(word(pool, 4096 + 512), 2 << 32 | 1 << 2 | 2, "census 1, done");
    assert_eq!(word(pool, 4096 + 2048), process | 1 << 24, "answered");
    let off = give(pool, 0, 128, 1);
    let chunk = off / 65_536 * 65_536;
    assert_eq!(word(pool, chunk + 192), 2 << 40 | 1 << 32 | 1, "a taken bit with the stamp");
    for _ in 0..20 {
        pool.step_census().unwrap();
    }
    assert_eq!(word(pool, 4096 + 584), 2 << 32 | 1, "deaths that were counted");
}

#[test]
fn golden_segment() {
    let folder = folder();
    let pool = create::<Process>(&folder.path().join("pool"), 4);
    let threads: Vec<_> = (0..129).map(|_| LogicalThread::default()).collect();
    let pin = |thread: &LogicalThread| {
        thread.swap();
        let guard = pool.pin().unwrap();
        thread.swap();
        guard
    };
    let guards: Vec<_> = threads.iter().map(pin).collect();
    let segment = pool.geometry().chunk_off(0);
    assert_eq!(word(&pool, 4096 + 256), segment, "the directory's first word");
    assert_eq!(word(&pool, 4096 + 264), 0, "the directory's second word");
    assert_eq!(word(&pool, layout::CHUNK_TABLE_OFF), 3 << 24 | 5, "a span of five chunks");
    assert_eq!([0, 8].map(|at| word(&pool, segment + at)), [1, 1 << 48 | 1 << 47 | 1]);
    assert_eq!(pool.partition_off(128), Some(segment + 128 * 128));
    assert_eq!(pool.partition_off(255), Some(segment + 128 * 128 + 127 * 2048));
    assert_eq!(pool.partition_off(256), None);
    drop(guards);
}

#[test]
fn golden_slab() {
    let folder = folder();
    let pool = create::<Process>(&folder.path().join("pool"), 1);
    let chunk = 327_680;
    assert_eq!(pool.geometry().chunk_off(0), chunk);
    assert_eq!(give(&pool, 0, 128, 1), chunk + 512);
    assert_eq!(give(&pool, 1, 128, 1), chunk + 512 + 128);
    assert_eq!(word(&pool, 4096 + 128), 1, "chunks ever used");
    assert_eq!(word(&pool, layout::CHUNK_TABLE_OFF), 2 << 24 | 1, "a slab of class 1");
    assert_eq!(word(&pool, chunk), 0x5AB0 << 48 | 1, "the slab's class");
    assert_eq!(word(&pool, chunk + 64), 0b11, "active bits");
    assert_eq!(word(&pool, chunk + 192), 1 << 40 | 0b11, "taken bits of generation 1");
}

#[test]
fn golden_span() {
    let folder = folder();
    let pool = create::<Process>(&folder.path().join("pool"), 1);
    assert_eq!(give(&pool, 0, 65_537, 1), 327_680);
    let table = [0, 8].map(|at| word(&pool, layout::CHUNK_TABLE_OFF + at));
    assert_eq!(table, [3 << 24 | 2, 4 << 24], "head of two chunks, and its body");
}

#[test]
fn golden_file_length_and_first_chunk_by_size() {
    let folder = folder();
    for (mib, chunks_off) in [(1, 327_680), (64, 327_680), (4096, 851_968)] {
        let path = folder.path().join(format!("pool-{mib}"));
        let pool = pando_pmem::Pool::<Process>::create(&path, &options(mib)).unwrap();
        assert_eq!(pool.geometry().chunks_off, chunks_off, "{mib} MiB");
        assert_eq!(path.metadata().unwrap().len(), chunks_off + 65_536);
    }
}
