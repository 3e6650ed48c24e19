//! PMwCAS on words that own blocks: the recycling policies, and readers of the blocks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_pmem::layout::CATALOG_OFF;
use pando_pmem::{Domain, Guard, Pool, Reservation};
use pando_pmwcas::{Pmwcas, Policy};

use super::{Noted, Observed, Opened, Scenario, Setup, Subject};
use crate::random::Random;

/// Words of the subject.
const WORDS: usize = 4;
/// Bytes of a block.
const BLOCK_BYTES: u64 = 128;

fn word_off(word: usize) -> u64 {
    CATALOG_OFF + word as u64 * 8
}

/// What is done to the words. Each word owns a block that bears a stamp, or none (zero).
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
}

/// What is answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Whether the words were changed; another may have come first.
    Changed(bool),
    /// The stamp that was there.
    Stamp(u64),
}

/// Blocks owned by words under PMwCAS.
pub struct Blocks;

/// The words in an open pool.
pub struct Open<D: Domain>(Pmwcas<D>);

impl Subject for Blocks {
    type Op = Op;
    type Answer = Answer;
    type State = [u64; WORDS];
    type Open<D: Domain> = Open<D>;

    const NAME: &'static str = "pmwcas-blocks";

    fn open<D: Domain>(pool: Arc<Pool<D>>) -> Result<Open<D>, String> {
        Pmwcas::open(pool, &[]).map(Open).map_err(|error| error.to_string())
    }

    fn scenarios() -> Vec<Scenario<Self>> {
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
        ]
    }

    fn changes(op: &Op) -> Option<usize> {
        (!matches!(op, Op::Peek(_))).then_some(0)
    }

    fn blank() -> [u64; WORDS] {
        [0; WORDS]
    }

    fn after(state: &[u64; WORDS], op: &Op, answer: Option<&Answer>) -> Option<[u64; WORDS]> {
        let mut next = *state;
        match (op, answer) {
            (Op::Peek(word), Some(Answer::Stamp(stamp))) => {
                return (state[*word] == *stamp).then_some(*state);
            }
            (Op::Peek(_), _) | (_, Some(Answer::Changed(false))) => {}
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

fn scenario(name: &'static str, op: fn(u64, &mut Random) -> Op) -> Scenario<Blocks> {
    Scenario::new(name, 1, move || Setup {
        prepare: vec![Op::Swap(vec![0, 1], 1)],
        programs: Box::new(move |random| {
            let program = |task: u64, random: &mut Random| {
                (0..1 + random.below(4)).map(|step| op(10 * task + step, random)).collect()
            };
            (1..3 + random.below(2)).map(|task| program(task, random)).collect()
        }),
    })
}

impl<D: Domain> Open<D> {
    fn pin(&self) -> Guard<'_, D> {
        self.0.pool().pin().expect("a participant slot")
    }

    fn stamped<'guard, 'pool>(
        guard: &'guard Guard<'pool, D>,
        stamp: u64,
    ) -> Reservation<'guard, 'pool, D> {
        let mut block = guard.reserve(BLOCK_BYTES).expect("room");
        (0..BLOCK_BYTES).step_by(8).for_each(|at| block.write_u64(at, stamp));
        block.flush(0, BLOCK_BYTES);
        block
    }

    /// The stamp of the block at `off`, for which the caller is pinned.
    fn stamp(&self, off: u64) -> Result<u64, String> {
        if off == 0 {
            return Ok(0);
        }
        let at = |at: u64| self.0.pool().word(off + at).load(Ordering::Acquire);
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
        let mut operation = self.0.allocate(&guard).expect("a descriptor");
        for &word in words {
            let old = self.0.read(&guard, word_off(word));
            let entry = operation
                .reserve_entry(word_off(word), old, Policy::FreeOne)
                .expect("words that differ");
            operation.activate(entry, Self::stamped(&guard, stamp));
        }
        operation.execute()
    }

    fn clear(&self, words: &[usize]) -> bool {
        let guard = self.pin();
        let mut operation = self.0.allocate(&guard).expect("a descriptor");
        for &word in words {
            let old = self.0.read(&guard, word_off(word));
            operation
                .reserve_entry(word_off(word), old, Policy::FreeOldOnSuccess)
                .expect("words that differ");
        }
        operation.execute()
    }

    fn shift(&self, from: usize, to: usize) -> bool {
        let guard = self.pin();
        let (moved, lost) =
            (self.0.read(&guard, word_off(from)), self.0.read(&guard, word_off(to)));
        let mut operation = self.0.allocate(&guard).expect("a descriptor");
        operation.add_word(word_off(from), moved, 0).expect("words that differ");
        operation.add_word(word_off(to), lost, moved).expect("words that differ");
        operation.own_block(lost, Policy::FreeOldOnSuccess).expect("room in the descriptor");
        operation.execute()
    }
}

impl<D: Domain> Opened<Blocks> for Open<D> {
    fn perform(&self, op: &Op) -> Vec<Noted<Blocks>> {
        // At once, and not only when many blocks wait: runs are short.
        self.pin().collect();
        let answer = match op {
            Op::Swap(words, stamp) => Answer::Changed(self.swap(words, *stamp)),
            Op::Clear(words) => Answer::Changed(self.clear(words)),
            Op::Move(from, to) => Answer::Changed(self.shift(*from, *to)),
            Op::Peek(word) => {
                let guard = self.pin();
                let off = self.0.read(&guard, word_off(*word));
                Answer::Stamp(self.stamp(off).unwrap_or_else(|error| panic!("{error}")))
            }
        };
        vec![(0, op.clone(), answer)]
    }

    fn observe(&self) -> Result<Observed<Blocks>, String> {
        let guard = self.pin();
        let mut stamps = [0; WORDS];
        for (word, stamp) in stamps.iter_mut().enumerate() {
            *stamp = self.stamp(self.0.read(&guard, word_off(word)))?;
        }
        Ok([(0, stamps)].into())
    }

    fn audit(&self) -> Result<(), String> {
        super::no_references(self.0.pool(), (0..WORDS).map(word_off))?;
        let guard = self.pin();
        let owned = (0..WORDS).map(|word| self.0.read(&guard, word_off(word)));
        let owned: Vec<u64> = owned.filter(|&off| off != 0).collect();
        super::compare_blocks(self.0.pool(), &owned)
    }

    fn exercise(&self) -> Result<(), String> {
        let before = self.observe()?;
        let stamp = before[&0][WORDS - 1];
        if !self.swap(&[WORDS - 1], stamp + 1_000) {
            return Err("a PMwCAS that nobody opposes fails".into());
        }
        let again =
            if stamp == 0 { self.clear(&[WORDS - 1]) } else { self.swap(&[WORDS - 1], stamp) };
        if again { Ok(()) } else { Err("a PMwCAS that nobody opposes fails".into()) }
    }
}
