//! The scenarios of transactions: of a log without files, with snapshots; and of one with files.

use std::sync::Arc;

use pando_device::simulated::Simulated;
use pando_index::random::Random;
use pando_pmem::{Domain, Pool};

use super::map::Indexed;
use super::steps::{KEYS, Key, MAPS, Op, Seen, Step, TransactionsModel, Way};
use super::transactions::{Open, Transactions, rebuild};
use super::{Observed, Scenario, Setup, Subject};

/// The first key of each map.
pub const A: Key = (1, 0);
pub const B: Key = (2, 0);

impl<I: Indexed, const FILES: bool> Subject for Transactions<I, FILES> {
    type Model = TransactionsModel;
    type Open<D: Domain> = Open<I, D>;

    const NAME: &'static str = if FILES { "log" } else { "transactions" };
    const POOL_BYTES: u64 = I::POOL_BYTES;

    fn open<D: Domain>(pool: Arc<Pool<D>>, files: &Simulated) -> Result<Open<I, D>, String> {
        Open::new(pool, FILES.then_some(files))
    }

    fn rebuild(files: &Simulated) -> Result<Option<Observed<TransactionsModel>>, String> {
        match FILES {
            true => Ok(Some([(0, rebuild::<I>(files)?)].into())),
            false => Ok(None),
        }
    }

    fn scenarios() -> Vec<Scenario<TransactionsModel>> {
        if FILES { with_files() } else { without_files() }
    }
}

type Programs = Vec<Vec<Op>>;

fn scenario(
    name: &'static str,
    settled: usize,
    programs: impl Fn(&mut Random) -> Programs + 'static,
) -> Scenario<TransactionsModel> {
    let first = [Step::Put(A, 1), Step::Put(B, 5), Step::Put((2, 1), 3)];
    let mut prepare = vec![Op::Run(first.to_vec())];
    for _ in 0..settled {
        prepare.extend([Op::Run(vec![Step::Put(A, 1)]), Op::Settle]);
    }
    prepared(name, prepare, programs)
}

/// A scenario of maps on which these operations were performed.
pub fn prepared(
    name: &'static str,
    prepare: Vec<Op>,
    programs: impl Fn(&mut Random) -> Programs + 'static,
) -> Scenario<TransactionsModel> {
    Scenario::new(name, 1, move || Setup::new(prepare, programs))
}

pub fn run(steps: &[Step]) -> Op {
    Op::Run(steps.to_vec())
}

/// A thread that reads a snapshot: at once, and later in another way.
pub fn reader(random: &mut Random) -> Vec<Op> {
    let seen = Seen::default();
    let mut program = vec![Op::Take(seen.clone())];
    program.extend((0..2).map(|_| Op::Look(seen.clone(), way(random))));
    if random.one_in(2) {
        program.push(Op::Release);
    }
    program
}

/// A thread that runs a transaction over a snapshot.
fn over_snapshot(random: &mut Random, steps: &[Step]) -> Vec<Op> {
    let seen = Seen::default();
    let look = random.one_in(2).then(|| Op::Look(seen.clone(), way(random)));
    let commit = Op::Commit(seen.clone(), steps.to_vec());
    [Op::Begin(seen)].into_iter().chain(look).chain([commit]).collect()
}

fn way(random: &mut Random) -> Way {
    *random.pick(&[Way::Gets, Way::Ascending, Way::Descending])
}

