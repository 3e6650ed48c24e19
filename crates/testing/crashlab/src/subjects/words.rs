//! PMwCAS on words: several threads change overlapping sets of a few words.

use std::sync::Arc;

use pando_pmem::layout::CATALOG_OFF;
use pando_pmem::{Domain, Pool};
use pando_pmwcas::Pmwcas;

use super::{Model, Noted, Observed, Opened, Scenario, Setup, Subject, algorithm};
use pando_device::simulated::Simulated;
use pando_index::random::Random;

/// Words of the subject: the first words of the catalog, which has no map.
const WORDS: usize = 6;
/// Number of values of a word: few, so that values repeat.
const VALUES: u64 = 3;
/// Descriptors of a thread's own partition.
const OWN_DESCRIPTORS: usize = 7;

fn word_off(word: usize) -> u64 {
    CATALOG_OFF + word as u64 * 8
}

/// An operation on the words.
#[derive(Clone, Debug)]
pub enum Op {
    /// A PMwCAS: word, expected, new.
    Change(Vec<(usize, u64, u64)>),
    /// The same by a thread that already holds all its own descriptors.
    Crowded(Vec<(usize, u64, u64)>),
    /// The persistent CAS of one word. Its new values never repeat.
    Single(usize, u64, u64),
    /// A read.
    Read(usize),
}

/// An answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Whether the words were changed.
    Changed(bool),
    /// The value of the word.
    Holds(u64),
}

/// Words under PMwCAS, by the paper's algorithm or the default one.
pub struct Words<const RDCSS: bool>;

/// The words in an open pool.
pub struct Open<D: Domain>(Pmwcas<D>);

impl<const RDCSS: bool> Subject for Words<RDCSS> {
    type Model = WordsModel;
    type Open<D: Domain> = Open<D>;

    const NAME: &'static str = if RDCSS { "pmwcas-rdcss" } else { "pmwcas" };

    fn open<D: Domain>(pool: Arc<Pool<D>>, _: &Simulated) -> Result<Open<D>, String> {
        let pmwcas = Pmwcas::open(pool).map_err(|error| error.to_string())?;
        Ok(Open(pmwcas.with_algorithm(algorithm(RDCSS))))
    }

    fn scenarios() -> Vec<Scenario<WordsModel>> {
        vec![
            scenario("2-words-2-threads", 2, 2, 1, 3),
            scenario("2-words-3-threads", 2, 3, 1, 2),
            scenario("3-words-2-threads", 3, 2, 1, 2),
            scenario("3-words-3-threads", 3, 3, 2, 2),
            scenario("4-words-2-threads", 4, 2, 2, 2),
            scenario("4-words-3-threads", 4, 3, 2, 2),
            Scenario::new("borrowed-descriptors", 2, move || {
                Setup::new(Vec::new(), |random| {
                    let change = |word: usize| vec![(word, 0, 1), (word + 1, 0, 2)];
                    let crowded = Op::Crowded(change(random.below(2) as usize));
                    vec![vec![crowded], vec![Op::Change(change(1))]]
                })
            }),
            Scenario::new("1-word-cas", 2, move || {
                Setup::new(Vec::new(), |random| {
                    let task = |task: u64, random: &mut Random| {
                        let step = |step: u64| match random.below(3) {
                            0 => Op::Read(0),
                            _ => Op::Single(0, random.below(2) * (10 + step), 10 * task + step),
                        };
                        (1..4).map(step).collect()
                    };
                    (1..4).map(|number| task(number, random)).collect()
                })
            }),
        ]
    }
}

/// Words that change together.
#[derive(Debug)]
pub struct WordsModel;

impl Model for WordsModel {
    type Op = Op;
    type Answer = Answer;
    type State = [u64; WORDS];

    fn changes(op: &Op) -> Option<usize> {
        (!matches!(op, Op::Read(_))).then_some(0)
    }

    fn blank() -> [u64; WORDS] {
        [0; WORDS]
    }

