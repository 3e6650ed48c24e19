//! Several processes on one pool. A second handle on the file stands for a second process, since
//! locks belong to the open file description. Real processes: `crates/pando/tests/shared`.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier, Mutex};

use pando_pmem::layout::{FIRST_PARTICIPANTS, MAX_PROCESSES, PARTICIPANTS_OFF};
use pando_pmem::testing::{CutShort, between, run_until_stopped, with_few_slots};
use pando_pmem::{Adr, Domain, Error, OpenPool, Pool, Process};

use crate::common::{
    create, folder_and_pool, free, give, holds, kill, named, open, root, share, shared,
};

/// The slots in which operations were ended.
fn recover<D: Domain>(pool: &Pool<D>) -> (usize, Vec<usize>) {
    let mut slots = Vec::new();
    let processes = pool.recover_dead(|_, slot| slots.push(slot)).unwrap();
    (processes, slots)
}

#[test]
fn processes_share_a_pool_and_the_last_one_closes_it() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Process>(&path, 16));
    let first = shared::<Process>(&path);
    let second = shared::<Process>(&path);
    assert_eq!(first.generation(), second.generation());
    assert!(!first.has_joined() && second.has_joined());
    let numbers: Vec<_> = second.processes().unwrap().iter().map(|seen| seen.number).collect();
    assert_eq!(numbers, [0, 1]);

    // Both see the blocks of the other, and free them.
    for index in 0..200 {
        let (giver, taker) = if index % 2 == 0 { (&first, &second) } else { (&second, &first) };
        let off = give(giver, index, 700, index as u8);
        assert!(holds(taker, off, 700, index as u8));
        free(taker, index);
    }
    // Their threads have different slots.
    let (one, two) = (first.pin().unwrap(), second.pin().unwrap());
    assert_ne!(one.slot(), two.slot());
    assert!(first.is_own_slot(one.slot()) && !first.is_own_slot(two.slot()));
    drop((one, two));

    let off = give(&first, 0, 64, 7);
    drop(first);
    assert!(holds(&second, off, 64, 7));
    drop(second);
    let alone = open::<Process>(&path);
    assert!(alone.was_clean());
    assert!(holds(&alone, off, 64, 7));
}

#[test]
fn a_process_alone_and_processes_that_share_exclude_each_other() {
    let (_folder, path) = folder_and_pool();
    let alone = create::<Process>(&path, 4);
    assert!(matches!(share::<Process>(&path), Err(Error::AlreadyOpen(_))));
    drop(alone);
    let first = shared::<Process>(&path);
    let second = shared::<Process>(&path);
    drop(first);
    let refused = Pool::<Process>::open(&path, &OpenPool::default());
    assert!(matches!(refused, Err(Error::AlreadyOpen(_))));
    drop(second);
    drop(open::<Process>(&path));
}

#[test]
fn a_domain_with_write_backs_is_not_shared() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Adr>(&path, 4));
    assert!(matches!(share::<Adr>(&path), Err(Error::NotShareable { .. })));
}

#[test]
fn no_more_processes_than_the_table_has() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Process>(&path, 1));
    let pools: Vec<_> = (0..MAX_PROCESSES).map(|_| shared::<Process>(&path)).collect();
    let refused = share::<Process>(&path);
    assert!(matches!(refused, Err(Error::TooManyProcesses { max: 256, .. })));
    drop(pools);
    drop(open::<Process>(&path));
}

/// The second process was opened before the pool grew.
#[test]
fn growth_by_one_process_is_seen_by_all() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Process>(&path, 64));
    let (first, second) = (shared::<Process>(&path), shared::<Process>(&path));
    for index in 0..20 {
        let off = give(&first, index, 1 << 20, index as u8);
        assert!(holds(&second, off, 1 << 20, index as u8));
    }
    (0..20).for_each(|index| free(&second, index));
    let guard = second.pin().unwrap();
    assert!(guard.damage().is_none());
    drop(guard);
    // Damage is damage all the same.
    let guard = second.pin().unwrap();
    let beyond = second.size_bytes();
    assert_eq!(second.word(beyond).load(Ordering::Acquire), 0);
    assert_eq!(second.word(beyond - 4).load(Ordering::Acquire), 0);
    assert!(guard.damage().is_some());
}

type Tested = CutShort<false>;

/// A process whose only thread stopped inside an operation, pinned.
fn stopped_process(path: &Path) -> Arc<Pool<Tested>> {
    let pool = shared::<Tested>(path);
    let stops = pool.clone();
    // Two writes prepare the slot.
    let is_done = run_until_stopped(3, move || {
        let guard = stops.pin().unwrap();
        stops.word(root(7)).store(1, Ordering::Release);
        stops.word(root(7)).store(2, Ordering::Release);
        drop(guard);
    });
    assert!(!is_done);
    assert_eq!(named(&pool, 7), 1);
    pool
}

