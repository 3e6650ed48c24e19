//! A thread ends, and leaves its slot, its guards, waiting blocks, and slabs that it allocated
//! from.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, OnceLock};

use pando_pmem::layout::{EPOCH_OFF, PARTICIPANTS_HIGH_OFF, PARTICIPANTS_OFF};
use pando_pmem::superblock::{SUPERBLOCK_BYTES, Superblock};
use pando_pmem::testing::{CutShort, Paused, give_to, take_from};
use pando_pmem::{Domain, Error, Guard, Pool, Process};

use crate::common::{
    create, folder, folder_and_pool, free, give, named, open, options, room, root, while_paused,
};

fn collect_often<D: Domain>(pool: &Pool<D>) {
    for _ in 0..20 {
        pool.pin().unwrap().collect();
    }
}

/// Fewer blocks than a thread retires before it collects, and all that the pool has room for.
#[test]
fn blocks_that_an_ended_thread_freed_serve_others() {
    let pool = Pool::<Process>::anonymous(&options(4)).unwrap();
    // A slot that the next thread does not take.
    drop(pool.pin().unwrap());
    std::thread::scope(|scope| {
        let frees = scope.spawn(|| {
            let guard = pool.pin().unwrap();
            let mut count = 0;
            while let Ok(block) = guard.reserve(131_072) {
                give_to(&guard, root(count), block);
                count += 1;
            }
            (0..count).for_each(|index| assert!(take_from(&guard, root(index))));
            assert!(guard.waiting() as u64 >= count);
        });
        frees.join().unwrap();
    });
    collect_often(&pool);
    assert_eq!(pool.pin().unwrap().waiting(), 0);
    assert!(pool.pin().unwrap().reserve(131_072).is_ok());
    assert_eq!(pool.participants_claimed(), 1);
}

/// Threads in slots of their own, each with one small block.
#[test]
fn slabs_of_ended_threads_serve_others() {
    let pool = Pool::<Process>::anonymous(&options(4)).unwrap();
    drop(pool.pin().unwrap());
    let count = 50;
    let all = Barrier::new(count as usize);
    std::thread::scope(|scope| {
        let gives = |index| {
            let (pool, all) = (&pool, &all);
            scope.spawn(move || {
                give(pool, index, 64, index as u8);
                all.wait();
            })
        };
        // A thread has run its destructors when it is joined, not already when a scope ends.
        let threads: Vec<_> = (0..count).map(gives).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let used = pool.usage().unwrap().chunks;
    let guard = pool.pin().unwrap();
    let blocks: Vec<_> = (0..20_000).map(|_| guard.reserve(64).unwrap()).collect();
    assert_eq!(
        pool.usage().unwrap().chunks,
        used,
        "chunks were taken though ended threads kept slabs"
    );
    drop(blocks);
    drop(guard);
    (0..count).for_each(|index| free(&pool, index));
    collect_often(&pool);
    let spans = room(&pool, 131_072);
    assert!(spans >= 20, "{spans}; {:?}", pool.usage().unwrap());
}

/// Each thread keeps an empty slab of 64 KiB.
#[test]
fn slabs_of_idle_threads_serve_others_before_a_pool_is_called_full() {
    use pando_pmem::counting::{Counting, measure};
    let folder = folder();
    let pool = create::<Counting>(&folder.path().join("pool"), 4);
    drop(pool.pin().unwrap());
    let count = pool.geometry().max_chunks as usize;
    let all = Barrier::new(count + 1);
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                assert!(pool.pin().unwrap().reserve(64).is_ok());
                all.wait();
                all.wait();
            });
        }
        all.wait();
        let slabs = pool.usage().unwrap().slab_chunks;
        let guard = pool.pin().unwrap();
        let (block, counts) =
            measure(|| guard.reserve(64).map(|block| give_to(&guard, root(0), block)));
        let others = [1, 65].map(|bytes| guard.reserve(bytes).is_ok());
        all.wait();
        assert_eq!(slabs, count as u64);
        block.unwrap();
        // The thread that made the slab may not have made the table's word durable.
        assert!(counts.flushes > 4, "{counts:?}");
        assert_eq!(others, [true, false], "there are only slabs of blocks of 64 bytes");
    });
    free(&pool, 0);
}