fn without_files() -> Vec<Scenario<TransactionsModel>> {
    let fixed = |name, programs: Vec<Vec<Vec<Step>>>| {
        scenario(name, 0, move |_| {
            let runs = |program: &Vec<_>| program.iter().cloned().map(Op::Run).collect();
            programs.iter().map(runs).collect()
        })
    };
    vec![
        // Whatever is read or settled must be durable.
        fixed("read", vec![vec![vec![Step::Put(A, 7)]], vec![vec![Step::Get(A)]]]),
        scenario("settle", 0, move |_| vec![vec![run(&[Step::Put(A, 7)])], vec![Op::Settle]]),
        fixed("write-skew", vec![vec![vec![Step::Add(A, B)]], vec![vec![Step::Add(B, A)]]]),
        fixed(
            "phantoms",
            vec![vec![vec![Step::Count(1, (2, 2))]], vec![vec![Step::Count(2, (1, 2))]]],
        ),
        // The second comes behind the first, and the third sees it.
        fixed(
            "reader",
            vec![
                vec![vec![Step::Add(A, B)]],
                vec![vec![Step::Put(A, 7)], vec![Step::Get(A), Step::Get(B)]],
            ],
        ),
        fixed(
            "same-keys",
            vec![
                vec![vec![Step::Put((1, 1), 3), Step::Remove(A), Step::Put(B, 4)]],
                vec![vec![Step::Remove((1, 1)), Step::Put(A, 6), Step::Remove(B)]],
            ],
        ),
        scenario("any", 0, |random| {
            let threads = 2 + random.below(2);
            let runs =
                |random: &mut Random| (0..1 + random.below(2)).map(|_| any(random)).collect();
            (0..threads).map(|_| runs(random)).collect()
        }),
        scenario("snapshot", 0, |random| {
            vec![
                reader(random),
                vec![run(&[Step::Put(A, 7), Step::Remove(B), Step::Put((2, 2), 4)])],
            ]
        }),
        // The second transaction reads what the first replaces, and may come before it.
        scenario("snapshot-order", 0, |random| {
            vec![reader(random), vec![run(&[Step::Put(A, 7)])], vec![run(&[Step::Add(A, B)])]]
        }),
        // Two threads replace the same version, and one comes late.
        scenario("snapshot-late", 0, |random| {
            let mut first = vec![run(&[Step::Put(A, 8)])];
            first.extend(reader(random));
            first.insert(2, run(&[Step::Put(A, 9)]));
            vec![first, vec![run(&[Step::Put(A, 7)])]]
        }),
        // Tombstones become ripe.
        scenario("snapshot-tombstones", 0, |random| {
            let first = match random.one_in(2) {
                true => reader(random),
                false => over_snapshot(random, &[Step::Put(A, 5), Step::Put((1, 1), 6)]),
            };
            let mut second = vec![run(&[Step::Remove(A), Step::Put((1, 1), 5)])];
            second.extend([run(&[Step::Remove((1, 1))]), Op::Reclaim]);
            second.extend((0..2).map(|value| run(&[Step::Put((2, 2), value)])));
            vec![first, second]
        }),
        scenario("snapshot-writes", 0, |random| {
            // Each writes what another one reads, or the same keys.
            let steps: [&[Step]; 2] = match random.one_in(2) {
                true => [&[Step::Add(A, B)], &[Step::Add(B, A)]],
                false => [&[Step::Add(A, A), Step::Put(B, 6)], &[Step::Add(A, A)]],
            };
            let mut programs: Programs =
                steps.iter().map(|steps| over_snapshot(random, steps)).collect();
            programs.extend(random.one_in(2).then(|| vec![run(steps[1])]));
            programs
        }),
        // Writes of one key, beside one another and beside a thread that settles.
        scenario("alone", 0, |random| {
            let threads = 2 + random.below(2);
            let mut programs: Programs = (0..threads)
                .map(|_| (0..1 + random.below(2)).map(|_| alone(random)).collect())
                .collect();
            programs[0].insert(0, Op::Settle);
            programs
                .extend(random.one_in(2).then(|| vec![run(&[Step::Put(A, 8), Step::Put(B, 8)])]));
            programs
        }),
        // A thread settles such a write, which began before the snapshot was there.
        scenario("snapshot-alone", 0, |random| {
            let mut first = reader(random);
            first.insert(1, Op::Settle);
            vec![first, vec![Op::Alone(Step::Put(A, 7))]]
        }),
        scenario("snapshot-any", 0, |random| {
            let threads = 2 + random.below(2);
            (0..threads).map(|_| any_program(random)).collect()
        }),
    ]
}

fn with_files() -> Vec<Scenario<TransactionsModel>> {
    let put = |value| run(&[Step::Put(A, value), Step::Put(B, value)]);
    vec![
        // Two threads seal and write blocks.
        scenario("settle", 1, move |_| {
            vec![vec![put(4), Op::Settle], vec![run(&[Step::Put((1, 1), 5)]), Op::Settle]]
        }),
        // So does one while another one writes a key through its map.
        scenario("alone", 1, |random| vec![vec![alone(random), Op::Settle], vec![alone(random)]]),
        // The threads of one process wait for one of them.
        scenario("sync", 1, move |_| vec![vec![put(4), Op::Sync], vec![put(5), Op::Sync]]),
        scenario("image", 1, move |_| {
            vec![vec![put(4), Op::Image], vec![put(5), run(&[Step::Remove(A), Step::Put(B, 7)])]]
        }),
        // A block begins a segment, and the one before is not needed any more.
        scenario("truncate", 15, move |_| {
            let first = vec![put(4), Op::Settle, put(5), Op::Settle, Op::Image];
            vec![first, vec![put(6), Op::Settle]]
        }),
        // The file of such a segment is used again, and the writer of its last block is late.
        scenario("late-writer", 15, move |_| {
            let late = vec![put(6), Op::Settle];
            let first = [put(4), Op::Settle, put(5), Op::Settle, Op::Image];
            let next = [Op::Fill, put(7), Op::Settle];
            vec![late, [&first[..], &next].concat()]
        }),
        scenario("any", 14, |random| {
            let mut programs: Programs = (0..2 + random.below(2))
                .map(|_| (0..1 + random.below(3)).map(|_| any_with_files(random)).collect())
                .collect();
            programs[0].push(Op::Image);
            programs
        }),
    ]
}