#[test]
fn a_dead_process_holds_nothing_back_when_it_is_recovered() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Tested>(&path, 16));
    let live = shared::<Tested>(&path);
    let other = stopped_process(&path);
    let advance = || {
        let before = live.epoch();
        (0..4).for_each(|_| live.pin().unwrap().collect());
        live.epoch() - before
    };
    assert!(advance() <= 1, "the stopped thread is pinned");

    // A stopped process is not dead.
    assert_eq!(recover(&live), (0, vec![]));
    let seen = live.processes().unwrap();
    let stopped = seen.iter().find(|seen| seen.number == 1).unwrap();
    assert!(stopped.is_alive && stopped.holds_epoch.is_some() && stopped.pinned == 1);
    assert!(advance() <= 1);

    kill(other);
    let seen = live.processes().unwrap();
    assert!(seen.iter().any(|seen| seen.number == 1 && !seen.is_alive));
    let (processes, slots) = recover(&live);
    assert_eq!((processes, slots.len()), (1, 1));
    assert!(advance() >= 3);
    assert_eq!(recover(&live), (0, vec![]));
    assert_eq!(live.processes().unwrap().len(), 1);

    // The next process gets the number and the slot.
    let next = shared::<Tested>(&path);
    assert_eq!(next.processes().unwrap()[1].number, 1);
    assert_eq!(next.pin().unwrap().slot(), slots[0]);
}

/// A number is not given to a new process while its slots wait for their recovery.
#[test]
fn a_new_process_does_not_take_over_the_slots_of_a_dead_one() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Tested>(&path, 16));
    let live = shared::<Tested>(&path);
    kill(stopped_process(&path));
    let next = shared::<Tested>(&path);
    assert_eq!(next.processes().unwrap().len(), 3);
    let guard = next.pin().unwrap();
    assert!(!recover(&live).1.contains(&guard.slot()));
}

/// All processes were killed, and one of the first slots is pinned for ever.
#[test]
fn after_the_death_of_all_the_next_one_recovers_the_whole_pool() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Tested>(&path, 16));
    let one = shared::<Tested>(&path);
    let kept = give(&one, 3, 900, 9);
    let two = stopped_process(&path);
    let generation = two.generation();
    kill(one);
    kill(two);
    let next = shared::<Tested>(&path);
    assert!(!next.has_joined());
    assert_eq!(next.generation(), generation + 1);
    assert_eq!(named(&next, 3), kept);
    assert_eq!(next.processes().unwrap().len(), 1);
    assert_eq!(next.processes().unwrap()[0].slots, 0);
}

/// Threads of several handles take slots at once.
#[test]
fn no_slot_has_two_processes() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Process>(&path, 64));
    let pools: Vec<_> = (0..4).map(|_| shared::<Process>(&path)).collect();
    let barrier = std::sync::Barrier::new(4 * 60);
    let slots: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = pools
            .iter()
            .flat_map(|pool| (0..60).map(move |_| pool))
            .map(|pool| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let guard = pool.pin().unwrap();
                    assert!(pool.is_own_slot(guard.slot()));
                    barrier.wait();
                    guard.slot()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let distinct: std::collections::BTreeSet<_> = slots.iter().collect();
    assert_eq!(distinct.len(), slots.len());
}

/// Traps: a reader that enters while the first process still repairs.
#[test]
fn no_process_enters_before_the_first_one_has_recovered() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Process>(&path, 4));
    let options = OpenPool { shared: true, ..OpenPool::default() };
    // Not admitted yet: the layer above recovers.
    let first = Pool::<Process>::open(&path, &options).unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| shared::<Process>(&path));
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(!second.is_finished());
        assert_eq!(first.processes().unwrap().len(), 1);
        first.admit_others().unwrap();
        assert!(second.join().unwrap().has_joined());
    });
}

/// Traps: a process that stops inside its opening; the others get an error, and do not wait.
#[test]
fn a_process_that_stops_inside_its_opening_makes_others_give_up() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Process>(&path, 4));
    let options = OpenPool { shared: true, ..OpenPool::default() };
    let first = Pool::<Process>::open(&path, &options).unwrap();
    let refused = share::<Process>(&path);
    assert!(matches!(refused, Err(Error::Entering { waited_ms: 5000.., .. })));
    first.admit_others().unwrap();
    assert!(share::<Process>(&path).unwrap().has_joined());
}

/// Kills a process whose only thread is pinned, and returns the slot.
fn kill_pinned<D: Domain>(pool: Arc<Pool<D>>) -> usize {
    let guard = pool.pin().unwrap();
    let slot = guard.slot();
    std::mem::forget(guard);
    kill(pool);
    slot
}

