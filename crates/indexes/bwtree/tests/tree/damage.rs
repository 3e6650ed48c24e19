//! Damage: in pages, where a walk must find it, and in the mapping table, where operations must.

use std::sync::atomic::Ordering;

use pando_bwtree::{BwTrees, CasBwTrees, Options};
use pando_index::random::Random;
use pando_index::{Error, KeyRange, Order, RangeIndex};
use pando_pmem::Process;
use pando_tree::maps::{IndexKind, Tree};

use crate::common::watchdog::{seed, within_bounds};
use crate::common::{Fixture, check, dump, key, small, small_plain, value};

/// Class 13: a checker that is wrong. With any content of one word of a block, the walk ends. Any
/// damage of the words that describe a page is found.
#[test]
fn a_damaged_tree_is_walked_and_reported() {
    for options in [small(), small_plain()] {
        let fixture = Fixture::<Process, BwTrees>::anonymous(options);
        for number in 0..120_u64 {
            let tail = vec![b'k'; (number % 3) as usize * 5];
            fixture.index.insert(&[key(number), tail].concat(), &value(number)).expect("inserts");
        }
        let blocks = fixture.index.audit().expect("audits").blocks;
        let mut random = Random::new(seed("a damaged tree"));
        for block in blocks.iter().skip(1).step_by(3) {
            for at in (0..block.bytes.min(320)).step_by(8) {
                let word = fixture.pool.word(block.off + at);
                let undamaged = word.load(Ordering::Relaxed);
                for damage in [1 << random.below(61), random.draw() >> 3, u64::MAX] {
                    word.store(undamaged ^ damage, Ordering::Relaxed);
                    let _ = fixture.index.audit().expect("audits");
                    word.store(undamaged, Ordering::Relaxed);
                }
            }
        }
        // All words of the anchor that are in use.
        let anchor = blocks[0].off;
        for at in (0..512).step_by(8).filter(|at| !(16..64).contains(at)) {
            let word = fixture.pool.word(anchor + at);
            let undamaged = word.load(Ordering::Relaxed);
            if undamaged == 0 {
                continue;
            }
            let damaged = undamaged ^ 1 << random.below(60);
            word.store(damaged, Ordering::Relaxed);
            let audit = fixture.index.audit().expect("audits");
            // An older delta of the chain is a possible link; then the newer one's block is lost.
            let is_seen =
                !audit.is_consistent() || undamaged >> 60 == 1 || audit.blocks.len() < blocks.len();
            assert!(is_seen, "word {at} of the anchor: {undamaged:#x}, then {damaged:#x}");
            word.store(undamaged, Ordering::Relaxed);
        }
        check(&fixture);
    }
}

