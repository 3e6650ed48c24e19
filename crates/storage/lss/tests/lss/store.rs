//! Groups, pages, reopening, limits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pando_device::simulated::{Kept, Simulated};
use pando_device::{Operation, Overlay};
use pando_index::random::Random;
use pando_lss::{Error, Group, MAX_PAGE_BYTES, NoDelta, PageStore, PageStoreOptions};

use crate::common::{Model, SMALL, bytes, create, open, pages_of, small};

#[test]
fn a_page_is_its_base_and_its_deltas() {
    let (directory, store) = small();
    let ticket =
        store.append(Group::new().base(1, "base").delta(1, "one").base(2, "")).expect("open");
    store.wait(&ticket).expect("room");
    let ticket = store.append(Group::new().delta(1, "two")).expect("open");
    assert_eq!(store.read(1).expect("read"), Some(vec![b"base".to_vec(), b"one".to_vec()]));
    store.wait(&ticket).expect("room");
    let pieces = vec![b"base".to_vec(), b"one".to_vec(), b"two".to_vec()];
    assert_eq!(store.read(1).expect("read"), Some(pieces.clone()));
    assert_eq!(store.read(2).expect("read"), Some(vec![Vec::new()]));
    assert_eq!(store.read(3).expect("read"), None);
    store.sync().expect("synced");
    let image = directory.cut_power(Kept::Nothing, &mut Random::new(1));
    let (store, found) = open(&image).expect("a store");
    assert_eq!((found.blocks, found.client), (2, Vec::new()));
    assert_eq!(store.read(1).expect("read"), Some(pieces));
    let ticket = store.append(Group::new().free(1)).expect("open");
    store.wait(&ticket).expect("room");
    assert_eq!(store.read(1).expect("read"), None);
    assert_eq!(store.pids().collect::<Vec<_>>(), [2]);
}

