//! Figures 11 and 12: the trees on the paper's medium, by a model of it
//! ([`pcm`](crate::pcm)).

use crate::baselines::BASELINES;
use indicatif::ProgressBar;

use super::{ON_ORDINARY_MEMORY, OPERATIONS, Says, refused, trees};
use crate::error::Error;
use crate::experiment::Settings;
use crate::outcome::{Measured, Outcome, Published};
use crate::pcm::{self, Done, Pcm};
use pando_bench::keys::key_of;
use pando_bench::rng::Rng;

/// What each tree's operations, one batch of each kind, take of the paper's medium; by operation.
type OnMedium = Vec<(&'static str, [Done; 3], u64)>;

/// Searches, insertions and deletions in nodes of `lines` lines, on the modelled medium.
fn on_medium(
    settings: &Settings,
    lines: u64,
    records: u64,
    progress: &ProgressBar,
) -> Result<OnMedium, Error> {
    let trees = trees::<Pcm>(settings, lines).map_err(refused)?;
    let batch = (records / 20).clamp(1, 100_000);
    progress.set_length(trees.len() as u64);
    let mut taken = OnMedium::new();
    for (name, tree) in trees.iter().filter(|tree| tree.0 != ON_ORDINARY_MEMORY) {
        let is_loaded = (0..records).all(|number| tree.insert(key_of(number)));
        let mut rng = Rng::new(settings.seed);
        let numbers: Vec<u64> =
            (0..2 * batch).map(|_| batch + rng.below(records - batch)).collect();
        let (warming, searched) = numbers.split_at(batch as usize);
        pcm::begin();
        let is_warm = warming.iter().all(|&number| tree.get(key_of(number)));
        let mut before = pcm::done();
        let mut is_done = is_loaded && is_warm;
        let mut took = |work: &mut dyn FnMut(u64) -> bool| {
            is_done &= (0..batch).all(work);
            let now = pcm::done();
            now.since(std::mem::replace(&mut before, now))
        };
        let done = [
            took(&mut |step| tree.get(key_of(searched[step as usize]))),
            took(&mut |step| tree.insert(key_of(records + step))),
            took(&mut |step| tree.remove(key_of(step))),
        ];
        pcm::end();
        if !is_done {
            return Err(refused(format!("{name} has lost a record, or refused one").into()));
        }
        taken.push((*name, done, batch));
        progress.inc(1);
    }
    Ok(taken)
}

/// Figure 11: how long operations wait for the paper's medium, by a model of it.
pub fn figure_11(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let says = Says {
        slowest: Published::text("4.2 to 27.1", "time"),
        fastest: Published::text("1.5 to 2.4", "time"),
        search: Published::text("1.02 to 1.04", "time"),
    };
    let records = settings.records.unwrap_or(200_000);
    let mut outcome = Outcome {
        conditions: format!(
            "{records} records of 8-byte keys and values, 1 thread; waits for a medium of {} ns a line read and \
             {} ns a word written, modelled; what the processor does is not in them",
            pcm::READ_LINE_NS,
            pcm::WRITE_WORD_NS
        ),
        ..Outcome::default()
    };
    for lines in [2, 4, 8] {
        let taken = on_medium(settings, lines, records, progress)?;
        for (operation, label) in OPERATIONS.iter().enumerate() {
            let waited = |place: usize| {
                let (_, done, batch) = &taken[place];
                done[operation].waited_ns as f64 / *batch as f64
            };
            for (place, (name, ..)) in taken.iter().enumerate() {
                let of = Measured::exact(waited(place), "");
                outcome.push(format!("{lines} lines, {label}, {name}"), "ns", None, Some(of));
            }
            let by_wait = |is_ours: bool| {
                let mut places: Vec<usize> = (1..taken.len())
                    .filter(|&place| (place >= BASELINES.len()) == is_ours)
                    .collect();
                places.sort_by(|left, right| waited(*left).total_cmp(&waited(*right)));
                places
            };
            let (ours, others) = (by_wait(true), by_wait(false));
            let (Some(&best), Some(&fastest), Some(&slowest)) =
                (ours.first(), others.first(), others.last())
            else {
                continue;
            };
            let pairs = match operation {
                0 => vec![(best, 0, &says.search, "search, ratio".to_owned())],
                _ => [("slowest", slowest, &says.slowest), ("fastest", fastest, &says.fastest)]
                    .map(|(what, other, paper)| {
                        (other, best, paper, format!("{label}, {what} other / best wB+-Tree"))
                    })
                    .to_vec(),
            };
            for (over, under, paper, what) in pairs {
                // What fits the cache waits for nothing.
                if waited(under) == 0.0 {
                    continue;
                }
                let of = format!("waits of {} / {}", taken[over].0, taken[under].0);
                let ours = Measured::exact(waited(over) / waited(under), of);
                outcome.push(
                    format!("{lines} lines, {what}"),
                    "x",
                    Some(paper.clone()),
                    Some(ours),
                );
            }
        }
    }
    Ok(outcome)
}

/// Figure 12: what insertions into nodes of eight lines wear and take.
pub fn figure_12(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let records = settings.records.unwrap_or(200_000);
    let mut outcome = Outcome {
        conditions: format!(
            "{records} records of 8-byte keys and values, nodes of 8 lines, the paper's medium by a model"
        ),
        ..Outcome::default()
    };
    for (name, [_, insertion, _], batch) in on_medium(settings, 8, records, progress)? {
        let figures = [
            ("bits", insertion.bits_written),
            ("pJ", insertion.energy_pj()),
            ("words", insertion.words_written),
            ("write-backs", insertion.write_backs),
            ("fences", insertion.fences),
        ];
        for (unit, figure) in figures {
            let ours = Measured::exact(figure as f64 / batch as f64, "");
            // The paper plots them, and says that it counted as many fences as its table 3 has,
            // which is without splits.
            let of_table = match name {
                "btree (volatile)" => None,
                "btree log" => Some("24"),
                "wbtree" => Some("3"),
                _ => Some("2"),
            };
            let paper = of_table
                .filter(|_| unit == "fences")
                .map(|figure| Published::derived(figure, "table 3, m = 21, without splits"));
            outcome.push(format!("insertion, {name}"), unit, paper, Some(ours));
        }
    }
    Ok(outcome)
}
