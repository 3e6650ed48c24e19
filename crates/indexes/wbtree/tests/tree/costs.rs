//! Words written, write-backs and fences of operations, counted, as in the paper's table 3. Its
//! baselines, and the formulas for them, are in `crates/tools/papers/tests/baselines.rs`.

use pando_index::RangeIndex;
use pando_pmem::counting::{Counting, Counts, measure};
use pando_wbtree::{NodeKind, Options, RecordBytes};

use crate::common::Fixture;

fn key(place: u64) -> u64 {
    place * 10 + 10
}

/// Our nodes of every kind write as many words, and take as few write-backs and fences, as the
/// paper's slot-only and bitmap-only nodes: the slot words need none. If cells are in the state's
/// line an insert takes one of each, less than the paper's, which writes cells back before the
/// state.
#[test]
fn ours_take_two_fences_to_insert_and_one_to_delete() {
    for leaf in [NodeKind::SlotBitmap, NodeKind::BitmapOnly, NodeKind::SlotOnly] {
        let m = if leaf == NodeKind::SlotOnly { 4 } else { 21 };
        let options = Options { leaf, records: RecordBytes::Fixed, ..Options::default() };
        let fixture = Fixture::<Counting>::anonymous(options);
        let tree = &fixture.index;
        for place in 0..m {
            tree.insert(&key(place).to_be_bytes(), &[1; 8]).expect("an answer");
        }
        let insert = measure(|| tree.insert(&15u64.to_be_bytes(), &[1; 8]).expect("an answer")).1;
        let delete = measure(|| assert!(tree.remove(&15u64.to_be_bytes()).expect("an answer"))).1;
        let update = measure(|| tree.update(&key(2).to_be_bytes(), &[2; 8]).expect("an answer")).1;
        println!("{leaf:?}, m = {m}: insert {insert:?}, delete {delete:?}, update {update:?}");
        let put = if leaf == NodeKind::SlotBitmap { 2 } else { 1 };
        assert_eq!((insert.flushes, insert.fences), (put, put), "{leaf:?}");
        assert_eq!((delete.flushes, delete.fences), (1, 1), "{leaf:?}");
        assert_eq!((update.flushes, update.fences), (put, put), "{leaf:?}");
        // Of an insert: two words of the cell and the state, as in the table; the claim and its
        // release, the durable version, and slot words, which are not written back.
        let slot_words = if leaf == NodeKind::SlotBitmap { 3 } else { 0 };
        assert_eq!(insert.words_written, 3 + 3 + slot_words, "{leaf:?}");
        assert_eq!(delete.words_written, 1 + 1 + slot_words, "{leaf:?}");
    }
}

/// Each third insert finds both near cells taken: it writes its own cell far away, with copies of
/// both, of two words each, in one or two lines, and takes the two fences of the paper. The mean is
/// below the table's.
#[test]
fn two_of_three_inserts_take_one_fence() {
    let options =
        Options { leaf: NodeKind::BitmapOnly, records: RecordBytes::Fixed, ..Options::default() };
    let fixture = Fixture::<Counting>::anonymous(options);
    let mut counts = Vec::new();
    for place in 0..21 {
        let insert = || fixture.index.insert(&key(place * 8 % 21).to_be_bytes(), &[1; 8]);
        let (answer, found) = measure(insert);
        answer.expect("an answer");
        let is_near = place % 3 != 2;
        let lines = if is_near { 0..=0 } else { 1..=2 };
        assert!(lines.contains(&(found.flushes - 1)), "insert {place}: {found:?}");
        assert_eq!(found.fences, if is_near { 1 } else { 2 }, "insert {place}");
        // The first one looks for the dirty bit in vain, because the state is that of a new node.
        let swaps = u64::from(place == 0);
        assert_eq!(found.words_written, swaps + if is_near { 6 } else { 10 }, "insert {place}");
        counts.push(found);
    }
    let [words, flushes, fences] = Counts::means(&counts);
    println!("{words:.2} words, {flushes:.2} write-backs, {fences:.2} fences");
    assert!(flushes < 2.0 && fences < 1.34, "{flushes} write-backs, {fences} fences");
}

/// A scan backwards goes from leaf to leaf: it reads no more lines than one forwards.
#[test]
fn scans_backwards_cost_what_scans_forwards_do() {
    use pando_index::{KeyRange, Order};
    let options = Options { records: RecordBytes::Fixed, ..Options::default() };
    let fixture = Fixture::<Counting>::anonymous(options);
    let tree = &fixture.index;
    for place in 0..3_000 {
        tree.insert(&(place * 1_237 % 3_000_u64).to_be_bytes(), &[1; 8]).expect("an answer");
    }
    let lines_of = |order| {
        let scan = || {
            let mut cursor = tree.scan(KeyRange::all(), order).expect("a scan");
            let mut records = 0;
            while cursor.next().expect("a record").is_some() {
                records += 1;
            }
            records
        };
        let (records, counts) = measure(scan);
        assert_eq!((records, counts.words_written, counts.fences), (3_000, 0, 0), "{order:?}");
        counts.lines_read
    };
    let (forwards, backwards) = (lines_of(Order::Ascending), lines_of(Order::Descending));
    println!("lines read of 3,000 records: {forwards} forwards, {backwards} backwards");
    assert!(backwards * 100 <= forwards * 102, "{backwards} for {forwards}");
}

/// The average costs of inserts that split a leaf and no node above it. If there is a leaf to the
/// right, its pointer is one more word of the same PMwCAS: three write-backs and a fence more.
#[test]
fn a_split_changes_one_word_of_one_leaf_more() {
    use pando_tree::maps::Tree;
    for leaf in [NodeKind::SlotBitmap, NodeKind::BitmapOnly] {
        let options = Options { leaf, records: RecordBytes::Fixed, ..Options::default() };
        let fixture = Fixture::<Counting>::anonymous(options);
        let mut splits = [Vec::new(), Vec::new()];
        // If the right leaf is the last one, there is no leaf to the right of it.
        let shape = || {
            let stat = fixture.index.audit().expect("audits").stat;
            (stat.inner_nodes, stat.leaves)
        };
        for (place, splits) in splits.iter_mut().enumerate() {
            for number in 0..200_u64 {
                let number = if place == 0 { 1_000_000 + number } else { 999_999 - number };
                let (inner_nodes, leaves) = shape();
                let insert = || fixture.index.insert(&number.to_be_bytes(), &[1; 8]);
                let (answer, counts) = measure(insert);
                answer.expect("an answer");
                if inner_nodes > 0 && shape() == (inner_nodes, leaves + 1) {
                    splits.push(counts);
                }
            }
        }
        let [last, inner] = splits.map(|counts| Counts::means(&counts));
        println!("{leaf:?}: a split of the last leaf {last:.2?}, of another {inner:.2?}");
        let more = [1, 2].map(|field| inner[field] - last[field]);
        // For a bitmap-only leaf: in one case the record goes to a near cell of the new leaf. In
        // the other case it goes to the old leaf, whose near cells are taken, with copies of them
        // in up to two lines.
        let far = if leaf == NodeKind::BitmapOnly { [2.0, 1.0] } else { [0.0; 2] };
        assert!(
            more[0] <= 3.5 + far[0] && more[1] <= 1.0 + far[1],
            "{leaf:?}: a split takes {inner:?} for {last:?}"
        );
    }
}