#[test]
fn a_delta_without_a_place_is_refused_with_its_group() {
    let store = create(&Simulated::new(), SMALL);
    let refused = |group: Group| {
        let ticket = store.append(group).expect("open");
        match store.wait(&ticket) {
            Err(Error::NeedsBase { pid, why }) => (pid, why),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(Group::new().base(1, "a").delta(2, "b")), (2, NoDelta::NoPage));
    assert_eq!(store.read(1).expect("read"), None, "all of the group was refused");
    assert_eq!(refused(Group::new().base(1, "a").free(1).delta(1, "b")), (1, NoDelta::NoPage));
    let full = Group::new().base(1, "a").delta(1, "b").delta(1, "c").delta(1, "d");
    store.wait(&store.append(full.clone()).expect("open")).expect("four parts");
    assert_eq!(refused(Group::new().delta(1, "e")), (1, NoDelta::Parts));
    assert_eq!(refused(full.delta(1, "e")), (1, NoDelta::Parts));
    // Cleaning makes one part of them.
    assert!(!store.clean().expect("cleaned"), "there is no segment but the current one");
}

#[test]
fn a_page_is_not_longer_than_one_part_can_be() {
    let options = PageStoreOptions { segment_bytes: 4 << 20, ..SMALL };
    let store = create(&Simulated::new(), options);
    let half = vec![7; MAX_PAGE_BYTES / 2];
    let ticket = store.append(Group::new().base(1, half.clone()).delta(1, &half[..1000]));
    store.wait(&ticket.expect("open")).expect("room");
    let ticket = store.append(Group::new().delta(1, half.clone())).expect("open");
    let refused = store.wait(&ticket).expect_err("too long");
    assert!(matches!(refused, Error::NeedsBase { why: NoDelta::Bytes, .. }), "{refused}");
    let refused = store.append(Group::new().base(2, vec![0; MAX_PAGE_BYTES])).expect_err("long");
    assert!(refused.to_string().contains("at most 491456 bytes"), "{refused}");
}

#[test]
fn what_is_outside_of_its_limits_is_refused_with_the_limits() {
    let directory = Simulated::new();
    let with = |options| {
        let created = PageStore::create(std::sync::Arc::new(directory.clone()), 1, options);
        created.expect_err("a limit").to_string()
    };
    let text = with(PageStoreOptions { segment_bytes: 70_000, ..SMALL });
    assert_eq!(text, "segment_bytes is 70000; allowed is 65536 to 67108864, a multiple of 4096");
    let text = with(PageStoreOptions { ceiling_percent: 100, ..SMALL });
    assert_eq!(text, "ceiling_percent is 100; allowed is 120 to 10,000");
    let text = with(PageStoreOptions { max_bytes: 65_536, ..SMALL });
    assert_eq!(text, "max_bytes is 65536; allowed is 4 segments of 65536 bytes, or more");
    let missing = open(&directory).expect_err("nothing was created");
    assert!(matches!(missing, Error::NotAStore { .. }), "{missing}");
    let store = create(&directory, SMALL);
    let group = (0..8).fold(Group::new(), |group, pid| group.base(pid, vec![0; 5000]));
    let refused = store.append(group).expect_err("a group of 40,000 bytes");
    assert!(refused.to_string().contains("half a segment"), "{refused}");
    let again = PageStore::create(std::sync::Arc::new(directory.clone()), 1, SMALL);
    assert!(matches!(again.expect_err("a store"), Error::NotEmpty { .. }));
    let refused = store.checkpoint(&[0; 100_000]).expect_err("too long");
    assert!(refused.to_string().contains("65536"), "{refused}");
}

#[test]
fn a_checkpoint_gives_back_the_bytes_of_its_caller() {
    let (directory, store) = small();
    let mut model = Model::default();
    let mut random = Random::new(3);
    for round in 0..3_u8 {
        for _ in 0..40 {
            store.append(model.group(&mut random, 20, 2000)).expect("open");
        }
        store.checkpoint(&[round]).expect("a checkpoint");
        let (opened, found) = open(&directory.after_kill()).expect("a store");
        assert_eq!((found.client, found.blocks), (vec![round], 0));
        assert_eq!(pages_of(&opened), model.pages());
    }
}

#[test]
fn a_store_is_opened_again_and_again() {
    let mut random = Random::new(5);
    let mut model = Model::default();
    let mut directory = Simulated::new();
    drop(create(&directory, SMALL));
    for round in 0..60 {
        let (store, _) = open(&directory).expect("a store");
        assert_eq!(pages_of(&store), model.pages(), "round {round}");
        for _ in 0..random.below(30) {
            store.append(model.group(&mut random, 30, 6000)).expect("open");
        }
        store.sync().expect("synced");
        directory = directory.cut_power(Kept::Nothing, &mut random);
    }
}

/// An opening holds some of the blocks that are perhaps not durable, and not all of them.
#[test]
fn an_opening_holds_few_blocks() {
    const BLOCKS: u32 = 34;
    let options = PageStoreOptions { checkpoint_bytes: u64::MAX, ..PageStoreOptions::default() };
    let directory = Simulated::new();
    let store = create(&directory, options);
    for number in 0..BLOCKS {
        let page = |pid| vec![pid as u8; 480_000];
        let group = Group::new().base(2 * number, page(number)).base(2 * number + 1, page(number));
        store.wait(&store.append(group).expect("open")).expect("room");
    }
    let pages = pages_of(&store);
    let directory = directory.after_kill();
    // Of each write of a block, how many reads came before it.
    let writes = Arc::new(Mutex::new(Vec::new()));
    directory.on_operation({
        let (writes, reads) = (writes.clone(), AtomicUsize::new(0));
        move |operation, name| {
            match operation {
                _ if !name.starts_with("segment-") => {}
                Operation::Read => drop(reads.fetch_add(1, Ordering::Relaxed)),
                Operation::Write => {
                    writes.lock().expect("no panic").push(reads.load(Ordering::Relaxed));
                }
                _ => {}
            }
            Ok(())
        }
    });
    let (store, found) = open(&directory).expect("a store");
    assert_eq!(found.blocks, u64::from(BLOCKS));
    let writes = writes.lock().expect("no panic").clone();
    assert_eq!(writes.len(), BLOCKS as usize);
    for (number, &reads) in writes.iter().enumerate().take(20) {
        // A block is read in two pieces.
        assert!(reads < 2 * (number + 14), "{reads} reads before block {number} is written");
    }
    store.sync().expect("synced");
    assert_eq!(pages_of(&store), pages);
    let image = directory.cut_power(Kept::Nothing, &mut Random::new(1));
    assert_eq!(pages_of(&open(&image).expect("a store").0), pages);
}

/// An opening writes the blocks again that no later one calls durable. Over files that stay as they
/// are, that takes no memory.
#[test]
fn blocks_that_are_written_again_take_no_memory_of_an_overlay() {
    let options = PageStoreOptions { checkpoint_bytes: u64::MAX, ..SMALL };
    let directory = Simulated::new();
    let store = create(&directory, options);
    let mut random = Random::new(3);
    for pid in 0..100 {
        let page = bytes(&mut random, 5000);
        store.wait(&store.append(Group::new().base(pid, page)).expect("open")).expect("room");
    }
    let expected = pages_of(&store);
    drop(store);
    let overlay = Arc::new(Overlay::new(Arc::new(directory.after_kill())));
    let (store, found) = PageStore::open(overlay.clone(), options).expect("a store");
    assert!(found.block_bytes > 100 * 5000, "{found:?}");
    assert!(pages_of(&store) == expected);
    assert!(overlay.blocks() < 10, "{} blocks", overlay.blocks());
}
