//! What rots: in pages, where a walk must see it, and in the mapping table, where operations must.

use std::sync::atomic::Ordering;

use pando_bwtree::{BwTrees, CasBwTrees, Options};
use pando_index::{KeyRange, Order, RangeIndex};
use pando_pmem::Volatile;
use pando_pmem::testing::Random;
use pando_pmwcas::maps::IndexKind;

use crate::common::watchdog::{seed, within_bounds};
use crate::common::{Planted, anonymous, check, dump, key, small, small_plain, value};

/// Class 13: a checker that is wrong. Whatever one word of a block becomes, the walk ends; and of the words
/// that say what a page is, no damage is unseen.
#[test]
fn a_damaged_tree_is_walked_and_reported() {
    for options in [small(), small_plain()] {
        let planted = anonymous::<Volatile, BwTrees>(options);
        for number in 0..120_u64 {
            let tail = vec![b'k'; (number % 3) as usize * 5];
            planted.tree.insert(&[key(number), tail].concat(), &value(number)).expect("inserts");
        }
        let blocks = BwTrees::audit(&planted.tree).expect("audits").blocks;
        let mut random = Random::new(seed("a damaged tree"));
        for block in blocks.iter().skip(1).step_by(3) {
            for at in (0..block.bytes.min(320)).step_by(8) {
                let word = planted.pool.word(block.off + at);
                let sound = word.load(Ordering::Relaxed);
                for damage in [1 << random.below(61), random.draw() >> 3, u64::MAX] {
                    word.store(sound ^ damage, Ordering::Relaxed);
                    let _ = BwTrees::audit(&planted.tree).expect("audits");
                    word.store(sound, Ordering::Relaxed);
                }
            }
        }
        // The anchor's words: all of those in use.
        let anchor = blocks[0].off;
        for at in (0..512).step_by(8).filter(|at| !(16..64).contains(at)) {
            let word = planted.pool.word(anchor + at);
            let sound = word.load(Ordering::Relaxed);
            if sound == 0 {
                continue;
            }
            let damaged = sound ^ 1 << random.below(60);
            word.store(damaged, Ordering::Relaxed);
            let audit = BwTrees::audit(&planted.tree).expect("audits");
            // An older delta of the chain is a link that could be; then the newer one's block is lost.
            let is_seen =
                !audit.is_sound() || sound >> 60 == 1 || audit.blocks.len() < blocks.len();
            assert!(is_seen, "word {at} of the anchor: {sound:#x}, then {damaged:#x}");
            word.store(sound, Ordering::Relaxed);
        }
        check(&planted);
    }
}

/// Class 13, and "unbounded loops": a mapping word rots. Reads end, with an error or an answer; a scan never ends
/// early without an error; writes end, too.
#[test]
fn a_rotted_mapping_word_is_an_error_and_never_a_hang() {
    const KEYS: u64 = 120;
    fn fill<K: IndexKind>(options: Options) -> Planted<Volatile, K> {
        let planted = anonymous::<Volatile, K>(options);
        for number in 0..KEYS {
            let tail = vec![b'k'; (number % 3) as usize * 5];
            planted.tree.insert(&[key(number), tail].concat(), &value(number)).expect("inserts");
        }
        planted
    }
    /// The mapping words that are in use: PIDs of pages.
    fn words<K: IndexKind>(planted: &Planted<Volatile, K>) -> Vec<u64> {
        let anchor = K::audit(&planted.tree).expect("audits").blocks[0].off;
        let word = |off| planted.pool.word(off).load(Ordering::Acquire);
        std::iter::once(anchor)
            .chain((anchor + 64..anchor + 512).step_by(8))
            .filter(|&off| word(off) != 0 && word(off) >> 60 == 0)
            .collect()
    }
    /// Where the base is that a link leads to, if it says so.
    fn base(link: u64) -> u64 {
        (link & 0xFFFF_FFFF_FFFF).wrapping_sub((link >> 49 & 0x7FF) * 32)
    }
    fn reads<K: IndexKind>(options: Options, seed: u64) {
        let planted = fill::<K>(options);
        let whole = dump(&planted.tree);
        let places = words(&planted);
        assert!(places.len() > 12, "{places:?}");
        let mut random = Random::new(seed);
        let mut errors = 0;
        for &off in &places {
            let word = planted.pool.word(off);
            let sound = word.load(Ordering::Relaxed);
            let other = planted.pool.word(*random.pick(&places)).load(Ordering::Relaxed);
            // A root word of zero says that the tree has never had a record.
            let zero = if off == places[0] { 1 } else { 0 };
            let mut damages = vec![zero, u64::MAX, u64::MAX >> 3, other, 1 << 60, random.draw()];
            damages.extend((0..64).map(|bit| sound ^ 1 << bit));
            for damage in damages {
                word.store(damage, Ordering::Relaxed);
                for key in whole.keys() {
                    errors += u64::from(planted.tree.get(key).is_err());
                }
                for order in [Order::Ascending, Order::Descending] {
                    let mut records = 0;
                    let mut cursor = planted.tree.scan(KeyRange::all(), order).expect("scans");
                    let is_over = loop {
                        match cursor.next() {
                            Ok(Some(_)) => records += 1,
                            Ok(None) => break true,
                            Err(_) => break false,
                        }
                        assert!(records <= 2 * KEYS, "{sound:#x}, then {damage:#x}: circles");
                    };
                    // An older state of the same page is one that could be.
                    let is_same_page = damage & 1 << 48 == sound & 1 << 48
                        && (base(damage) == base(sound) || options.delta_bytes == 0);
                    assert!(
                        !is_over || records == whole.len() as u64 || is_same_page,
                        "{order:?}, {sound:#x}, then {damage:#x}: {records} records"
                    );
                }
                let _ = planted.tree.len();
                word.store(sound, Ordering::Relaxed);
            }
        }
        assert!(errors > 1_000, "{errors}");
        assert!(dump(&planted.tree) == whole);
        check(&planted);
    }
    fn writes<K: IndexKind>(options: Options, seed: u64) {
        let mut random = Random::new(seed);
        for round in 0..60 {
            let planted = fill::<K>(options);
            let places = words(&planted);
            let word = planted.pool.word(*random.pick(&places));
            let sound = word.load(Ordering::Relaxed);
            let other = planted.pool.word(*random.pick(&places)).load(Ordering::Relaxed);
            let damage = match round % 5 {
                0 => other,
                1 => 1 << 60,
                2 => random.draw(),
                3 => 0,
                _ => sound ^ 1 << random.below(64),
            };
            word.store(damage, Ordering::Relaxed);
            for number in 0..KEYS {
                let tail = vec![b'k'; (number % 3) as usize * 5];
                let name = [key(number), tail].concat();
                if random.one_in(2) {
                    let _ = planted.tree.upsert(&name, &value(number + 1));
                }
                let _ = planted.tree.remove(&name);
            }
        }
    }
    let seed = seed("a rotted mapping word");
    within_bounds("reads", move || reads::<BwTrees>(small(), seed));
    within_bounds("reads, plain", move || reads::<BwTrees>(small_plain(), seed));
    within_bounds("reads, CAS", move || reads::<CasBwTrees>(small(), seed));
    within_bounds("writes", move || writes::<BwTrees>(small(), seed));
    within_bounds("writes, plain", move || writes::<BwTrees>(small_plain(), seed));
    within_bounds("writes, CAS", move || writes::<CasBwTrees>(small(), seed));
}
