//! PMwCAS on words that own blocks: the recycling policies, readers of the blocks, and plain
//! operations on words in blocks that other threads free and reuse.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_pmem::layout::CATALOG_OFF;
use pando_pmem::{Domain, Guard, Pool, Reservation};
use pando_pmwcas::{Pmwcas, Policy};

use super::{Model, Noted, Observed, Opened, Scenario, Setup, Subject, algorithm};
use pando_device::simulated::Simulated;
use pando_index::random::Random;

/// Words of the subject.
const WORDS: usize = 4;
/// Bytes of a block that hold its stamp.
const BLOCK_BYTES: u64 = 128;
/// Offset in a block of the word that a mark changes, after the stamps.
const MARK_AT: u64 = BLOCK_BYTES;
/// Index of the mark in the state, after the stamps of the words.
const MARK: usize = WORDS;
/// Epochs after which a freed block is reused, and one more.
const EPOCHS: usize = 4;

fn word_off(word: usize) -> u64 {
    CATALOG_OFF + word as u64 * 8
}

/// The word outside of the blocks that a mark changes.
fn mark_off() -> u64 {
    word_off(MARK)
}

/// An operation on the words. Each word owns a block with a stamp, or none (zero).
#[derive(Clone, Debug)]
pub enum Op {
    /// Each of the words gets a new block with this stamp, and its old block is freed.
    Swap(Vec<usize>, u64),
    /// Each of the words loses its block.
    Clear(Vec<usize>),
    /// The block of one word moves to another, which loses its own.
    Move(usize, usize),
    /// The stamp of a word's block.
    Peek(usize),
    /// A plain operation: it changes a word in the block of a word, and the mark outside the
    /// blocks.
    Mark(usize, u64),
    /// Epochs pass, so that freed blocks are reused.
    Pass,
}

/// An answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Whether the words were changed. Another operation may have come first.
    Changed(bool),
    /// The stamp that was found.
    Stamp(u64),
}

/// Blocks owned by words under PMwCAS, by the paper's algorithm or the default one.
pub struct Blocks<const RDCSS: bool>;

/// The words in an open pool.
pub struct Open<D: Domain> {
    pmwcas: Pmwcas<D>,
}

impl<const RDCSS: bool> Subject for Blocks<RDCSS> {
    type Model = BlocksModel;
    type Open<D: Domain> = Open<D>;

    const NAME: &'static str = if RDCSS { "pmwcas-blocks-rdcss" } else { "pmwcas-blocks" };

    fn open<D: Domain>(pool: Arc<Pool<D>>, _: &Simulated) -> Result<Open<D>, String> {
        let pmwcas = Pmwcas::open(pool).map_err(|error| error.to_string())?;
        Ok(Open { pmwcas: pmwcas.with_algorithm(algorithm(RDCSS)) })
    }

    fn scenarios() -> Vec<Scenario<BlocksModel>> {
        vec![
            scenario("swap", |stamp, random| match random.below(4) {
                0 => Op::Peek(random.below(2) as usize),
                _ => Op::Swap(words(1, random), stamp),
            }),
            scenario("swap-2", |stamp, random| match random.below(6) {
                0 => Op::Peek(random.below(2) as usize),
                1 => Op::Clear(words(2, random)),
                _ => Op::Swap(words(2, random), stamp),
            }),
            scenario("swap-3", |stamp, random| match random.below(6) {
                0 => Op::Clear(words(3, random)),
                1 => Op::Swap(words(1, random), stamp),
                _ => Op::Swap(words(3, random), stamp),
            }),
            scenario("move", |stamp, random| match random.below(5) {
                0 => Op::Peek(random.below(2) as usize),
                1 => Op::Swap(words(1, random), stamp),
                _ => Op::Move(random.below(2) as usize, 2 + random.below(2) as usize),
            }),
            scenario("few-slots", |stamp, random| match random.below(4) {
                0 => Op::Peek(random.below(2) as usize),
                _ => Op::Swap(words(1, random), stamp),
            })
            .short_of_slots(),
            Scenario::new("reused-under-mark", 1, || {
                Setup::new(vec![Op::Swap(vec![0, 1], 1)], |random| {
                    let marks = (0..1 + random.below(2)).map(|step| Op::Mark(0, 10 + step));
                    let mut others = vec![Op::Clear(vec![0]), Op::Pass, Op::Swap(vec![1], 21)];
                    if random.one_in(2) {
                        others.extend([Op::Pass, Op::Swap(words(2, random), 22)]);
                    }
                    vec![marks.collect(), others]
                })
            }),
        ]
    }
}

