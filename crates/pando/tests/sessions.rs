//! Batches and receipts through the public API, also after `kill -9`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use pando::{Error, Map, MapOptions, Outcome, Pool, PoolOptions, Session, SessionId, WriteBatch};

fn options() -> MapOptions {
    MapOptions::new().transactional(true)
}

fn volatile() -> (Pool, Map) {
    let pool = Pool::volatile(&PoolOptions::new()).expect("memory");
    let map = pool.map_with("trees", &options()).expect("a map");
    (pool, map)
}

fn put(map: &Map, key: &[u8], value: &[u8]) -> WriteBatch {
    WriteBatch::new().put(map, key, value)
}

#[test]
fn a_batch_is_one_commit_and_its_conditions_are_looked_at_before() {
    let (pool, map) = volatile();
    let other = pool.map_with("other", &options().index("nbtree")).expect("a map");
    map.insert(b"old", b"0").expect("inserts");
    let batch = WriteBatch::new()
        .put(&map, b"k", b"1")
        .require(&map, b"k", None)
        .put(&other, b"k", b"2")
        .put(&map, b"k", b"3")
        .remove(&map, b"old")
        .remove(&other, b"none");
    let lsn = pool.write(&batch).expect("commits");
    assert!(lsn > 0);
    assert_eq!(map.get(b"k").expect("reads"), Some(b"3".to_vec()), "the last one counts");
    assert_eq!(other.get(b"k").expect("reads"), Some(b"2".to_vec()));
    assert_eq!(map.get(b"old").expect("reads"), None);
    match pool.write(&batch) {
        Err(Error::ConditionFailed { map, key }) => {
            assert_eq!((map.as_str(), &*key), ("trees", &b"k"[..]))
        }
        other => panic!("{other:?}"),
    }
    let plain = pool.map("plain").expect("a map");
    let refused = pool.write(&put(&plain, b"k", b"1"));
    assert!(matches!(refused, Err(Error::NotTransactional { .. })));
    let refused = pool.write(&put(&map, b"x", b"1").put(&map, [0; 40_000], b""));
    assert!(matches!(refused, Err(Error::KeyTooLong { .. })));
    assert_eq!(map.get(b"x").expect("reads"), None);
    assert_eq!(pool.write(&WriteBatch::new()).expect("nothing"), 0);
    let session = pool.new_session().expect("a session");
    let receipts = pool.open_map("pando.sessions").expect("the map");
    for batch in [put(&receipts, b"k", b"1"), WriteBatch::new().require(&receipts, b"k", None)] {
        assert!(matches!(pool.write(&batch), Err(Error::Option { .. })));
        assert!(matches!(session.apply(1, &batch), Err(Error::Option { .. })));
    }
}

#[test]
fn a_sequence_is_applied_once_and_its_outcome_stays() {
    let (pool, map) = volatile();
    assert!(matches!(pool.session(SessionId::from_str_of(7)), Err(Error::UnknownSession { .. })));
    let session = pool.new_session().expect("a session");
    let first = put(&map, b"a", b"1");
    let applied = Outcome::Applied { digest: first.digest() };
    assert_eq!(session.apply(1, &first).expect("applies"), applied);
    map.upsert(b"a", b"2").expect("writes");
    let again = pool.session(session.id()).expect("it is known");
    assert_eq!(again.apply(1, &first).expect("it is known"), applied);
    assert_eq!(map.get(b"a").expect("reads"), Some(b"2".to_vec()), "not applied again");

    // Another payload under the same sequence.
    let other = put(&map, b"a", b"3");
    assert!(matches!(session.apply(1, &other), Err(Error::SequenceUsed { sequence: 1 })));
    assert_eq!(session.outcome(1).expect("it is known"), applied);

    // A condition that does not hold is an outcome too, and stays one.
    let unmet = put(&map, b"b", b"1").require(&map, b"a", Some(b"1"));
    let conflict = Outcome::ConditionFailed { digest: unmet.digest() };
    assert_eq!(session.apply(2, &unmet).expect("an outcome"), conflict);
    map.upsert(b"a", b"1").expect("writes");
    assert_eq!(session.apply(2, &unmet).expect("an outcome"), conflict);
    assert_eq!(map.get(b"b").expect("reads"), None);

    // Not applied is final.
    assert_eq!(session.outcome(3).expect("closes it"), Outcome::NotApplied);
    assert!(matches!(session.apply(3, &first), Err(Error::SequenceUsed { .. })));
    assert_eq!(session.outcome(3).expect("it is closed"), Outcome::NotApplied);

    session.clone().end().expect("ends");
    assert!(matches!(session.outcome(1), Err(Error::UnknownSession { .. })));
    assert!(matches!(session.apply(4, &first), Err(Error::UnknownSession { .. })));
    assert!(matches!(pool.session(again.id()), Err(Error::UnknownSession { .. })));
    assert!(pool.open_map("pando.sessions").expect("the map").is_empty().expect("counts"));
}