/// Class 13, and "unbounded loops": a mapping word is damaged. Reads end with an error or an
/// answer, a scan never ends early without an error, and writes end too.
#[test]
fn a_damaged_mapping_word_is_an_error_and_never_a_hang() {
    const KEYS: u64 = 120;
    fn fill<K: IndexKind<Options = Options>>(options: Options) -> Fixture<Process, K> {
        let fixture = Fixture::<Process, K>::anonymous(options);
        for number in 0..KEYS {
            let tail = vec![b'k'; (number % 3) as usize * 5];
            fixture.index.insert(&[key(number), tail].concat(), &value(number)).expect("inserts");
        }
        fixture
    }
    /// The used mapping words: PIDs of pages.
    fn words<K: IndexKind<Options = Options>>(fixture: &Fixture<Process, K>) -> Vec<u64> {
        let anchor = fixture.index.audit().expect("audits").blocks[0].off;
        let word = |off| fixture.pool.word(off).load(Ordering::Acquire);
        std::iter::once(anchor)
            .chain((anchor + 64..anchor + 512).step_by(8))
            .filter(|&off| word(off) != 0 && word(off) >> 60 == 0)
            .collect()
    }
    /// The base that a link leads to, if the link says so.
    fn base(link: u64) -> u64 {
        (link & 0xFFFF_FFFF_FFFF).wrapping_sub((link >> 49 & 0x7FF) * 32)
    }
    fn reads<K: IndexKind<Options = Options>>(options: Options, seed: u64) {
        let fixture = fill::<K>(options);
        let whole = dump(&fixture.index);
        let places = words(&fixture);
        assert!(places.len() > 12, "{places:?}");
        let mut random = Random::new(seed);
        let mut errors = 0;
        for &off in &places {
            let word = fixture.pool.word(off);
            let undamaged = word.load(Ordering::Relaxed);
            let other = fixture.pool.word(*random.pick(&places)).load(Ordering::Relaxed);
            let mut damages = vec![0, u64::MAX, u64::MAX >> 3, other, 1 << 60, random.draw()];
            damages.extend((0..64).map(|bit| undamaged ^ 1 << bit));
            for damage in damages {
                word.store(damage, Ordering::Relaxed);
                for key in whole.keys() {
                    errors += u64::from(fixture.index.get(key).is_err());
                }
                for order in [Order::Ascending, Order::Descending] {
                    let mut records = 0;
                    let mut cursor = fixture.index.scan(KeyRange::all(), order).expect("scans");
                    let is_over = loop {
                        match cursor.next() {
                            Ok(Some(_)) => records += 1,
                            Ok(None) => break true,
                            Err(_) => break false,
                        }
                        assert!(records <= 2 * KEYS, "{undamaged:#x}, then {damage:#x}: circles");
                    };
                    // An older state of the same page is a possible one.
                    let is_same_page = damage & 1 << 48 == undamaged & 1 << 48
                        && (base(damage) == base(undamaged) || options.delta_bytes == 0);
                    assert!(
                        !is_over || records == whole.len() as u64 || is_same_page,
                        "{order:?}, {undamaged:#x}, then {damage:#x}: {records} records"
                    );
                }
                let _ = fixture.index.len();
                word.store(undamaged, Ordering::Relaxed);
            }
        }
        assert!(errors > 1_000, "{errors}");
        assert!(dump(&fixture.index) == whole);
        check(&fixture);
    }
    fn writes<K: IndexKind<Options = Options>>(options: Options, seed: u64) {
        let mut random = Random::new(seed);
        for round in 0..60 {
            let fixture = fill::<K>(options);
            let places = words(&fixture);
            let word = fixture.pool.word(*random.pick(&places));
            let undamaged = word.load(Ordering::Relaxed);
            let other = fixture.pool.word(*random.pick(&places)).load(Ordering::Relaxed);
            let damage = match round % 5 {
                0 => other,
                1 => 1 << 60,
                2 => random.draw(),
                3 => 0,
                _ => undamaged ^ 1 << random.below(64),
            };
            word.store(damage, Ordering::Relaxed);
            for number in 0..KEYS {
                let tail = vec![b'k'; (number % 3) as usize * 5];
                let name = [key(number), tail].concat();
                if random.one_in(2) {
                    let _ = fixture.index.upsert(&name, &value(number + 1));
                }
                let _ = fixture.index.remove(&name);
            }
        }
    }
    let seed = seed("a damaged mapping word");
    within_bounds("reads", move || reads::<BwTrees>(small(), seed));
    within_bounds("reads, plain", move || reads::<BwTrees>(small_plain(), seed));
    within_bounds("reads, CAS", move || reads::<CasBwTrees>(small(), seed));
    within_bounds("writes", move || writes::<BwTrees>(small(), seed));
    within_bounds("writes, plain", move || writes::<BwTrees>(small_plain(), seed));
    within_bounds("writes, CAS", move || writes::<CasBwTrees>(small(), seed));
}

/// A mapping word leads to another page, which is undamaged: no get misses a record without an
/// error, and no write goes where the next search would not find it.
#[test]
fn a_mapping_word_of_another_page_loses_nothing() {
    const KEYS: u64 = 300;
    let fixture = Fixture::<Process, BwTrees>::anonymous(small());
    for number in 0..KEYS {
        fixture.index.insert(&key(number * 2), &value(number)).expect("inserts");
    }
    let anchor = fixture.index.audit().expect("audits").blocks[0].off;
    let leaves: Vec<u64> = (anchor + 64..anchor + 512)
        .step_by(8)
        .filter(|&off| {
            let word = fixture.pool.word(off).load(Ordering::Acquire);
            word != 0 && word >> 60 == 0 && word & 1 << 48 == 0
        })
        .collect();
    assert!(leaves.len() > 10, "{leaves:?}");
    let (mut errors, mut refused) = (0, 0);
    for (index, &off) in leaves.iter().enumerate() {
        let word = fixture.pool.word(off);
        let undamaged = word.load(Ordering::Relaxed);
        for other in leaves.iter().skip(index % 3).step_by(3).filter(|&&other| other != off) {
            let wrong = fixture.pool.word(*other).load(Ordering::Relaxed);
            word.store(wrong, Ordering::Relaxed);
            for number in 0..KEYS {
                match fixture.index.get(&key(number * 2)) {
                    Ok(found) => assert!(found.is_some(), "{number}: a record is missing"),
                    Err(_) => errors += 1,
                }
                // Where no key is; an inserted key must be found.
                let absent = key(number * 2 + 1);
                match fixture.index.insert(&absent, b"new") {
                    Ok(()) => assert!(fixture.index.remove(&absent).expect("removes")),
                    Err(_) => refused += 1,
                }
            }
            assert_eq!(
                word.load(Ordering::Relaxed),
                wrong,
                "another's page was written through the word"
            );
            word.store(undamaged, Ordering::Relaxed);
        }
    }
    assert!(errors > 100 && refused > 100, "{errors} {refused}");
    check(&fixture);
}

