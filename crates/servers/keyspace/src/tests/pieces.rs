//! Long strings against a model: with failing writes, abandoned transactions and crashes.

use std::ops::ControlFlow;

use super::*;
use crate::layout::{LONG_ABOVE_BYTES, PIECE_BYTES};

const KEYS: [&[u8]; 2] = [b"one", b"other"];

/// A change of the strings of a model and of a store.
#[derive(Clone, Debug)]
enum Change {
    Put(usize, Vec<u8>),
    Edit(usize, usize, Vec<u8>),
    Append(usize, Vec<u8>),
    Copy(usize),
    Move(usize),
    Remove(usize),
}

type Model = [Option<Vec<u8>>; 2];

fn random_bytes(random: &mut fastrand::Rng) -> Vec<u8> {
    let bytes = match random.u32(..8) {
        0 => random.usize(..20),
        1 => LONG_ABOVE_BYTES - 1 + random.usize(..3),
        2 => PIECE_BYTES * random.usize(1..4),
        3 => random.usize(..90_000),
        _ => random.usize(1..3 * PIECE_BYTES),
    };
    let fill = random.u8(..3);
    let mut value = vec![fill; bytes];
    // Otherwise it is of zeros, or of one other byte, which shows the ends of pieces.
    if random.bool() {
        value.iter_mut().step_by(97).for_each(|byte| *byte = random.u8(..));
    }
    value
}

fn random_change(random: &mut fastrand::Rng) -> Change {
    let key = random.usize(..2);
    let small = |random: &mut fastrand::Rng| vec![random.u8(1..); random.usize(1..4)];
    match random.u32(..16) {
        0..2 => Change::Put(key, random_bytes(random)),
        2..5 => Change::Edit(key, random.usize(..120_000), small(random)),
        5..8 => Change::Edit(key, random.usize(..60_000), random_bytes(random)),
        8..11 => Change::Append(key, small(random)),
        11 => Change::Append(key, random_bytes(random)),
        12 | 13 => Change::Copy(key),
        14 => Change::Move(key),
        _ => Change::Remove(key),
    }
}

fn change_model(model: &mut Model, change: &Change) {
    let mut edit = |key: usize, at: Option<usize>, bytes: &[u8]| {
        let whole = model[key].get_or_insert_default();
        let at = at.unwrap_or(whole.len());
        if whole.len() < at + bytes.len() {
            whole.resize(at + bytes.len(), 0);
        }
        whole[at..at + bytes.len()].copy_from_slice(bytes);
    };
    match change {
        Change::Put(key, bytes) => model[*key] = Some(bytes.clone()),
        Change::Edit(key, at, bytes) if !bytes.is_empty() => edit(*key, Some(*at), bytes),
        Change::Edit(..) => {}
        Change::Append(key, bytes) => edit(*key, None, bytes),
        Change::Copy(from) if model[*from].is_some() => model[1 - from] = model[*from].clone(),
        Change::Move(from) if model[*from].is_some() => model[1 - from] = model[*from].take(),
        Change::Copy(_) | Change::Move(_) => {}
        Change::Remove(key) => model[*key] = None,
    }
}

fn change(transaction: &mut Transaction<'_>, change: &Change) -> Result<()> {
    let is_there = |transaction: &Transaction<'_>, key: usize| {
        transaction.head(0, KEYS[key], |head| head.is_some())
    };
    match change {
        Change::Put(key, bytes) => transaction.put_string(0, KEYS[*key], &Head::string(bytes)),
        Change::Edit(_, _, bytes) if bytes.is_empty() => Ok(()),
        Change::Edit(key, _, bytes) | Change::Append(key, bytes) => {
            let place = |length| match change {
                Change::Edit(_, at, _) => Ok(*at as u64),
                _ => Ok(length),
            };
            let edit = |from: usize, part: &mut [u8]| {
                part.copy_from_slice(&bytes[from..from + part.len()]);
            };
            let renew = |memcached| memcached;
            transaction.edit_string(0, KEYS[*key], bytes.len(), place, renew, edit).map(|_| ())
        }
        Change::Copy(from) | Change::Move(from) => {
            let (from, to) = ((0, KEYS[*from]), (0, KEYS[1 - from]));
            match change {
                _ if !is_there(transaction, usize::from(from.1 == KEYS[1]))? => Ok(()),
                Change::Copy(_) => transaction.copy_head(from, to),
                _ => transaction.move_head(from, to),
            }
        }
        Change::Remove(key) => transaction.remove_head(0, KEYS[*key]).map(|_| ()),
    }
}

fn begin(store: &Store) -> Transaction<'_> {
    let wanted = KEYS.iter().map(|key| Store::stripe_of_key(key)).collect();
    store.begin(store.lock(wanted, Access::Exclusive).expect("locks"), store.clock().now_ms())
}

