//! Bytes that a failing medium has changed.

use pando_device::Directory;
use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;
use pando_lss::{Error, Group, PageStore};

use crate::common::{Model, Pages, SMALL, create, open, pages_of, small};

/// A durable store with a checkpoint, and a tail of several blocks.
struct Durable {
    directory: Simulated,
    /// The pages after each group.
    states: Vec<Pages>,
    /// The states at the checkpoint, and before the last sync. A block tells that all before it
    /// was durable; nothing tells that of the last ones.
    checkpoint: usize,
    told: usize,
}

impl Durable {
    fn new() -> Self {
        let directory = Simulated::new();
        let store = create(&directory, SMALL);
        let mut random = Random::new(17);
        let mut model = Model::default();
        let (mut states, mut checkpoint, mut told) = (vec![Pages::new()], 0, 0);
        for round in 0..120 {
            store.append(model.group(&mut random, 30, 3000)).expect("open");
            states.push(model.pages());
            if round % 10 == 5 {
                store.sync().expect("synced");
                told = round + 1;
            }
            if round == 80 {
                store.checkpoint(b"client").expect("a checkpoint");
                checkpoint = round + 1;
            }
        }
        store.sync().expect("synced");
        Self { directory, states, checkpoint, told }
    }

    /// The pages of the store, if it has lost no more than the groups behind `least`.
    fn state_of(&self, pids: &[u32], least: usize) -> &Pages {
        let has_them = |state: &&Pages| state.keys().eq(pids.iter());
        let found = self.states[least..].iter().rev().find(has_them);
        found.unwrap_or_else(|| panic!("no state since {least} has the pages {pids:?}"))
    }
}

/// Flips a random bit of the file.
fn flip(directory: &Simulated, name: &str, random: &mut Random) -> usize {
    let mut at = 0;
    let is_there = directory.damage(name, |bytes| {
        at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
    });
    assert!(is_there, "{name}");
    at
}

