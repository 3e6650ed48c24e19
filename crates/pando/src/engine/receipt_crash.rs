//! Receipts of batches whose thread stops, whose process is killed, or whose machine goes down.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pando_device::Operation;
use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;
use pando_pmem::testing::{Paused, folder};
use pando_pmem::{CreateOptions, LogName, OpenPool};

use super::log_directory::LogDirectory;
use super::pooled::Pooled;
use super::rebuild_kill::{Killed, lost};
use crate::{
    Acknowledge, Error, Map, MapOptions, Outcome, Pool, PoolOptions, SessionId, WriteBatch,
};

const ORDER: Ordering = Ordering::SeqCst;

/// Creates a pool; its log, if it has one, has these files.
fn create(path: &Path, log: Option<&Simulated>, options: &PoolOptions) -> Pool {
    let create = CreateOptions { max_bytes: 1 << 26, ..CreateOptions::default() };
    let name = log.map(|_| LogName { id: 7, path: path.with_extension("log") });
    let pool = pando_pmem::Pool::<Killed>::prepare(path, &create, name);
    let pool = pool.and_then(|new| new.publish(false)).expect("a pool");
    let mut directory = log.map(|files| directory(path, files));
    let engine = Pooled::start(|| Ok(pool), || Ok(()), false, None, &mut directory);
    Pool::from_engine(engine.expect("starts"), options).expect("a pool")
}

fn directory(path: &Path, files: &Simulated) -> LogDirectory {
    LogDirectory::of_files(Arc::new(files.clone()), &path.with_extension("log"))
}

fn open(path: &Path) -> Pool {
    let open =
        || pando_pmem::Pool::<Killed>::open(path, &OpenPool::default()).map_err(Error::of_pool);
    let engine = Pooled::start(open, || Ok(()), false, None, &mut None).expect("opens");
    Pool::from_engine(engine, &PoolOptions::new()).expect("a pool")
}

fn trees(pool: &Pool) -> Map {
    pool.map_with("trees", &MapOptions::new().transactional(true)).expect("a map")
}

/// Inserts a key, replaces one and removes one.
fn batch_of(pool: &Pool) -> WriteBatch {
    let map = trees(pool);
    let batch = WriteBatch::new().require(&map, b"new", None).put(&map, b"new", b"1");
    batch.put(&map, b"old", b"1").remove(&map, b"removed")
}

/// The outcome of sequence 1. The records agree with it, and it stays when the batch is sent again.
fn asked(pool: &Pool, id: SessionId, place: &str) -> Outcome {
    let session = pool.session(id).expect("it is known");
    let outcome = session.outcome(1).unwrap_or_else(|error| panic!("{place}: {error}"));
    let (map, batch) = (trees(pool), batch_of(pool));
    let applied = Outcome::Applied { digest: batch.digest() };
    let expected: &[(&[u8], &[u8])] = match outcome == applied {
        true => &[(b"new", b"1"), (b"old", b"1")],
        false => &[(b"old", b"0"), (b"removed", b"0")],
    };
    let found: Vec<_> = map.range(..).map(|record| record.expect("read")).collect();
    let found: Vec<_> = found.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    assert_eq!(found, expected, "{place}: {outcome:?}");
    match session.apply(1, &batch) {
        Ok(again) => assert_eq!((again, outcome), (applied, applied), "{place}"),
        Err(Error::SequenceUsed { sequence: 1 }) => {
            assert_eq!(outcome, Outcome::NotApplied, "{place}")
        }
        Err(error) => panic!("{place}: {error}"),
    }
    outcome
}