/// Executes these changes in one transaction.
fn try_all(store: &Store, changes: &[Change]) -> Result<()> {
    let mut transaction = begin(store);
    if changes.len() > 1 {
        transaction.gather_commands();
    }
    changes.iter().try_for_each(|one| change(&mut transaction, one))?;
    transaction.commit()
}

fn found(store: &Store) -> Model {
    KEYS.map(|key| get(store, 0, key))
}

/// The most records of a model's strings: the heads, and all pieces.
fn most_records(model: &Model) -> usize {
    let records = |value: &Vec<u8>| match value.len() {
        ..=LONG_ABOVE_BYTES => 1,
        bytes => 1 + bytes.div_ceil(PIECE_BYTES),
    };
    model.iter().flatten().map(records).sum()
}

#[test]
fn long_strings_are_as_a_model_says_whatever_is_refused_or_given_up() {
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let store = volatile();
        let before = records(&store);
        let mut model = Model::default();
        for step in 0..60 {
            let several = if random.bool() { 1 } else { random.usize(1..5) };
            let changes: Vec<_> = (0..several).map(|_| random_change(&mut random)).collect();
            let mut changed = model.clone();
            changes.iter().for_each(|one| change_model(&mut changed, one));
            let context = || format!("seed {seed}, step {step}: {}", shown(&changes));
            if random.u32(..4) == 0 {
                store.refusals.set(random.u64(..12), random.u64(1..3));
            }
            if several > 1 && random.u32(..4) == 0 {
                // The transaction is abandoned.
                let mut transaction = begin(&store);
                transaction.gather_commands();
                let _ = changes.iter().try_for_each(|one| change(&mut transaction, one));
            } else if try_all(&store, &changes).is_ok() {
                model = changed;
            }
            store.refusals.set(0, 0);
            assert!(found(&store) == model, "{}", context());
            // Reads a part, across pieces.
            for (key, value) in KEYS.iter().zip(&model) {
                let Some(value) = value else { continue };
                let from = random.usize(..=value.len());
                let end = random.usize(from..=value.len());
                let mut part = Vec::new();
                let transaction = begin(&store);
                let visit = |part: &mut Vec<u8>, at: u64, bytes: &[u8]| {
                    assert_eq!(at as usize, from + part.len());
                    part.extend_from_slice(bytes);
                    ControlFlow::Continue(())
                };
                let choose = |_: &mut Vec<u8>, length| {
                    assert_eq!(length, Some(value.len() as u64));
                    Ok(from as u64..end as u64)
                };
                transaction.visit_string(0, key, &mut part, choose, visit).expect("reads");
                assert!(part == value[from..end], "{}", context());
            }
            if step % 8 == 0 {
                sweep_all(&store);
                store.keep_intent_reserve();
                // Bytes that do not count may have records; they are removed with their string.
                assert!(records(&store) <= before + most_records(&model) + 16, "{}", context());
            }
        }
        assert!(try_all(&store, &[Change::Remove(0), Change::Remove(1)]).is_ok());
        sweep_all(&store);
        store.keep_intent_reserve();
        assert_eq!(records(&store), before, "seed {seed}: pieces are left");
    }
}

/// Changes without their bytes.
fn shown(changes: &[Change]) -> String {
    let one = |change: &Change| match change {
        Change::Put(key, bytes) => format!("put {key} {}", bytes.len()),
        Change::Edit(key, at, bytes) => format!("edit {key} {at} {}", bytes.len()),
        Change::Append(key, bytes) => format!("append {key} {}", bytes.len()),
        other => format!("{other:?}"),
    };
    changes.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// From each write on all writes fail, as in a crash; then the store is opened again. Each change
/// has happened as a whole or not at all, and no records of a failed change are left.
#[test]
fn a_crash_amid_a_change_of_a_long_string_leaves_all_or_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let long = || Change::Put(0, vec![b'a'; 50_000]);
    let cases: [(&str, Vec<Change>, Vec<Change>); 8] = [
        ("becomes long", vec![], vec![long()]),
        (
            "grows beyond the bound",
            vec![Change::Put(0, vec![1; 31_990])],
            vec![Change::Append(0, vec![2; 20])],
        ),
        ("appended to", vec![long()], vec![Change::Append(0, vec![b'b'; 20_000])]),
        ("pieces within", vec![long()], vec![Change::Edit(0, 10_000, vec![b'b'; 30_000])]),
        ("pieces within and beyond", vec![long()], vec![Change::Edit(0, 30_000, vec![1; 40_000])]),
        ("far beyond", vec![long()], vec![Change::Edit(0, 150_000, vec![1])]),
        (
            "replaced and copied",
            vec![long()],
            vec![Change::Put(0, vec![b'c'; 40_000]), Change::Copy(0)],
        ),
        (
            "becomes short and moves",
            vec![long()],
            vec![Change::Put(0, b"short".to_vec()), Change::Move(0)],
        ),
    ];
    for (number, (name, before, changes)) in cases.iter().enumerate() {
        let mut model = Model::default();
        before.iter().for_each(|one| change_model(&mut model, one));
        let mut changed = model.clone();
        changes.iter().for_each(|one| change_model(&mut changed, one));
        for made in 0.. {
            let path = folder.path().join(format!("{number} {made}.pool"));
            let store = Store::open(Some(&path), &options()).expect("a store");
            let empty = records(&store);
            before
                .iter()
                .for_each(|one| try_all(&store, std::slice::from_ref(one)).expect("changes"));
            store.refusals.set(made, u64::MAX);
            let tried = try_all(&store, changes);
            let was_cut = store.refusals.refused.load(Ordering::Relaxed) < u64::MAX;
            store.close().expect("closes");

            let store = Store::open(Some(&path), &options()).expect("opens again");
            let is_changed = found(&store) == changed;
            assert!(is_changed || found(&store) == model, "{name}, {made} writes: half of it");
            assert_eq!(is_changed, tried.is_ok(), "{name}, {made} writes");
            // Bytes beyond the length do not come back.
            let beyond = Change::Edit(0, 200_000, vec![9]);
            let mut now = if is_changed { changed.clone() } else { model.clone() };
            change_model(&mut now, &beyond);
            try_all(&store, &[beyond]).expect("changes");
            assert!(found(&store) == now, "{name}, {made} writes: old bytes are back");
            try_all(&store, &[Change::Remove(0), Change::Remove(1)]).expect("removes");
            sweep_all(&store);
            store.keep_intent_reserve();
            assert_eq!(records(&store), empty, "{name}, {made} writes: pieces are left");
            store.close().expect("closes");
            if !was_cut {
                assert!(made > 2, "{name} takes more than two writes");
                break;
            }
        }
    }
}

