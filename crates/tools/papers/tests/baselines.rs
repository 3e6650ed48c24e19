//! The trees that the wB+-Trees are compared with, against a model and against the paper's table 3.
//! That table has the words written, write-backs and fences of an insert without a split and of a
//! delete without a merge, as formulas for m valid entries. Log records that span two lines take
//! two write-backs, which the paper's estimates leave out (its section 5.2).

use pando_index::random::Random;
use pando_papers::baselines::{BASELINES, Baseline, Leaves, Scheme};
use pando_pmem::counting::{Counting, Counts, measure};
use pando_pmem::{Adr, CreateOptions, Pool};

/// Lines of a node, as in the table's example: n is 31.
const LINES: u64 = 8;

/// Words, write-backs and fences, on average.
type Mean = [f64; 3];

fn key(place: u64) -> u64 {
    place * 10 + 10
}

/// One insert at each place among m entries, and one delete of each of m entries.
fn baseline(leaves: Leaves, scheme: Scheme, m: u64) -> (Mean, Mean) {
    let filled = || {
        let pool = Pool::<Counting>::anonymous(&CreateOptions::default()).expect("memory");
        let tree = Baseline::<_, false>::new(pool, leaves, scheme, LINES).expect("a tree");
        (0..m).for_each(|place| assert!(tree.insert(key(place), 1).expect("an answer")));
        tree
    };
    let inserts: Vec<Counts> = (0..=m)
        .map(|place| {
            let tree = filled();
            measure(|| assert!(tree.insert(key(place) - 5, 1).expect("an answer"))).1
        })
        .collect();
    let deletes: Vec<Counts> = (0..m)
        .map(|place| {
            let tree = filled();
            measure(|| assert!(tree.remove(key(place)).expect("an answer"))).1
        })
        .collect();
    (Counts::means(&inserts), Counts::means(&deletes))
}

#[test]
fn baselines_meet_the_formulas() {
    for m in [7, 21] {
        let f = m as f64;
        let entries = |leaves, scheme| match (leaves, scheme) {
            (Leaves::Sorted, Scheme::UndoRedo) => {
                ([4.0 * f + 12.0, f + 3.0, f + 3.0], [4.0 * f, f, f])
            }
            (Leaves::Unsorted, Scheme::UndoRedo) => ([10.0, 2.0, 2.0], [12.0, 3.0, 3.0]),
            (Leaves::Bitmap, Scheme::UndoRedo) => ([10.0, 2.0, 2.0], [4.0, 1.0, 1.0]),
            (_, Scheme::Shadow) => {
                ([2.0 * f + 11.0, 0.25 * f + 2.5, 2.0], [2.0 * f + 7.0, 0.25 * f + 2.0, 2.0])
            }
            (_, Scheme::Volatile) => ([f + 3.0, 0.0, 0.0], [f, 0.0, 0.0]),
        };
        for (name, leaves, scheme) in BASELINES {
            let (insert, delete) = baseline(leaves, scheme, m);
            let (insert_formula, delete_formula) = entries(leaves, scheme);
            for (what, found, formula) in
                [("insert", insert, insert_formula), ("delete", delete, delete_formula)]
            {
                println!("{name}, m = {m}, {what}: {found:.2?} by count, {formula:.2?} by formula");
                // Deleting the last of an unsorted leaf moves it onto itself, as the formula has
                // it.
                assert!((found[0] - formula[0]).abs() < 1e-9, "{name}, {what}: words {found:?}");
                assert!((found[2] - formula[2]).abs() < 1e-9, "{name}, {what}: fences {found:?}");
                // Lines are whole, and records of three words span two in a quarter of the cases.
                let most = formula[1] * 1.3 + 1.0;
                assert!(
                    found[1] >= formula[1] * 0.9 - 0.6 && found[1] <= most,
                    "{name}, {what}: {found:?}"
                );
            }
        }
    }
}

/// The baselines hold what was inserted, over splits.
#[test]
fn baselines_follow_a_model() {
    for (name, leaves, scheme) in BASELINES {
        let create = CreateOptions { max_bytes: 1 << 28, ..CreateOptions::default() };
        let pool = Pool::<Adr>::anonymous(&create).expect("memory");
        let tree = Baseline::<_, false>::new(pool, leaves, scheme, 2).expect("a tree");
        let mut model = std::collections::BTreeMap::new();
        let mut random = Random::new(5);
        for step in 0..6000 {
            let key = random.below(900);
            if random.one_in(3) {
                assert_eq!(
                    tree.remove(key).expect("an answer"),
                    model.remove(&key).is_some(),
                    "{name}"
                );
            } else {
                let is_new = tree.insert(key, step).expect("an answer");
                assert_eq!(is_new, !model.contains_key(&key), "{name}");
                model.entry(key).or_insert(step);
            }
            let other = random.below(900);
            assert_eq!(tree.get(other), model.get(&other).copied(), "{name}, step {step}");
        }
        let mut found = Vec::new();
        tree.for_each(&mut |key, value| found.push((key, value)));
        assert_eq!(found, model.into_iter().collect::<Vec<_>>(), "{name}");
    }
}

/// And those of string keys.
#[test]
fn baselines_of_strings_follow_a_model() {
    for (name, leaves, scheme) in BASELINES {
        let create = CreateOptions { max_bytes: 1 << 28, ..CreateOptions::default() };
        let pool = Pool::<Adr>::anonymous(&create).expect("memory");
        let tree = Baseline::<_, true>::new(pool, leaves, scheme, 4).expect("a tree");
        let mut model = std::collections::BTreeMap::new();
        let mut random = Random::new(6);
        for step in 0..4000 {
            // Of several lengths, and with a beginning in common.
            let key = format!("key {:0width$}", random.below(700), width = step as usize % 3);
            if random.one_in(3) {
                let was_there = tree.remove(key.as_bytes()).expect("an answer");
                assert_eq!(was_there, model.remove(&key).is_some(), "{name}");
            } else {
                let is_new = tree.insert(key.as_bytes(), step).expect("an answer");
                assert_eq!(is_new, !model.contains_key(&key), "{name}");
                model.entry(key).or_insert(step);
            }
            let other = format!("key {}", random.below(700));
            let found = tree.get(other.as_bytes());
            assert_eq!(found, model.get(&other).copied(), "{name}, step {step}");
        }
        let mut found = Vec::new();
        tree.for_each(&mut |_, value| found.push(value));
        assert_eq!(found, model.into_values().collect::<Vec<_>>(), "{name}");
    }
}