/// *Not applied* is final: the thread that goes on late applies nothing, and neither does a kill.
#[test]
fn an_outcome_that_is_asked_for_settles_a_batch_whose_thread_has_stopped_at_any_step() {
    let folder = folder();
    let (path, copy) = (folder.path().join("pool"), folder.path().join("copy"));
    let pool = create(&path, None, &PoolOptions::new());
    trees(&pool).upsert_many(&[(b"old", b"0"), (&b"removed"[..], b"0")]).expect("written");
    let id = pool.new_session().expect("a session").id();
    pool.close().expect("closed");
    let image = std::fs::read(&path).expect("read");

    let (mut applied, mut closed) = (0, 0);
    for writes in 0.. {
        std::fs::write(&path, &image).expect("written");
        let pool = open(&path);
        let (session, batch) = (pool.session(id).expect("it is known"), batch_of(&pool));
        let late = Paused::start(writes, move || session.apply(1, &batch));
        let has_ended = late.is_done();
        let place = format!("stopped before write {writes}");
        // As a kill before the question leaves the pool, and one behind it.
        std::fs::copy(&path, &copy).expect("copied");
        asked(&open(&copy), id, &format!("{place}, killed"));
        let outcome = asked(&pool, id, &place);
        std::fs::copy(&path, &copy).expect("copied");
        assert_eq!(asked(&open(&copy), id, &format!("{place}, killed later")), outcome, "{place}");
        match late.resume() {
            Ok(told) => assert_eq!(told, outcome, "{place}"),
            Err(Error::SequenceUsed { sequence: 1 }) => {
                assert_eq!(outcome, Outcome::NotApplied, "{place}")
            }
            Err(error) => panic!("{place}: {error}"),
        }
        assert_eq!(asked(&pool, id, &format!("{place}, went on")), outcome, "{place}");
        match outcome {
            Outcome::NotApplied => closed += 1,
            _ => applied += 1,
        }
        if has_ended {
            break;
        }
    }
    println!("{applied} applied, {closed} closed");
    assert!(applied > 5 && closed > 5, "{applied} applied, {closed} closed");
}

/// What a client was told, and whether a power cut may undo it.
#[derive(Clone, Debug, Default)]
struct Told {
    outcomes: BTreeMap<u64, Outcome>,
    /// Those that no power cut undoes.
    durable: BTreeMap<u64, Outcome>,
}

/// A batch that can be applied once, and whose condition holds or does not.
fn batch_numbered(map: &Map, sequence: u64) -> WriteBatch {
    let key = sequence.to_be_bytes();
    let batch = WriteBatch::new().require(map, key, None).put(map, key, [7; 300]);
    match sequence % 5 {
        0 => batch.require(map, b"missing", Some(b"1")),
        _ => batch.put(map, b"newest", key),
    }
}

/// Cuts the power before the operation of that number, of those that write. The directory as it is
/// left, with what the client was told before.
fn cut_at(
    files: &Simulated,
    number: u64,
    mut random: Random,
    told: &Arc<Mutex<Told>>,
) -> Arc<Mutex<Option<(Simulated, Told)>>> {
    let cut = Arc::new(Mutex::new(None));
    let (place, watched, told) = (cut.clone(), files.clone(), told.clone());
    let kept = *random.pick(&[Kept::Nothing, Kept::Some, Kept::All]);
    let (operations, random) = (AtomicU64::new(0), Mutex::new(random));
    files.on_operation(move |operation, _| {
        let reads = [Operation::Open, Operation::List, Operation::Read];
        if !reads.contains(&operation) && operations.fetch_add(1, ORDER) == number {
            // Before the cut: what is told after it counts for nothing.
            let told = told.lock().expect("a lock").clone();
            let left = watched.cut_power(kept, &mut random.lock().expect("a lock"));
            *place.lock().expect("a lock") = Some((left, told));
        }
        Ok(())
    });
    cut
}

/// Rounds of each test of power cuts. In each the log makes a segment of 64 MiB in memory.
const ROUNDS: u64 = 8;
/// The power is cut before one of the first operations of the disk in a round.
const OPERATIONS: u64 = 16;