/// A power cut must not open it again.
#[test]
fn not_applied_is_durable_on_return() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = PoolOptions::new().log(folder.path().join("grove.log"));
    let pool = Pool::create(folder.path().join("grove.pool"), &options).expect("creates");
    let session = pool.new_session().expect("a session");
    for _ in 0..2 {
        assert_eq!(session.outcome(1).expect("closes it"), Outcome::NotApplied);
        let log = pool.stat().expect("reads").log.expect("it has a log");
        assert_eq!(log.durable_lsn, log.newest_lsn);
    }
}

/// A receipt that is too old is never taken for "not applied".
#[test]
fn old_and_far_sequences_are_refused() {
    let (pool, map) = volatile();
    let session = pool.new_session().expect("a session");
    let batch = |sequence: u64| put(&map, b"a", &sequence.to_le_bytes());
    let out_of_range = |sequence: u64, allowed: (u64, u64)| {
        for refused in [session.apply(sequence, &batch(sequence)), session.outcome(sequence)] {
            match refused {
                Err(Error::SequenceOutOfRange { first, last, .. }) => {
                    assert_eq!((first, last), allowed)
                }
                other => panic!("{sequence}: {other:?}"),
            }
        }
    };
    out_of_range(0, (1, 128));
    out_of_range(129, (1, 128));
    // In any order, with gaps.
    for sequence in [3, 1, 100, 128, 200, 73] {
        session.apply(sequence, &batch(sequence)).expect("applies");
    }
    out_of_range(72, (73, 328));
    out_of_range(u64::MAX, (73, 328));
    assert!(matches!(session.outcome(100), Ok(Outcome::Applied { .. })));
    for sequence in 201..600 {
        session.apply(sequence, &batch(sequence)).expect("applies");
    }
    out_of_range(471, (472, 727));
    let records = pool.open_map("pando.sessions").expect("the map").len().expect("counts");
    assert_eq!(records, 1 + 128, "a head, and the receipts that are kept");
}

trait FromNumber {
    fn from_str_of(number: u8) -> Self;
}

impl FromNumber for SessionId {
    fn from_str_of(number: u8) -> Self {
        format!("{number:032x}").parse().expect("a number")
    }
}

