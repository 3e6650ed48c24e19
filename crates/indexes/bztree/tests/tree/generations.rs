//! Reservations that a dead process left in leaves (traps 7 and 11; BzTree: an insert that waits
//! for ever on a reservation whose owner is dead).

use std::path::PathBuf;

use crate::common::scenario::{Answer, Op, inline, short};
use crate::common::{Fixture, abandon, check, dump, folder_and_pool, small_nodes};
use pando_bztree::Options;
use pando_pmem::testing::{CutShort, count_writes, kill_after};
use tempfile::TempDir;

const MAX_BYTES: u64 = 8 << 20;
/// More writes than an insert makes that only passes dead reservations.
const BOUND_WRITES: u64 = 100;

fn roomy() -> Options {
    Options { leaf_bytes: 4096, free_bytes: 2048, ..small_nodes() }
}

/// Begins an insert of `key` and dies before its write `writes`; returns whether it had ended
/// before.
fn die_inserting(path: &std::path::Path, key: &[u8], writes: u64) -> bool {
    let fixture = Fixture::<CutShort>::reopen(path);
    let insert = Op::Insert(key.to_vec(), inline(1));
    let ended = kill_after(writes, || insert.run(&fixture.index)).is_some();
    abandon(fixture);
    ended
}

fn insert_at_once(fixture: &Fixture<CutShort>, key: &[u8]) {
    let insert = Op::Insert(key.to_vec(), inline(2));
    let (answer, writes) = count_writes(|| insert.run(&fixture.index));
    assert_eq!(answer, Answer::Done);
    assert!(writes < BOUND_WRITES, "{writes} writes: it did not just go past the dead");
    assert_eq!(Op::Insert(key.to_vec(), inline(2)).run(&fixture.index), Answer::Exists);
}

#[test]
fn an_insert_does_not_wait_for_a_dead_reservation_of_its_key() {
    let (_folder, path) = folder_and_pool();
    drop(Fixture::<CutShort>::create(&path, MAX_BYTES, roomy()));
    for writes in 0.. {
        let ended = die_inserting(&path, &short(7), writes);
        let fixture = Fixture::<CutShort>::reopen(&path);
        if dump(&fixture.index).is_empty() {
            insert_at_once(&fixture, &short(7));
        }
        check(&fixture);
        assert_eq!(Op::Remove(short(7)).run(&fixture.index), Answer::Done);
        if ended {
            break;
        }
    }
}

/// A new pool, in which so many processes have died while they inserted one key.
fn left_by_dead_inserts(deaths: u64) -> (TempDir, PathBuf) {
    let (folder, path) = folder_and_pool();
    drop(Fixture::<CutShort>::create(&path, MAX_BYTES, roomy()));
    for turn in 0..deaths {
        // The first write of an insert claims its slot.
        die_inserting(&path, &short(7), 1 + turn % 2);
    }
    (folder, path)
}

/// More dead reservations of one key than one completion can abort, from as many generations.
#[test]
fn reservations_of_many_earlier_generations_pile_up_in_one_leaf() {
    let (_folder, path) = left_by_dead_inserts(40);
    let fixture = Fixture::<CutShort>::reopen(&path);
    assert!(dump(&fixture.index).is_empty());
    insert_at_once(&fixture, &short(7));
    insert_at_once(&fixture, &short(8));
    check(&fixture);
}

/// The mark of a reservation has ten bits of the generation. So after 1,024 openings a dead one
/// looks like one of the present generation.
#[test]
fn a_dead_reservation_is_harmless_when_its_generation_comes_again() {
    let (_folder, path) = left_by_dead_inserts(6);
    let first = Fixture::<CutShort>::reopen(&path);
    let generation = first.pool.generation();
    abandon(first);
    for _ in 0..1_012 {
        abandon(Fixture::<CutShort>::reopen(&path));
    }
    // The tags of the six dead inserts are used again, and some others.
    for _ in 0..20 {
        let fixture = Fixture::<CutShort>::reopen(&path);
        insert_at_once(&fixture, &short(7));
        assert_eq!(Op::Remove(short(7)).run(&fixture.index), Answer::Done);
        check(&fixture);
        abandon(fixture);
    }
    let last = Fixture::<CutShort>::reopen(&path);
    assert!(last.pool.generation() > generation + 1_024);
}

/// Chunks that are free when a pool is opened must be found again before the pool grows.
#[test]
fn a_pool_does_not_grow_with_the_number_of_restarts() {
    let (_folder, path) = folder_and_pool();
    drop(Fixture::<CutShort>::create(&path, 64 << 20, small_nodes()));
    let mut chunks = Vec::new();
    for round in 0..120_u64 {
        let fixture = Fixture::<CutShort>::reopen(&path);
        for step in 0..300 {
            let key = short((round * 7 + step * 13) % 100);
            let value = vec![step as u8; ((round * 31 + step) * 37 % 1_700) as usize];
            Op::Upsert(key.clone(), value).run(&fixture.index);
            if step % 3 == 0 {
                Op::Remove(key).run(&fixture.index);
            }
        }
        chunks.push(fixture.pool.usage().expect("a slot").chunks);
        abandon(fixture);
    }
    println!(
        "chunks after every tenth restart: {:?}",
        chunks.iter().step_by(10).collect::<Vec<_>>()
    );
    assert!(chunks[119] <= chunks[40] + 8, "the pool grows with every restart");
}