/// Traps: slots that are used up by killed workers.
#[test]
fn killed_processes_use_up_neither_numbers_nor_slots() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Process>(&path, 4));
    let live = shared::<Process>(&path);
    for _ in 0..2 * MAX_PROCESSES {
        kill_pinned(shared::<Process>(&path));
        assert_eq!(recover(&live).0, 1);
    }
    assert_eq!(live.processes().unwrap().len(), 1);
    assert!(live.participants_high() <= 4, "{}", live.participants_high());
}

const FORKS: &str = "PANDO_FORKS_WITH_POOL";
const FORKS_ALONE: &str = "PANDO_FORKS_WITH_A_POOL_ALONE";

/// The `main` of a process that forks a child while it shares a pool, or has one alone. The child
/// outlives it.
#[test]
fn forks_a_child_if_it_is_told_to() {
    let of = std::env::var_os;
    let pool = match (of(FORKS), of(FORKS_ALONE)) {
        (Some(path), _) => shared::<Process>(Path::new(&path)),
        (_, Some(path)) => open::<Process>(Path::new(&path)),
        (None, None) => return,
    };
    // SAFETY: the child only writes and sleeps, and ends by `_exit`.
    match unsafe { libc::fork() } {
        // SAFETY: as above.
        0 => unsafe {
            // Behind the handlers of the fork, which give the lock up.
            libc::write(1, AWAKE.as_ptr().cast(), AWAKE.len());
            libc::sleep(60);
            libc::_exit(0);
        },
        child => println!("child {child}"),
    }
    std::thread::sleep(std::time::Duration::from_secs(60));
    drop(pool);
}

/// What the child writes.
const AWAKE: &str = "awake\n";

/// Kills a process that has forked a child, runs `look`, and kills the child.
fn with_a_child_that_outlives_its_parent(variable: &str, path: &Path, look: impl FnOnce()) {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::forks_a_child_if_it_is_told_to", "--nocapture"])
        .env(variable, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Lines of the two processes may be mixed.
    let (mut child, mut is_awake) = (None, false);
    for line in BufReader::new(parent.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        is_awake |= line.contains(AWAKE.trim());
        let number = line
            .split_once("child ")
            .map(|(_, number)| number.chars().take_while(char::is_ascii_digit).collect::<String>());
        child = child.or_else(|| number?.parse::<i32>().ok());
        if child.is_some() && is_awake {
            break;
        }
    }
    parent.kill().unwrap();
    parent.wait().unwrap();
    // SAFETY: signal zero only asks whether the process is there.
    assert_eq!(unsafe { libc::kill(child.unwrap(), 0) }, 0, "the child is gone");
    look();
    // SAFETY: the child is a process of this test.
    unsafe { libc::kill(child.unwrap(), libc::SIGKILL) };
}

/// Traps: a forked child that keeps the lock of its parent alive.
#[test]
fn a_forked_child_does_not_keep_its_dead_parents_locks() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Process>(&path, 4));
    let live = shared::<Process>(&path);
    with_a_child_that_outlives_its_parent(FORKS, &path, || assert_eq!(recover(&live).0, 1));
    drop(live);
    // The same if the parent has the pool alone.
    with_a_child_that_outlives_its_parent(FORKS_ALONE, &path, || {
        assert!(!open::<Process>(&path).was_clean());
    });
}

/// One process only allocates, and another one only frees: the pool does not grow for ever.
#[test]
fn room_that_one_process_frees_serves_another_before_the_pool_grows() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Process>(&path, 256));
    let (gives, frees) = (shared::<Process>(&path), shared::<Process>(&path));
    // Of 500 blocks, one in fifty stays.
    let mut chunks = Vec::new();
    for round in 0..300_u64 {
        let bytes = 100 + round % 7 * 300;
        for index in 0..500 {
            if index % 50 != 0 || round == 0 {
                give(&gives, index, bytes, 1);
            }
        }
        for index in (0..500).filter(|index| index % 50 != 0) {
            free(&frees, index);
        }
        (0..4).for_each(|_| frees.reclaim().unwrap());
        chunks.push(frees.usage().unwrap().chunks);
    }
    assert!(chunks[299] <= 2 * chunks[20], "{chunks:?}");
}