/// Threads send the same sequences, and ask for them. Each is applied once, or is closed.
#[test]
fn threads_that_send_the_same_sequences_apply_each_once() {
    const SEQUENCES: u64 = 400;
    const THREADS: u64 = 3;
    let (pool, map) = volatile();
    let id = pool.new_session().expect("a session").id();
    let start = Barrier::new(THREADS as usize);
    let (pool_of, map_of, start) = (&pool, &map, &start);
    let work = move |thread: u64| {
        let session = pool_of.session(id).expect("it is known");
        let mut outcomes = Vec::new();
        for sequence in 1..=SEQUENCES {
            start.wait();
            let key = sequence.to_be_bytes();
            // Applied twice, it would not find the key absent.
            let batch = WriteBatch::new().require(map_of, key, None).put(map_of, key, b"1");
            outcomes.push(match (sequence + thread) % 4 {
                0 => session.outcome(sequence).expect("an outcome"),
                _ => match session.apply(sequence, &batch) {
                    Err(Error::SequenceUsed { .. }) => Outcome::NotApplied,
                    outcome => outcome.expect("an outcome"),
                },
            });
        }
        outcomes
    };
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).collect()
    });
    let mut applied = 0;
    for sequence in 1..=SEQUENCES {
        let of_all: Vec<_> = outcomes.iter().map(|all| all[sequence as usize - 1]).collect();
        assert!(of_all.iter().all(|outcome| *outcome == of_all[0]), "{sequence}: {of_all:?}");
        assert!(
            !matches!(of_all[0], Outcome::ConditionFailed { .. }),
            "{sequence}: it was applied twice"
        );
        let is_applied = matches!(of_all[0], Outcome::Applied { .. });
        let found = map.get(sequence.to_be_bytes()).expect("reads");
        assert_eq!(found.is_some(), is_applied, "{sequence}");
        applied += u64::from(is_applied);
    }
    println!("{applied} of {SEQUENCES} applied");
    assert!(applied > 0);
}

/// Two threads send the same batches of a session, the last one until the session has ended.
#[test]
fn a_session_that_ends_under_threads_leaves_each_batch_applied_once_or_never() {
    const SEQUENCES: u64 = 50;
    let (pool, map) = volatile();
    let key_of = |round: u64, sequence: u64| [round, sequence].map(u64::to_be_bytes).concat();
    let is_there = |key: &[u8]| map.get(key).expect("reads").is_some();
    for round in 0..60 {
        let session = pool.new_session().expect("a session");
        let has_ended = AtomicBool::new(false);
        let send = || {
            let is_known = |&number: &u64| {
                let sequence = number.min(SEQUENCES);
                let key = key_of(round, sequence);
                // Applied twice, it would not find the key absent.
                let batch = put(&map, &key, b"1").require(&map, &key, None);
                let is_late = has_ended.load(Ordering::SeqCst);
                match session.apply(sequence, &batch) {
                    Err(Error::UnknownSession { .. }) => false,
                    outcome => {
                        let applied = Outcome::Applied { digest: batch.digest() };
                        assert_eq!(outcome.expect("an outcome"), applied);
                        assert!(!is_late, "round {round}: it has ended, and is known");
                        true
                    }
                }
            };
            SEQUENCES.min((1..).take_while(is_known).count() as u64)
        };
        let told = std::thread::scope(|scope| {
            let threads = [scope.spawn(send), scope.spawn(send)];
            let key = key_of(round, 1 + round % 8);
            while !is_there(&key) && !threads.iter().any(|thread| thread.is_finished()) {
                std::thread::yield_now();
            }
            session.clone().end().expect("ends");
            has_ended.store(true, Ordering::SeqCst);
            threads.map(|thread| thread.join().expect("a thread"))
        });
        let applied = told[0].max(told[1]);
        assert!((1..=applied).all(|sequence| is_there(&key_of(round, sequence))), "{told:?}");
        assert!(!is_there(&key_of(round, applied + 1)), "round {round}: {told:?}");
        assert!(matches!(session.outcome(1), Err(Error::UnknownSession { .. })));
        assert!(pool.open_map("pando.sessions").expect("the map").is_empty().expect("counts"));
    }
}

/// The variable by which this program is the one that is killed: the pool's path.
const CHILD: &str = "PANDO_SESSIONS_CHILD";
/// Sessions of the child, each in a thread of its own.
const SESSIONS: u64 = 3;

fn batch_of(map: &Map, id: SessionId, sequence: u64) -> WriteBatch {
    let key = format!("{id} {sequence}");
    // Several keys, so that a kill may come in between.
    WriteBatch::new().require(map, key.as_bytes(), None).put(map, key.as_bytes(), [7; 100]).put(
        map,
        format!("{id} newest").as_bytes(),
        sequence.to_le_bytes(),
    )
}