/// The anchor's words beside the root are damaged: a cursor is reset, and a lost segment is an
/// error. No PID is allocated outside the table, and nothing is lost.
#[test]
fn damaged_words_of_the_anchor_lose_nothing() {
    const KEYS: u64 = 6_000;
    let mut random = Random::new(seed("damaged words of the anchor"));
    for round in 0..90_u64 {
        let fixture = Fixture::<Process, BwTrees>::anonymous(small());
        let insert = |number: u64| fixture.index.insert(&key(number), &value(number));
        // Enough pages for several segments of the table.
        (0..KEYS).for_each(|number| insert(number).expect("inserts"));
        let anchor = fixture.index.audit().expect("audits").blocks[0].off;
        let page = fixture.pool.word(anchor + 64).load(Ordering::Acquire) & 0xFFFF_FFFF_FFC0;
        // `segments`, `fresh`, `sweep`.
        let word = fixture.pool.word(anchor + 8 + round % 3 * 8);
        let undamaged = word.load(Ordering::Acquire);
        let damaged = match round / 3 % 6 {
            0 => 0,
            1 => u64::MAX,
            // A page, which is no segment, and one of its words.
            2 => page | 9 << 48,
            3 => undamaged ^ 1 << random.below(61),
            4 => random.draw(),
            _ => undamaged & !(0xFFFF << 48) | 1 << 48,
        };
        // An older segment of the table looks consistent. Then the newer segments are not used any
        // more, and the audit reports their pages.
        let mut older = fixture.pool.word(anchor + 8).load(Ordering::Acquire);
        let mut is_older = false;
        while round % 3 == 0 && older != 0 {
            is_older |= older == damaged;
            older = fixture.pool.word(older).load(Ordering::Acquire);
        }
        word.store(damaged, Ordering::Release);
        let mut done = Vec::new();
        for number in KEYS..KEYS + 4_000 {
            match insert(number) {
                Ok(()) => done.push(number),
                Err(error) => assert!(error.to_string().contains("damaged"), "{error}"),
            }
        }
        for number in (0..KEYS).chain(done) {
            let found = fixture.index.get(&key(number)).expect("reads");
            assert!(found == Some(value(number)), "{number}, {undamaged:#x}, then {damaged:#x}");
        }
        if is_older {
            // To restore the word would cut off the segments that were added since.
            assert!(!fixture.index.audit().expect("audits").is_consistent());
            continue;
        }
        if round % 3 == 0 {
            word.store(undamaged, Ordering::Release);
        }
        // A cursor that no split has used is reported; otherwise nothing is damaged.
        let audit = fixture.index.audit().expect("audits");
        let is_cursor = |off: u64| off == anchor + 16 || off == anchor + 24;
        assert!(
            audit.problems.iter().all(|problem| is_cursor(problem.node_off)),
            "{undamaged:#x}, then {damaged:#x}: {:?}",
            audit.problems
        );
    }
}