/// A write of one of few keys, through its map.
fn alone(random: &mut Random) -> Op {
    let key = *random.pick(&[A, B, (1, 1)]);
    Op::Alone(match random.below(4) {
        0 => Step::Remove(key),
        1 => Step::Add(key, key),
        _ => Step::Put(key, random.below(250) as u8),
    })
}

pub fn put_alone(key: Key, value: u8) -> Op {
    Op::Alone(Step::Put(key, value))
}

/// Any operation of a thread that holds nothing.
pub fn any(random: &mut Random) -> Op {
    if random.one_in(8) {
        return Op::Settle;
    }
    if random.one_in(4) {
        return alone(random);
    }
    Op::Run((0..1 + random.below(3)).map(|_| any_step(random)).collect())
}

/// Any operation but an image.
fn any_with_files(random: &mut Random) -> Op {
    if random.one_in(3) { Op::Settle } else { any(random) }
}

/// Any program, with snapshots.
fn any_program(random: &mut Random) -> Vec<Op> {
    match random.below(3) {
        0 => reader(random),
        1 => {
            let steps: Vec<_> = (0..1 + random.below(3)).map(|_| any_step(random)).collect();
            over_snapshot(random, &steps)
        }
        _ => (0..1 + random.below(3)).map(|_| any(random)).collect(),
    }
}

fn any_step(random: &mut Random) -> Step {
    let key = |random: &mut Random| (*random.pick(&MAPS), random.below(KEYS.into()) as u8);
    let (from, to) = (key(random), key(random));
    match random.below(8) {
        0 | 1 => Step::Get(from),
        2 | 3 => Step::Put(from, random.below(250) as u8),
        4 => Step::Remove(from),
        5 => Step::Count(from.0, (MAPS[0] + MAPS[1] - from.0, from.1)),
        _ => Step::Add(from, to),
    }
}

#[cfg(test)]
mod tests {
    use pando_device::Directory;
    use pando_pmem::{CreateOptions, Process};

    use super::super::Opened;
    use super::super::indexes::BzTrees;
    use super::*;

    /// The numbers of the files whose names begin so.
    fn numbers(files: &Simulated, prefix: &str) -> Vec<u64> {
        let names = files.names().unwrap();
        let digits = names.iter().filter_map(|name| name.strip_prefix(prefix));
        let mut numbers: Vec<_> =
            digits.map(|digits| u64::from_str_radix(digits, 16).unwrap()).collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn the_file_with_the_block_of_the_late_writer_is_used_again() {
        let scenario = with_files().into_iter().find(|it| it.name == "late-writer").unwrap();
        let setup = scenario.set_up();
        let files = Simulated::new();
        let options = CreateOptions { max_bytes: 16 << 20, ..CreateOptions::default() };
        let pool = Pool::<Process>::anonymous(&options).unwrap();
        let open = Open::<BzTrees, Process>::new(pool, Some(&files)).unwrap();
        let perform = |ops: &[Op]| ops.iter().for_each(|op| drop(open.perform(op)));
        perform(&setup.prepare);
        let programs = (setup.programs)(&mut Random::new(1));
        let [late, other] = &programs[..] else { panic!("two threads") };
        let files = |prefix: &str| numbers(&files, prefix);
        perform(late);
        assert_eq!((files("segment-"), files("spare-").len()), (vec![0], 0));
        let (before, after) = other.split_at(5);
        perform(before);
        assert_eq!((files("segment-"), files("spare-").len()), (vec![1], 1));
        let (fill, after) = after.split_at(1);
        perform(fill);
        assert_eq!((files("segment-"), files("spare-").len()), (vec![1], 1));
        perform(after);
        assert_eq!((files("segment-"), files("spare-").len()), (vec![1, 2], 0));
    }
}