/// A thread gives the last block of a slab back, and is about to dissolve the slab. No other thread
/// may begin to allocate from it: it would continue in the next slab of the chunk, before the
/// chunk table says durably that it is a slab.
#[test]
fn a_slab_that_is_being_dissolved_is_nobodys() {
    let pool = Pool::<CutShort>::anonymous(&options(64)).unwrap();
    const BYTES: u64 = 32_000;
    let chunk = |off| pool.geometry().chunk_of(off).unwrap();
    let first = give(&pool, 0, BYTES, 1);
    {
        let guard = pool.pin().unwrap();
        // The slab of `first` is full. Then another slab is current, and the first one is listed.
        let second = guard.reserve(BYTES).unwrap();
        assert_eq!(chunk(first), chunk(second.off()));
        for index in 1..3 {
            give_to(&guard, root(index), guard.reserve(BYTES).unwrap());
        }
    }
    let dissolves = |pause: Box<dyn FnOnce(u64)>| {
        let guard = pool.pin().unwrap();
        pool.word(root(0)).store(0, Ordering::Release);
        pool.deactivate(first).unwrap();
        // After the write that frees the block.
        pause(1);
        pool.reuse(&guard, first);
    };
    let ((), other) = while_paused(dissolves, || give(&pool, 3, BYTES, 3));
    assert_ne!(chunk(other), chunk(first));
    assert_eq!(pool.usage().unwrap().slab_chunks, 2);
    collect_often(&pool);
    assert_eq!(pool.usage().unwrap().free_chunks, 1);
}

/// By then, another thread has its slot, in a pool that is open again.
#[test]
fn a_thread_that_ends_writes_nothing_to_its_pool() {
    let (_folder, path) = folder_and_pool();
    let pool = create::<Process>(&path, 4);
    let (may_end, wait) = channel();
    let (tell, has_pinned) = channel();
    let ends = std::thread::spawn({
        let pool = Arc::clone(&pool);
        move || {
            drop(pool.pin().unwrap());
            drop(pool);
            tell.send(()).unwrap();
            wait.recv().unwrap();
        }
    });
    has_pinned.recv().unwrap();
    pool.close().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert!(Superblock::decode(&path, &bytes[..SUPERBLOCK_BYTES]).unwrap().clean);
    let pool = open::<Process>(&path);
    let guard = pool.pin().unwrap();
    let before = std::fs::read(&path).unwrap();
    may_end.send(()).unwrap();
    ends.join().unwrap();
    assert!(std::fs::read(&path).unwrap() == before);
    assert_eq!(pool.participants_claimed(), 1);
    assert_eq!(pool.participants()[guard.slot()].pinned_for_epochs, Some(0));
}

#[test]
fn closing_with_another_handle_held_is_an_error() {
    let pool = Pool::<Process>::anonymous(&options(1)).unwrap();
    let other = Arc::clone(&pool);
    assert!(matches!(pool.close(), Err(Error::HandleHeld(_))));
    other.close().unwrap();
}

static POOL: OnceLock<Arc<Pool<Process>>> = OnceLock::new();

thread_local! {
    static KEPT: RefCell<Option<Guard<'static, Process>>> = const { RefCell::new(None) };
}

/// The destructors of a thread run in the reverse order of the first uses.
#[test]
fn a_guard_that_outlives_its_threads_claim_pins_until_it_goes() {
    let pool = POOL.get_or_init(|| Pool::anonymous(&options(4)).unwrap());
    let keep = || {
        KEPT.with(|kept| {
            let mut kept = kept.borrow_mut();
            assert!(kept.is_none());
            *kept = Some(pool.pin().unwrap());
        });
    };
    for _ in 0..2 {
        std::thread::spawn(keep).join().unwrap();
        assert_eq!(pool.participants_claimed(), 0);
        assert_eq!(pool.participants()[0].pinned_for_epochs, None);
    }
    let guard = pool.pin().unwrap();
    assert_eq!(pool.participants()[guard.slot()].pinned_for_epochs, Some(0));
}

#[test]
fn a_thread_that_has_given_its_slots_back_gets_no_other() {
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            let refused = POOL_OF_LATE.get().unwrap().pin().map(drop);
            assert!(matches!(refused, Err(Error::ThreadEnds)), "{refused:?}");
        }
    }
    static POOL_OF_LATE: OnceLock<Arc<Pool<Process>>> = OnceLock::new();
    thread_local! {
        static LATE: Late = const { Late };
    }
    let pool = POOL_OF_LATE.get_or_init(|| Pool::anonymous(&options(4)).unwrap());
    let ends = std::thread::spawn(|| {
        LATE.with(|_| ());
        drop(pool.pin().unwrap());
    });
    ends.join().unwrap();
}

/// The medium may have an old epoch in a slot that no recovery has read.
#[test]
fn a_thread_that_stops_while_it_claims_a_slot_holds_nothing_back() {
    let folder = folder();
    let pool = create::<CutShort>(&folder.path().join("pool"), 4);
    let off = give(&pool, 0, 1000, 1);
    // Pinned in epoch 57.
    pool.word(PARTICIPANTS_OFF + 128 + 8).store(57 << 48 | 1 << 47 | 9, Ordering::Release);
    let stops = Paused::start(1, {
        let pool = pool.clone();
        move || drop(pool.pin().unwrap())
    });
    assert!(!stops.is_done());
    std::thread::scope(|scope| {
        scope.spawn(|| drop(pool.pin().unwrap())).join().unwrap();
    });
    assert_eq!(pool.word(PARTICIPANTS_HIGH_OFF).load(Ordering::Acquire), 3);
    free(&pool, 0);
    let before = pool.word(EPOCH_OFF).load(Ordering::Acquire);
    collect_often(&pool);
    assert!(pool.word(EPOCH_OFF).load(Ordering::Acquire) > before + 3);
    assert_eq!((pool.pin().unwrap().waiting(), pool.active_block(off)), (0, None));
    stops.resume();
    assert_eq!(pool.participants()[1].pinned_for_epochs, None);
}