/// Words that own blocks.
#[derive(Debug)]
pub struct BlocksModel;

impl Model for BlocksModel {
    type Op = Op;
    type Answer = Answer;
    type State = [u64; WORDS + 1];

    fn changes(op: &Op) -> Option<usize> {
        (!matches!(op, Op::Peek(_) | Op::Pass)).then_some(0)
    }

    fn blank() -> Self::State {
        [0; WORDS + 1]
    }

    fn after(state: &Self::State, op: &Op, answer: Option<&Answer>) -> Option<Self::State> {
        let mut next = *state;
        match (op, answer) {
            (Op::Peek(word), Some(Answer::Stamp(stamp))) => {
                return (state[*word] == *stamp).then_some(*state);
            }
            (Op::Peek(_) | Op::Pass, _) | (_, Some(Answer::Changed(false))) => {}
            (Op::Mark(_, mark), _) => next[MARK] = *mark,
            (Op::Swap(words, stamp), _) => words.iter().for_each(|&word| next[word] = *stamp),
            (Op::Clear(words), _) => words.iter().for_each(|&word| next[word] = 0),
            (Op::Move(from, to), _) => {
                next[*to] = state[*from];
                next[*from] = 0;
            }
        }
        Some(next)
    }
}

fn words(count: usize, random: &mut Random) -> Vec<usize> {
    let first = random.below(2) as usize;
    (first..first + count).collect()
}

fn scenario(name: &'static str, op: fn(u64, &mut Random) -> Op) -> Scenario<BlocksModel> {
    Scenario::new(name, 1, move || {
        Setup::new(vec![Op::Swap(vec![0, 1], 1)], move |random| {
            let program = |task: u64, random: &mut Random| {
                (0..1 + random.below(4)).map(|step| op(10 * task + step, random)).collect()
            };
            (1..3 + random.below(2)).map(|task| program(task, random)).collect()
        })
    })
}

impl<D: Domain> Open<D> {
    fn pin(&self) -> Guard<'_, D> {
        self.pmwcas.pool().pin().expect("a participant slot")
    }

    fn stamped<'guard, 'pool>(
        guard: &'guard Guard<'pool, D>,
        stamp: u64,
    ) -> Reservation<'guard, 'pool, D> {
        let mut block = guard.reserve(MARK_AT + 8).expect("room");
        (0..BLOCK_BYTES).step_by(8).for_each(|at| block.write_u64(at, stamp));
        block.write_u64(MARK_AT, 0);
        block.flush(0, MARK_AT + 8);
        block
    }

    /// The stamp of the block at `off`. The caller is pinned.
    fn stamp(&self, off: u64) -> Result<u64, String> {
        if off == 0 {
            return Ok(0);
        }
        let at = |at: u64| self.pmwcas.pool().word(off + at).load(Ordering::Acquire);
        let stamp = at(0);
        match (0..BLOCK_BYTES).step_by(8).find(|&byte| at(byte) != stamp) {
            Some(byte) => {
                Err(format!("the block at {off:#x} is torn or in use again: byte {byte}"))
            }
            None => Ok(stamp),
        }
    }

    fn swap(&self, words: &[usize], stamp: u64) -> bool {
        let guard = self.pin();
        let mut operation = self.pmwcas.allocate(&guard).expect("a descriptor");
        for &word in words {
            let old = self.pmwcas.read(&guard, word_off(word));
            let entry = operation
                .reserve_entry(word_off(word), old, Policy::FreeOne)
                .expect("words that differ");
            operation.activate(entry, Self::stamped(&guard, stamp));
        }
        operation.execute()
    }

    fn clear(&self, words: &[usize]) -> bool {
        let guard = self.pin();
        let mut operation = self.pmwcas.allocate(&guard).expect("a descriptor");
        for &word in words {
            let old = self.pmwcas.read(&guard, word_off(word));
            operation
                .reserve_entry(word_off(word), old, Policy::FreeOldOnSuccess)
                .expect("words that differ");
        }
        operation.execute()
    }

    /// `None` if the word has no block.
    fn mark(&self, word: usize, mark: u64) -> Option<bool> {
        let guard = self.pin();
        let block = self.pmwcas.read(&guard, word_off(word));
        if block == 0 {
            return None;
        }
        let mut operation = self.pmwcas.allocate(&guard).expect("a descriptor");
        for off in [block + MARK_AT, mark_off()] {
            let old = self.pmwcas.read(&guard, off);
            operation.add_word(off, old, mark).expect("words that differ");
        }
        Some(operation.execute())
    }

    fn shift(&self, from: usize, to: usize) -> bool {
        let guard = self.pin();
        let (moved, lost) =
            (self.pmwcas.read(&guard, word_off(from)), self.pmwcas.read(&guard, word_off(to)));
        let mut operation = self.pmwcas.allocate(&guard).expect("a descriptor");
        operation.add_word(word_off(from), moved, 0).expect("words that differ");
        operation.add_word(word_off(to), lost, moved).expect("words that differ");
        operation.own_block(lost, Policy::FreeOldOnSuccess).expect("room in the descriptor");
        operation.execute()
    }
}