/// Applies batches, and says so, until it is killed.
fn child(path: &Path) {
    let pool = Pool::open(path, &PoolOptions::new()).expect("opens");
    let map = pool.map_with("trees", &options()).expect("a map");
    // Ends the line that the test harness has begun.
    println!();
    let work = |session: Session| {
        for sequence in 1.. {
            println!("{} {sequence} sent", session.id());
            let batch = batch_of(&map, session.id(), sequence);
            let outcome = session.apply(sequence, &batch).expect("applies");
            assert_eq!(outcome, Outcome::Applied { digest: batch.digest() });
            println!("{} {sequence} applied", session.id());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..SESSIONS {
            let session = pool.new_session().expect("a session");
            let work = &work;
            scope.spawn(move || work(session));
        }
    });
}

#[test]
fn receipts_and_batches_agree_after_each_kill() {
    if let Some(path) = std::env::var_os(CHILD) {
        child(Path::new(&path));
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("grove.pool");
    drop(Pool::create(&path, &PoolOptions::new()).expect("creates"));
    let mut open = 0;
    for kill in 1..=12_u64 {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["receipts_and_batches_agree_after_each_kill", "--exact", "--nocapture"]);
        command.env(CHILD, &path).stdout(Stdio::piped());
        let mut process = command.spawn().expect("starts");
        let mut lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let mut said: BTreeMap<SessionId, (u64, u64)> = BTreeMap::new();
        let note = |said: &mut BTreeMap<SessionId, (u64, u64)>, line: &str| {
            let mut words = line.split(' ');
            let Some(id) = words.next().and_then(|word| word.parse().ok()) else { return };
            let sequence = words.next().and_then(|word| word.parse().ok()).expect("a sequence");
            let (sent, applied) = said.entry(id).or_default();
            match words.next() {
                Some("sent") => *sent = sequence,
                Some("applied") => *applied = sequence,
                // It was killed in the middle of a line.
                _ => {}
            }
        };
        let mut more = 100 + kill * 37;
        while more > 0 || said.len() < SESSIONS as usize {
            note(&mut said, &lines.next().expect("it goes on").expect("a line"));
            more = more.saturating_sub(1);
        }
        process.kill().expect("kills");
        lines.map_while(Result::ok).for_each(|line| note(&mut said, &line));
        process.wait().expect("ends");

        let pool = Pool::open(&path, &PoolOptions::new()).expect("opens");
        let map = pool.open_map("trees").expect("the map");
        assert_eq!(said.len() as u64, SESSIONS);
        for (&id, &(sent, applied)) in &said {
            let session = pool.session(id).expect("it is known");
            for sequence in applied.saturating_sub(100).max(1)..=applied {
                assert!(
                    matches!(session.outcome(sequence), Ok(Outcome::Applied { .. })),
                    "{sequence}"
                );
            }
            // The one that was sent last, and the one behind it.
            for sequence in applied + 1..=sent + 1 {
                let is_there = || {
                    let key = format!("{id} {sequence}");
                    map.get(key.as_bytes()).expect("reads").is_some()
                };
                let outcome = session.outcome(sequence).expect("an outcome");
                let is_applied = matches!(outcome, Outcome::Applied { .. });
                assert_eq!(is_applied, is_there(), "kill {kill}, {id} {sequence}");
                open += u64::from(!is_applied && sequence <= sent);
                let late = session.apply(sequence, &batch_of(&map, id, sequence));
                match is_applied {
                    true => assert_eq!(late.expect("an outcome"), outcome),
                    false => assert!(matches!(late, Err(Error::SequenceUsed { .. }))),
                }
                assert_eq!(is_applied, is_there(), "kill {kill}, {id} {sequence}, sent again");
            }
            session.end().expect("ends");
        }
        assert!(pool.check().expect("checks").is_consistent());
    }
    println!("{open} sequences were sent and not applied");
}