#[test]
fn what_a_thread_may_take_of_the_last_chunks_ends_with_its_work_also_if_that_unwinds() {
    let pool = Pool::<Process>::anonymous(&options(1)).unwrap();
    let guard = pool.pin().unwrap();
    let unwinds = || guard.without_reserve(|| std::panic::resume_unwind(Box::new(())));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(unwinds)).is_err());
    // A thread without access to the reserve does not take the last two chunks.
    let blocks: Vec<_> = std::iter::from_fn(|| guard.reserve(65_536).ok()).collect();
    assert_eq!(blocks.len() as u64, pool.geometry().max_chunks);
}

/// A domain that stops a thread before a chosen load of a chosen word.
#[derive(Clone, Copy, Debug, Default)]
struct HaltingAtLoad;

static WORD: AtomicUsize = AtomicUsize::new(0);
static LOADS: AtomicU8 = AtomicU8::new(RUN);
const RUN: u8 = 0;
const ARMED: u8 = 1;
const HALTED: u8 = 2;
const GO_ON: u8 = 3;

thread_local! {
    /// Loads of the word that this thread makes before it stops.
    static LOADS_LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

impl Domain for HaltingAtLoad {
    fn needs_write_back() -> bool {
        false
    }

    unsafe fn write_back(_: *const u8) {}

    fn fence() {}

    fn observe_load(address: usize, _: usize) {
        let Some(left) = LOADS_LEFT.get() else { return };
        if address == WORD.load(Ordering::SeqCst) {
            LOADS_LEFT.set(left.checked_sub(1));
            if left == 0 {
                LOADS.store(HALTED, Ordering::SeqCst);
                while LOADS.load(Ordering::SeqCst) != GO_ON {
                    std::thread::yield_now();
                }
            }
        }
    }
}

/// A thread prepares a chunk for another size. For that, it takes the chunk off its old stack, with
/// all chunks above. Wherever it stalls, the room of these slabs serves other threads.
#[test]
fn slabs_that_a_stopped_thread_has_in_its_hands_are_found_again() {
    const BYTES: u64 = 32_000;
    for loads in 0.. {
        let pool = Pool::<HaltingAtLoad>::anonymous(&options(1)).unwrap();
        let chunk = |index| pool.geometry().chunk_of(named(&pool, index)).unwrap();
        for index in 0..6 {
            give(&pool, index, BYTES, 1);
        }
        let (emptied, above) = (chunk(0), chunk(2));
        assert!(emptied == chunk(1) && above == chunk(3) && emptied != above);
        for index in [0, 2, 1] {
            free(&pool, index);
            collect_often(&pool);
        }
        let word_off = pool.geometry().chunk_word_off(above);
        // SAFETY: only the address is used.
        let word = unsafe { pool.bytes(word_off, 8) }.as_ptr() as usize;
        WORD.store(word, Ordering::SeqCst);
        LOADS.store(RUN, Ordering::SeqCst);
        let (found, halted) = std::thread::scope(|scope| {
            let pool = &pool;
            let takes = scope.spawn(move || {
                LOADS_LEFT.set(Some(loads));
                let guard = pool.pin().unwrap();
                let reserved = guard.reserve(16_000).is_ok();
                LOADS_LEFT.set(None);
                let done =
                    LOADS.compare_exchange(RUN, ARMED, Ordering::SeqCst, Ordering::SeqCst).is_ok();
                while done && LOADS.load(Ordering::SeqCst) != GO_ON {
                    std::thread::yield_now();
                }
                reserved
            });
            while LOADS.load(Ordering::SeqCst) == RUN {
                std::thread::yield_now();
            }
            let halted = LOADS.load(Ordering::SeqCst) == HALTED;
            let found = {
                let guard = pool.pin().unwrap();
                let blocks: Vec<_> = std::iter::from_fn(|| guard.reserve(BYTES).ok()).collect();
                blocks.len() as u64
            };
            LOADS.store(GO_ON, Ordering::SeqCst);
            takes.join().unwrap();
            (found, halted)
        });
        // All but the thread's chunk, the blocks that `above` still holds, and the full slab.
        let least = 2 * (pool.geometry().max_chunks - 3) + 1;
        assert!(found >= least, "stopped before load {loads}: {found} of {least}");
        if !halted {
            assert!(loads > 0);
            break;
        }
    }
}