#[test]
fn a_flipped_bit_is_told_or_has_no_effect() {
    let durable = Durable::new();
    let mut random = Random::new(19);
    let (mut refused, mut unread) = (0, 0);
    for name in durable.directory.names().expect("names") {
        for _ in 0..60 {
            let image = durable.directory.cut_power(Kept::All, &mut random);
            let at = flip(&image, &name, &mut random);
            let what = format!("{name}, byte {at}");
            let (store, _) = match open(&image) {
                Ok(opened) => opened,
                Err(Error::Damaged { .. }) => {
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("{what}: {error}"),
            };
            let pids: Vec<_> = store.pids().collect();
            let expected = durable.state_of(&pids, durable.told);
            let mut damaged = 0;
            let mut differs = 0;
            for (pid, expected) in expected {
                match store.read(*pid) {
                    Ok(found) => {
                        let found = found.expect("the page exists");
                        let found = (found.len(), crate::common::digest(&found));
                        differs += usize::from(found != *expected);
                    }
                    Err(Error::DamagedPage { pid: named, path, .. }) => {
                        assert!(named == *pid && path.ends_with(&name), "{what}: {path}");
                        damaged += 1;
                    }
                    Err(error) => panic!("{what}: {error}"),
                }
            }
            // Another state may have the same PIDs.
            let is_state = durable.states[durable.told..].contains(&pages_unless(&store, damaged));
            assert!(damaged <= 1 && (differs == 0 || is_state), "{what}: {damaged}, {differs}");
            unread += damaged;
            // It can be used, and cleaning neither loses nor repeats the damage.
            store.append(Group::new().base(99, "new")).expect("open");
            for _ in 0..4 {
                store.clean().expect("cleaned");
            }
            assert_eq!(store.check_pages().len(), damaged, "{what}");
        }
    }
    assert!(refused > 20 && unread > 5, "{refused} refused, {unread} unread");
}

/// All pages, if none of them is damaged.
fn pages_unless(store: &PageStore, damaged: usize) -> Pages {
    if damaged == 0 { pages_of(store) } else { Pages::new() }
}

#[test]
fn a_missing_file_is_told() {
    let durable = Durable::new();
    let mut random = Random::new(23);
    let mut refused = 0;
    for name in durable.directory.names().expect("names") {
        let image = durable.directory.cut_power(Kept::All, &mut random);
        image.remove(&name).expect("a file");
        match open(&image) {
            Err(Error::Damaged { .. } | Error::NotAStore { .. }) => refused += 1,
            Err(error) => panic!("{name}: {error}"),
            // No block behind those of the last file tells that they were durable.
            Ok((store, _)) => {
                let pages = pages_of(&store);
                assert!(durable.states[durable.checkpoint..].contains(&pages), "{name}");
            }
        }
    }
    assert!(refused > 3, "{refused} files");
}

/// The newer superblock cannot be read, and the older one names a checkpoint whose segments were
/// written anew.
#[test]
fn an_earlier_checkpoint_is_not_taken_for_the_present_one() {
    let (directory, store) = small();
    let mut random = Random::new(29);
    let mut model = Model::default();
    for _ in 0..6 {
        for _ in 0..60 {
            store.append(model.group(&mut random, 10, 5000)).expect("open");
        }
        store.checkpoint(b"").expect("a checkpoint");
    }
    store.append(model.group(&mut random, 10, 5000)).expect("open");
    store.sync().expect("synced");
    for place in [0, 4096] {
        let image = directory.cut_power(Kept::All, &mut random);
        assert!(image.damage("superblock", |bytes| bytes[place + 20] ^= 1));
        match open(&image) {
            Err(Error::Damaged { .. }) => {}
            Err(error) => panic!("{error}"),
            Ok((store, _)) => assert_eq!(pages_of(&store), model.pages(), "place {place}"),
        }
    }
}

/// A medium that loses one durable block, and has later ones.
#[test]
fn a_durable_block_that_is_gone_is_told() {
    let (directory, store) = small();
    let mut model = Model::default();
    let mut random = Random::new(31);
    for _ in 0..40 {
        store.append(model.group(&mut random, 10, 3000)).expect("open");
        store.sync().expect("synced");
    }
    let mut blocks = Vec::new();
    for name in directory.names().expect("names") {
        directory.damage(&name, |bytes| {
            for at in (0..bytes.len()).step_by(4096) {
                if bytes[at..].starts_with(b"PANDOsb1") {
                    let number =
                        bytes[at + 32..].first_chunk().map(|word| u64::from_le_bytes(*word));
                    blocks.push((number.expect("a header"), name.clone(), at));
                }
            }
        });
    }
    blocks.sort_unstable();
    assert!(blocks.len() >= 40);
    let last = blocks.len() - 1;
    for (number, (_, name, at)) in blocks.iter().enumerate() {
        for is_zeroed in [false, true] {
            let image = directory.cut_power(Kept::All, &mut random);
            assert!(image.damage(name, |bytes| match is_zeroed {
                true => bytes[*at..at + 4096].fill(0),
                false => bytes[at + 70] ^= 1,
            }));
            match open(&image) {
                Err(Error::Damaged { .. }) => assert!(number < last),
                Err(error) => panic!("{error}"),
                // Nothing behind the last block says that it was durable.
                Ok(_) => assert_eq!(number, last, "{name}, byte {at}, zeroed: {is_zeroed}"),
            }
        }
    }
}

#[test]
fn the_bytes_of_the_first_checkpoint_are_not_lost_silently() {
    let (directory, store) = small();
    store.append(Group::new().base(1, "x")).expect("open");
    store.checkpoint(b"client").expect("a checkpoint");
    for place in [0, 4096] {
        let image = directory.cut_power(Kept::All, &mut Random::new(4));
        assert!(image.damage("superblock", |bytes| bytes[place + 20] ^= 1));
        match open(&image) {
            Err(Error::Damaged { .. }) => {}
            Err(error) => panic!("{error}"),
            Ok((_, found)) => assert_eq!(found.client, b"client"),
        }
    }
}
