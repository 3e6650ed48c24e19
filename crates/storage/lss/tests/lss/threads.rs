//! Threads that append, read, clean, and stop.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread::scope;

use pando_device::Operation;
use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;
use pando_lss::{Error, Group, NoDelta, PageStore};

use crate::common::{SMALL, create, open, small};

/// A piece that tells its page and its number.
fn piece(pid: u32, number: u32, bytes: u64) -> Vec<u8> {
    let mut piece = [pid.to_le_bytes(), number.to_le_bytes()].concat();
    piece.resize(8 + bytes as usize, pid as u8 ^ number as u8);
    piece
}

/// The number of the page's last piece, after a look at all of them: they are consecutive.
fn last_of(pid: u32, pieces: &[Vec<u8>]) -> u32 {
    let mut last = None;
    for bytes in pieces {
        let number = u32::from_le_bytes(*bytes[4..].first_chunk().expect("a number"));
        assert_eq!(*bytes, piece(pid, number, bytes.len() as u64 - 8));
        assert!(last.is_none_or(|last| last + 1 == number), "{number} after {last:?}");
        last = Some(number);
    }
    last.expect("a page has a piece")
}

fn append(store: &PageStore, random: &mut Random, pid: u32, number: u32) {
    let bytes = piece(pid, number, random.below(2000));
    let group = match number > 0 && random.below(3) > 0 {
        true => Group::new().delta(pid, bytes.clone()),
        false => Group::new().base(pid, bytes.clone()),
    };
    let ticket = store.append(group).expect("open");
    if let Err(error) = store.wait(&ticket) {
        assert!(matches!(error, Error::NeedsBase { why: NoDelta::Parts, .. }), "{error}");
        store.append(Group::new().base(pid, bytes)).expect("open");
    }
}

#[test]
fn readers_see_whole_pages_that_only_go_forwards() {
    const PIDS: u32 = 12;
    let (directory, store) = small();
    let is_done = AtomicBool::new(false);
    let ended = Mutex::new(BTreeMap::new());
    scope(|scope| {
        let (store, is_done, ended) = (&store, &is_done, &ended);
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                scope.spawn(move || {
                    let mut random = Random::new(thread.into());
                    for number in 0..400 {
                        for pid in (thread..PIDS).step_by(3) {
                            append(store, &mut random, pid, number);
                        }
                    }
                })
            })
            .collect();
        for thread in 0..2 {
            scope.spawn(move || {
                let mut random = Random::new(100 + thread);
                let mut seen = [0; PIDS as usize];
                while !is_done.load(Ordering::Relaxed) {
                    let pid = random.below(PIDS.into()) as u32;
                    if let Some(pieces) = store.read(pid).expect("no damage") {
                        let last = last_of(pid, &pieces);
                        assert!(last >= seen[pid as usize], "page {pid} went back to {last}");
                        seen[pid as usize] = last;
                    }
                }
            });
        }
        scope.spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                store.clean().expect("cleaned");
                std::thread::yield_now();
            }
        });
        for writer in writers {
            writer.join().expect("no panic");
        }
        is_done.store(true, Ordering::Relaxed);
        store.sync().expect("synced");
        for pid in 0..PIDS {
            let pieces = store.read(pid).expect("no damage").expect("a page");
            ended.lock().expect("no panic").insert(pid, last_of(pid, &pieces));
        }
    });
    let ended = ended.into_inner().expect("no panic");
    assert!(ended.values().all(|&last| last == 399), "{ended:?}");
    let image = directory.cut_power(Kept::Nothing, &mut Random::new(1));
    let (store, _) = open(&image).expect("a store");
    for pid in 0..PIDS {
        assert_eq!(last_of(pid, &store.read(pid).expect("no damage").expect("a page")), 399);
    }
}

/// A page changes, and is appended by another thread, between the look at it and the append.
#[test]
fn a_state_that_is_captured_later_has_the_later_place() {
    let store = create(&Simulated::new(), SMALL);
    let state = AtomicU32::new(1);
    let append = |number, bytes: &'static str, meanwhile: &dyn Fn()| {
        store.append_with(|| {
            let is_current = state.load(Ordering::Relaxed) == number;
            meanwhile();
            Ok::<_, Error>(is_current.then(|| Group::new().base(7, bytes)))
        })
    };
    let appended = append(1, "first", &|| {
        state.store(2, Ordering::Relaxed);
        assert!(append(2, "second", &|| {}).expect("open").is_some());
    });
    assert!(appended.expect("open").is_some());
    store.sync().expect("synced");
    assert_eq!(store.read(7).expect("read"), Some(vec![b"second".to_vec()]));
    assert!(store.append_with(|| Ok::<_, Error>(None)).expect("open").is_none());
    let too_long = || Ok::<_, Error>(Some(Group::new().base(7, vec![0; 1 << 20])));
    store.append_with(too_long).expect_err("longer than a page may be");
    store.sync().expect("synced");
    assert!(store.read(7).expect("read").is_some());
}

/// A thread stops while it looks at its pages, and the writer goes on.
#[test]
fn a_thread_that_stops_holds_up_no_group() {
    let store = create(&Simulated::new(), SMALL);
    let appended = store.append_with(|| {
        store.append(Group::new().base(2, "other")).expect("open");
        store.sync().expect("the writer passes the place over");
        Ok::<_, Error>(Some(Group::new().base(1, "stopped")))
    });
    assert!(appended.expect("open").is_none(), "the place was abandoned");
    store.sync().expect("synced");
    assert_eq!(store.read(1).expect("read"), None);
    assert!(store.read(2).expect("read").is_some());
}

/// A reader stops between two parts of a page. Meanwhile the segment of the second one is written
/// anew, with the same page at the same place.
#[test]
fn a_reader_takes_no_part_of_another_time() {
    let (directory, store) = small();
    let write = |group: Group| store.wait(&store.append(group).expect("open")).expect("room");
    write(Group::new().base(7, "base 000"));
    write(Group::new().delta(7, "delta of base 000"));
    let (reads, told) = channel();
    let (go, went) = channel::<()>();
    let (state, went) = (AtomicU32::new(0), Mutex::new(went));
    directory.on_operation(move |operation, _| {
        if operation == Operation::Read && state.fetch_add(1, Ordering::Relaxed) == 1 {
            reads.send(()).expect("the test waits");
            went.lock().expect("no panic").recv().expect("the test goes on");
        }
        Ok(())
    });
    scope(|scope| {
        let reader = scope.spawn(|| store.read(7).expect("no damage").expect("a page"));
        told.recv().expect("the reader reads");
        // 16 blocks are in a segment, and at most eight segments in the store.
        for number in 1..=300 {
            write(Group::new().base(7, format!("base {number:03}")));
        }
        go.send(()).expect("the reader waits");
        assert_eq!(reader.join().expect("no panic"), [b"base 300".to_vec()]);
    });
}