/// A thread keeps an empty slab for its size. Another process dissolves it, and uses the chunk in
/// another way, with content that looks like an empty slab.
#[test]
fn a_slab_that_another_process_has_dissolved_is_not_dissolved_again() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Process>(&path, 1));
    let (keeps, other) = (shared::<Process>(&path), shared::<Process>(&path));
    let off = give(&keeps, 0, 4000, 1);
    free(&other, 0);
    (0..9).for_each(|_| other.reclaim().unwrap());
    // All chunks become spans of zeros.
    let mut spans = Vec::new();
    while let Ok(block) = other.pin().unwrap().reserve(65_536) {
        let span = block.off();
        drop(block);
        let index = 1 + spans.len() as u64;
        assert_eq!(give(&other, index, 65_536, 0), span);
        spans.push(span);
    }
    assert!(spans.iter().any(|span| (*span..span + 65_536).contains(&off)), "{off:#x}");
    // The pool is full for the first process: it looks for slabs to dissolve.
    assert!(keeps.pin().unwrap().reserve(65_536).is_err());
    for span in spans {
        assert_eq!(keeps.active_block(span), Some(65_536));
        assert!(holds(&other, span, 65_536, 0), "{span:#x}");
    }
}

/// A pool whose table has two slots, opened by two processes.
fn two_processes_with_two_slots(path: &Path) -> [Arc<Pool<Tested>>; 2] {
    drop(with_few_slots(2, || create::<Tested>(path, 4)));
    [(); 2].map(|()| with_few_slots(2, || shared::<Tested>(path)))
}

fn in_a_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// Pins a slot for ever.
fn pin_in_a_thread<D: Domain>(pool: &Pool<D>) {
    in_a_thread(|| std::mem::forget(pool.pin().unwrap()));
}

/// A slot that a dead process had is taken by one thread, and looked at by another one meanwhile.
#[test]
fn a_slot_is_not_taken_before_its_new_process_has_prepared_it() {
    for access in 0.. {
        let (_folder, path) = folder_and_pool();
        let [live, dies] = two_processes_with_two_slots(&path);
        let kept = live.pin().unwrap();
        // Now this process has drawn the numbers of all slots.
        assert!(!live.is_own_slot(kill_pinned(dies)));
        // The table grows for the first of these; then all slots of this process are pinned.
        (0..2).for_each(|_| pin_in_a_thread(&live));
        assert_eq!(live.participant_slots(), 4);
        recover(&live);
        let takes = live.clone();
        let slots = Arc::new(Mutex::new(Vec::new()));
        let seen = slots.clone();
        let take = move || {
            let guard = takes.pin().unwrap();
            seen.lock().unwrap().push(guard.slot());
            // It stays pinned.
            std::mem::forget(guard);
        };
        let has_run = in_a_thread(|| {
            between(access, take, || {
                let guard = live.pin().unwrap();
                slots.lock().unwrap().push(guard.slot());
                std::mem::forget(guard);
            })
        });
        drop(kept);
        let slots = slots.lock().unwrap();
        assert!(!has_run || slots[0] != slots[1], "before access {access}: {slots:?}");
        if !has_run {
            assert!(access > 4, "{access}");
            return;
        }
    }
}

/// A thread finds a slot that a dead process had prepared; then the slot is given to the thread's
/// process, and another thread stops while it prepares the slot.
#[test]
fn a_slot_that_was_prepared_by_its_former_process_is_not_taken() {
    for stopped_at in 0..2 {
        for access in 0.. {
            let (_folder, path) = folder_and_pool();
            let [live, dies] = two_processes_with_two_slots(&path);
            let kept = live.pin().unwrap();
            let dead_slot = kill_pinned(dies);
            // The table grows for the first of these; then all slots of this process are pinned.
            (0..2).for_each(|_| pin_in_a_thread(&live));
            let recovers = live.clone();
            let give_the_slot = move || {
                drop(recover(&recovers));
                // The recovery has pinned a slot of a larger table: no other slot is left.
                (0..4).for_each(|_| pin_in_a_thread(&recovers));
                let prepares = recovers.clone();
                run_until_stopped(stopped_at, move || std::mem::forget(prepares.pin().unwrap()));
            };
            let has_run = in_a_thread(|| {
                between(access, give_the_slot, || {
                    let guard = live.pin().unwrap();
                    let readied = live.word(PARTICIPANTS_OFF + 128 * dead_slot as u64);
                    let is_prepared = readied.load(Ordering::Acquire) != 0;
                    assert!(
                        guard.slot() != dead_slot || is_prepared,
                        "before access {access}, stopped before write {stopped_at}"
                    );
                    std::mem::forget(guard);
                })
            });
            drop(kept);
            if !has_run {
                break;
            }
        }
    }
}

/// A process keeps its slots, and a thread that is not pinned needs none: other processes can have
/// them.
#[test]
fn idle_threads_of_a_process_do_not_take_all_slots() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Process>(&path, 4));
    let pool = shared::<Process>(&path);
    let all = Barrier::new(300);
    std::thread::scope(|scope| {
        for _ in 0..300 {
            scope.spawn(|| {
                drop(pool.pin().unwrap());
                all.wait();
            });
        }
    });
    let slots = pool.processes().unwrap()[0].slots;
    assert!(slots <= FIRST_PARTICIPANTS + 8, "{slots}");
}