/// A draft is garbage for the next process, and not for the sweep of this one.
#[test]
fn the_sweep_spares_what_is_being_written() {
    let store = volatile();
    let before = records(&store);
    let mut transaction = begin(&store);
    let value = vec![b'x'; 100_000];
    transaction.put_string(0, b"one", &Head::string(&value)).expect("puts");
    sweep_all(&store);
    transaction.commit().expect("commits");
    drop(transaction);
    sweep_all(&store);
    assert!(get(&store, 0, b"one") == Some(value.clone()));
    // An abandoned draft is removed.
    let mut transaction = begin(&store);
    transaction.put_string(0, b"other", &Head::string(&value)).expect("puts");
    drop(transaction);
    sweep_all(&store);
    assert_eq!(get(&store, 0, b"other"), None);
    assert_eq!(records(&store), before + 1 + 7);
}

/// A piece that is too long, and a piece that is too short.
#[test]
fn damaged_pieces_are_refused() {
    let store = volatile();
    set(&store, 0, b"one", &vec![b'x'; 40_000], None);
    let id = collection_of(&store, b"one");
    let key = layout::piece_key(id, 1);
    store.map.upsert(&key, vec![b'y'; PIECE_BYTES + 1]).expect("puts");
    let tried = begin(&store).gather(layout::LongString { id, bytes: 40_000 });
    assert!(matches!(tried, Err(Failure::Damaged)));
    store.map.upsert(&key, b"short").expect("puts");
    let found = begin(&store).gather(layout::LongString { id, bytes: 40_000 }).expect("reads");
    assert_eq!(&found[PIECE_BYTES..PIECE_BYTES + 6], b"short\0");
    assert_eq!(found.len(), 40_000);
}

/// One bit far away takes one piece. A snapshot keeps the string sparse.
#[test]
fn a_sparse_string_takes_what_was_written_and_is_restored_from_a_snapshot() {
    let store = volatile();
    let before = records(&store);
    let place = |_| Ok((512 << 20) - 1);
    let renew = |memcached| memcached;
    write(&store, &[b"one"], |transaction| {
        let length = transaction.edit_string(0, b"one", 1, place, renew, |_, part| part[0] |= 1);
        assert_eq!(length.expect("sets"), 512 << 20);
    });
    set(&store, 0, b"other", &vec![b'x'; 50_000], Some(store.clock().now_ms() + 1_000_000));
    sweep_all(&store);
    // Two heads, four pieces, the piece of the far bit, and an expiry entry.
    assert_eq!(records(&store), before + 2 + 4 + 1 + 1);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("snapshot");
    store.save(&path, 1).expect("saves");
    let copy = volatile();
    assert_eq!(copy.restore(&path).expect("restores"), 2);
    assert!(get(&copy, 0, b"other") == Some(vec![b'x'; 50_000]));
    let mut last = Vec::new();
    let choose =
        |_: &mut Vec<u8>, length: Option<u64>| Ok(length.expect("it is there") - 2..u64::MAX);
    let visit = |last: &mut Vec<u8>, _, bytes: &[u8]| {
        last.extend_from_slice(bytes);
        ControlFlow::Continue(())
    };
    begin(&copy).visit_string(0, b"one", &mut last, choose, visit).expect("reads");
    assert_eq!(last, [0, 1]);
    assert_eq!(records(&copy), before + 2 + 4 + 1 + 1);
}