    fn after(state: &[u64; WORDS], op: &Op, answer: Option<&Answer>) -> Option<[u64; WORDS]> {
        let change = |changes: &[(usize, u64, u64)]| {
            let fits = changes.iter().all(|&(word, expected, _)| state[word] == expected);
            match answer {
                Some(Answer::Changed(changed)) if *changed != fits => None,
                Some(Answer::Holds(_)) => None,
                _ if !fits => Some(*state),
                _ => {
                    let mut next = *state;
                    changes.iter().for_each(|&(word, _, new)| next[word] = new);
                    Some(next)
                }
            }
        };
        match op {
            Op::Change(changes) | Op::Crowded(changes) => change(changes),
            Op::Single(word, expected, new) => change(&[(*word, *expected, *new)]),
            Op::Read(word) => match answer {
                Some(Answer::Holds(value)) if state[*word] != *value => None,
                _ => Some(*state),
            },
        }
    }
}

fn scenario(
    name: &'static str,
    words: usize,
    tasks: usize,
    steps: usize,
    preemptions: u32,
) -> Scenario<WordsModel> {
    let op = move |random: &mut Random| {
        if random.one_in(5) {
            return Op::Read(random.below(words as u64 + 1) as usize);
        }
        // A window of neighbours, so that sets overlap; in any order of addresses.
        let spare = (WORDS - words).min(1) as u64;
        let first = random.below(spare + 1) as usize;
        let mut changes: Vec<_> = (first..first + words)
            .map(|word| {
                let expected = if random.one_in(3) { random.below(VALUES) } else { 0 };
                (word, expected, (expected + 1 + random.below(VALUES - 1)) % VALUES)
            })
            .collect();
        if random.one_in(2) {
            changes.reverse();
        }
        if random.one_in(4) {
            changes.truncate(1);
        }
        Op::Change(changes)
    };
    Scenario::new(name, preemptions, move || {
        Setup::new(Vec::new(), move |random| {
            let program = |random: &mut Random| {
                let steps = steps + random.below(2) as usize;
                (0..steps).map(|_| op(random)).collect()
            };
            (0..tasks).map(|_| program(random)).collect()
        })
    })
}

impl<D: Domain> Open<D> {
    /// `held` descriptors of the thread are in use already.
    fn change(&self, changes: &[(usize, u64, u64)], held: usize) -> Option<bool> {
        let guard = self.0.pool().pin().expect("a participant slot");
        let _held: Vec<_> = (0..held).map(|_| self.0.allocate(&guard)).collect();
        // There may be no other participant yet to borrow one from.
        let mut operation = self.0.allocate(&guard).ok()?;
        for &(word, expected, new) in changes {
            operation.add_word(word_off(word), expected, new).expect("words that differ");
        }
        Some(operation.execute())
    }

    fn read(&self, word: usize) -> u64 {
        let guard = self.0.pool().pin().expect("a participant slot");
        self.0.read(&guard, word_off(word))
    }
}

impl<D: Domain> Opened<WordsModel> for Open<D> {
    fn perform(&self, op: &Op) -> Vec<Noted<WordsModel>> {
        let answer = match op {
            Op::Change(changes) | Op::Crowded(changes) => {
                let held = if matches!(op, Op::Crowded(_)) { OWN_DESCRIPTORS } else { 0 };
                match self.change(changes, held) {
                    Some(changed) => Answer::Changed(changed),
                    None => return Vec::new(),
                }
            }
            Op::Single(word, expected, new) => {
                let guard = self.0.pool().pin().expect("a participant slot");
                let off = word_off(*word);
                Answer::Changed(self.0.compare_exchange(&guard, off, *expected, *new).is_ok())
            }
            Op::Read(word) => Answer::Holds(self.read(*word)),
        };
        vec![(0, op.clone(), answer)]
    }

    fn observe(&self) -> Result<Observed<WordsModel>, String> {
        let words: [u64; WORDS] = std::array::from_fn(|word| self.read(word));
        Ok([(0, words)].into())
    }

    fn audit(&self) -> Result<(), String> {
        super::no_references(self.0.pool(), (0..WORDS).map(word_off))?;
        super::compare_blocks(self.0.pool(), &[])
    }

    fn exercise(&self) -> Result<(), String> {
        let held: Vec<u64> = (0..WORDS).map(|word| self.read(word)).collect();
        let there: Vec<_> = (0..WORDS).map(|word| (word, held[word], 1_000)).collect();
        let back: Vec<_> = (0..WORDS).map(|word| (word, 1_000, held[word])).collect();
        if self.change(&there, 0) == Some(true) && self.change(&back, 0) == Some(true) {
            Ok(())
        } else {
            Err("a PMwCAS without contention fails".into())
        }
    }
}