impl<D: Domain> Opened<BlocksModel> for Open<D> {
    fn perform(&self, op: &Op) -> Vec<Noted<BlocksModel>> {
        // Always, and not only when many blocks wait: runs are short.
        self.pin().collect();
        let answer = match op {
            Op::Swap(words, stamp) => Answer::Changed(self.swap(words, *stamp)),
            Op::Clear(words) => Answer::Changed(self.clear(words)),
            Op::Move(from, to) => Answer::Changed(self.shift(*from, *to)),
            Op::Peek(word) => {
                let guard = self.pin();
                let off = self.pmwcas.read(&guard, word_off(*word));
                Answer::Stamp(self.stamp(off).unwrap_or_else(|error| panic!("{error}")))
            }
            Op::Mark(word, mark) => match self.mark(*word, *mark) {
                Some(changed) => Answer::Changed(changed),
                None => return Vec::new(),
            },
            Op::Pass => {
                (0..EPOCHS).for_each(|_| self.pin().collect());
                return Vec::new();
            }
        };
        vec![(0, op.clone(), answer)]
    }

    fn observe(&self) -> Result<Observed<BlocksModel>, String> {
        let guard = self.pin();
        let mut state = [0; WORDS + 1];
        for (word, stamp) in state[..WORDS].iter_mut().enumerate() {
            *stamp = self.stamp(self.pmwcas.read(&guard, word_off(word)))?;
        }
        state[MARK] = self.pmwcas.read(&guard, mark_off());
        Ok([(0, state)].into())
    }

    fn audit(&self) -> Result<(), String> {
        let outside = (0..WORDS).map(word_off).chain([mark_off()]);
        super::no_references(self.pmwcas.pool(), outside)?;
        let guard = self.pin();
        let owned = (0..WORDS).map(|word| self.pmwcas.read(&guard, word_off(word)));
        let owned: Vec<u64> = owned.filter(|&off| off != 0).collect();
        super::compare_blocks(self.pmwcas.pool(), &owned)
    }

    fn exercise(&self) -> Result<(), String> {
        const LAST: usize = WORDS - 1;
        let before = self.observe()?;
        let stamp = before[&0][LAST];
        if !self.swap(&[LAST], stamp + 1_000) {
            return Err("a PMwCAS without contention fails".into());
        }
        let again = if stamp == 0 { self.clear(&[LAST]) } else { self.swap(&[LAST], stamp) };
        if again { Ok(()) } else { Err("a PMwCAS without contention fails".into()) }
    }
}