/// A base page has the kind of a partial page, which only a tree in a store has: each operation
/// that needs the page reports it, and none writes there.
#[test]
fn a_partial_page_in_a_tree_without_a_store_is_an_error() {
    let fixture = Fixture::<Process, BwTrees>::anonymous(Options::default());
    fixture.index.insert(b"base", b"1").expect("inserts");
    let anchor = fixture.index.audit().expect("audits").blocks[0].off;
    let link = fixture.pool.word(anchor).load(Ordering::Acquire);
    fixture.index.insert(b"delta", b"1").expect("inserts");
    let info = fixture.pool.word(link & 0xFFFF_FFFF_FFC0);
    let undamaged = info.load(Ordering::Acquire);
    info.store(undamaged & !0xF | 12, Ordering::Release);
    let tree = &fixture.index;
    for (what, done) in [
        ("get", tree.get(b"base").map(drop)),
        ("insert", tree.insert(b"new", b"2")),
        ("upsert", tree.upsert(b"delta", b"2").map(drop)),
        ("put", RangeIndex::put(tree, b"delta", b"2")),
        ("remove", tree.remove(b"delta").map(drop)),
        (
            "scan",
            tree.scan(KeyRange::all(), Order::Ascending)
                .and_then(|mut cursor| cursor.next().map(drop)),
        ),
    ] {
        assert!(matches!(done, Err(Error::Damaged { .. })), "{what}: {done:?}");
    }
    info.store(undamaged, Ordering::Release);
    assert_eq!(tree.get(b"delta").expect("reads").as_deref(), Some(&b"1"[..]));
}

/// A pointer to a value's block is damaged: reads and scans report it, and no write frees a block
/// of another record.
#[test]
fn a_damaged_pointer_to_a_value_is_an_error() {
    let fixture =
        Fixture::<Process, BwTrees>::anonymous(Options { inline_bytes: 8, ..small_plain() });
    fixture.index.insert(b"key", &[7; 100]).expect("inserts");
    fixture.index.insert(b"other", &[8; 100]).expect("inserts");
    let anchor = fixture.index.audit().expect("audits").blocks[0].off;
    let delta = fixture.pool.word(anchor).load(Ordering::Acquire) & 0xFFFF_FFFF_FFC0;
    // Behind two words of the delta, and eight bytes of the key.
    let pointer = fixture.pool.word(delta + 24);
    let undamaged = pointer.load(Ordering::Acquire);
    assert!(fixture.pool.active_block(undamaged).is_some(), "{undamaged:#x} is no block");
    for damage in [0, 4, u64::MAX, u64::MAX - 7, 1 << 47, fixture.pool.size_bytes()] {
        pointer.store(damage, Ordering::Release);
        let is_damage = |error: &pando_index::Error| error.to_string().contains("damaged");
        // Any word in the pool may look like a length.
        let read = fixture.index.get(b"other");
        assert!(damage == 0 || read.as_ref().is_err_and(is_damage), "{damage:#x}: {read:?}");
        assert!(fixture.index.upsert(b"other", b"new").is_err_and(|error| is_damage(&error)));
        assert!(fixture.index.remove(b"other").is_err_and(|error| is_damage(&error)));
        if damage != 0 {
            let mut cursor = fixture.index.scan(KeyRange::all(), Order::Ascending).expect("scans");
            let (key, _) = cursor.next().expect("the first is undamaged").expect("a record");
            assert_eq!(key, b"key");
            assert!((0..2).all(|_| cursor.next().is_err_and(|error| is_damage(&error))));
        }
        assert!(!fixture.index.audit().expect("audits").is_consistent());
    }
    pointer.store(undamaged, Ordering::Release);
    assert_eq!(fixture.index.get(b"other").expect("reads"), Some(vec![8; 100]));
    check(&fixture);
}

/// A root word of zero is valid only for a tree that has never had a record.
#[test]
fn a_root_that_is_gone_is_an_error() {
    for options in [small(), small_plain()] {
        let fixture = Fixture::<Process, BwTrees>::anonymous(options);
        assert!(fixture.index.get(b"key").expect("a tree without records").is_none());
        fixture.index.insert(b"key", b"value").expect("inserts");
        let anchor = fixture.index.audit().expect("audits").blocks[0].off;
        let root = fixture.pool.word(anchor);
        let undamaged = root.load(Ordering::Acquire);
        root.store(0, Ordering::Release);
        fixture.index.get(b"key").expect_err("the root is gone");
        fixture.index.insert(b"other", b"value").expect_err("the root is gone");
        fixture.index.len().expect_err("the root is gone");
        assert!(!fixture.index.audit().expect("audits").is_consistent());
        root.store(undamaged, Ordering::Release);
        assert!(fixture.index.remove(b"key").expect("removes"));
        assert!(fixture.index.get(b"key").expect("a tree without records").is_none());
        check(&fixture);
    }
}