/// The outcomes stay, batches are applied once, and those that are lost are the newest ones.
fn check_receipts_over_power_cuts(acknowledge: Acknowledge, seed: u64) {
    let mut random = Random::new(seed);
    let folder = folder();
    let path = folder.path().join("pool");
    let options = PoolOptions::new().acknowledge(acknowledge);
    let mut files = Simulated::new();
    let mut pool = create(&path, Some(&files), &options);
    trees(&pool);
    let id = pool.new_session().expect("a session").id();
    pool.sync().expect("synced");
    let (mut next, mut outcomes, mut undone) = (1, BTreeMap::new(), 0);
    for round in 0..ROUNDS {
        let place = format!("seed {seed}, round {round}");
        let told = Arc::new(Mutex::new(Told { durable: outcomes, ..Told::default() }));
        let cut = cut_at(&files, random.below(OPERATIONS), Random::new(random.draw()), &told);
        let (map, session) = (trees(&pool), pool.session(id).expect("it is known"));
        let first = next;
        let (left, told) = loop {
            if let Some(cut) = cut.lock().expect("a lock").take() {
                break cut;
            }
            // A receipt of this round is kept until the round has been checked.
            assert!(next < first + 100, "{place}: the disk is never written");
            let batch = batch_numbered(&map, next);
            let outcome = match next % 3 {
                0 => session.outcome(next),
                _ => session.apply(next, &batch),
            };
            let outcome = outcome.expect("an outcome");
            // In the end each, however slow the disk is beside this thread.
            let is_due = random.one_in(4) || next > first + 40;
            let is_synced = is_due && pool.sync().is_ok();
            let mut told = told.lock().expect("a lock");
            told.outcomes.insert(next, outcome);
            if outcome == Outcome::NotApplied || acknowledge == Acknowledge::Synced {
                told.durable.insert(next, outcome);
            }
            if is_synced {
                let Told { outcomes, durable } = &mut *told;
                durable.append(outcomes);
            }
            next += 1;
        };
        drop((map, session));
        drop(pool);
        std::fs::remove_file(&path).expect("lost");
        let lost = lost(&path);
        let rebuilt = Pooled::<Killed>::rebuild(&lost, directory(&path, &left), None);
        pool = Pool::from_engine(rebuilt.expect("rebuilt"), &options).expect("a pool");
        files = left;

        let (map, session) = (trees(&pool), pool.session(id).expect("it is known"));
        let is_present = |sequence: u64| map.contains_key(sequence.to_be_bytes()).expect("read");
        // Older receipts are not kept.
        for (&sequence, &outcome) in told.durable.range(next.saturating_sub(128)..) {
            let found = session.outcome(sequence);
            assert_eq!(found.expect("an outcome"), outcome, "{place}: sequence {sequence}");
        }
        // A batch is lost only if all later ones are.
        let applied = (first..next).filter(|sequence| sequence % 3 != 0 && sequence % 5 != 0);
        let present: Vec<_> = applied.map(is_present).collect();
        assert!(present.is_sorted_by(|left, right| left >= right), "{place}: {present:?}");
        undone += present.iter().filter(|is_present| !**is_present).count();
        // The client does not know the outcome of the others: it asks, or sends them again.
        for sequence in first..next {
            let batch = batch_numbered(&map, sequence);
            let was_present = is_present(sequence);
            let outcome = match random.one_in(2) {
                true => session.outcome(sequence),
                false => session.apply(sequence, &batch),
            };
            match outcome {
                Ok(Outcome::Applied { digest }) => {
                    assert_eq!(digest, batch.digest(), "{place}: sequence {sequence}");
                    assert!(is_present(sequence), "{place}: sequence {sequence}");
                }
                Ok(Outcome::NotApplied) | Err(Error::SequenceUsed { .. }) => {
                    assert!(!was_present && !is_present(sequence), "{place}: sequence {sequence}");
                }
                // Of a batch that is applied, this would be a second time.
                Ok(Outcome::ConditionFailed { .. }) => {
                    assert_eq!(sequence % 5, 0, "{place}: {sequence} was applied twice");
                }
                Err(error) => panic!("{place}: sequence {sequence}: {error}"),
            }
        }
        pool.sync().expect("synced");
        outcomes = told.durable;
        for sequence in first..next {
            outcomes.insert(sequence, session.outcome(sequence).expect("an outcome"));
        }
    }
    println!("{acknowledge:?}: {next} sequences, of which {undone} were undone");
    assert!(undone > 0, "{acknowledge:?}: no batch was undone");
}

#[test]
fn what_a_client_was_told_of_buffered_batches_holds_after_each_power_cut() {
    check_receipts_over_power_cuts(Acknowledge::Buffered, 1);
}

#[test]
fn what_a_client_was_told_of_synced_batches_holds_after_each_power_cut() {
    check_receipts_over_power_cuts(Acknowledge::Synced, 2);
}
