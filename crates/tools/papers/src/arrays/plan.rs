//! Rounds over domains: each array size, kind of operation and number of threads in turn, and
//! within it one slice under each domain, so that compared slices follow each other.

use std::time::Duration;

use indicatif::ProgressBar;
use pando_pmem::counting::Counting;
use pando_pmem::emulated::{Emulated, set_delays};
use pando_pmem::{Adr, Domain, Process};
use pando_pmwcas::Algorithm;
use serde::Serialize;

use super::array::{Array, Method};
use super::slice::{Checked, Cost, Outcome, Slice, Subject};
use crate::error::Error;
use pando_bench::spread::Spread;
use pando_bench::systems::{BuildError, BuildOptions};

/// The domains that can be compared, by name; `slow` is `adr` with the emulated delays. Behind
/// [`RDCSS`] by the algorithm of the PMwCAS paper, behind [`DIRECT`] without transactions, else by
/// the default algorithm: where nothing is written back, by hardware transactions as far as the
/// processor commits them.
pub const DOMAINS: [&str; 7] =
    ["process", "adr", SLOW, "process:direct", "process:rdcss", "adr:rdcss", "slow:rdcss"];

/// The domain whose medium is emulated.
pub const SLOW: &str = "slow";

/// Marks a domain under which operations are executed by the paper's algorithm.
pub const RDCSS: &str = ":rdcss";

/// Marks a domain under which operations are executed without hardware transactions.
pub const DIRECT: &str = ":direct";

/// The domain and the algorithm of a name.
fn parts(name: &str) -> (&str, Algorithm) {
    match name.strip_suffix(RDCSS) {
        Some(domain) => (domain, Algorithm::Rdcss),
        None => match name.strip_suffix(DIRECT) {
            Some(domain) => (domain, Algorithm::Direct),
            None if matches!(name, "adr" | SLOW) => (name, Algorithm::Direct),
            None => (name, Algorithm::Transactional),
        },
    }
}

/// The algorithm by which the operations under `domain` are counted; a transaction's are not.
fn counted_algorithm(domain: &str) -> Option<Algorithm> {
    Some(parts(domain).1).filter(|&algorithm| algorithm != Algorithm::Transactional)
}

/// What is compared, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Sizes of the arrays, in words.
    pub arrays: Vec<u64>,
    /// Kinds of operations.
    pub methods: Vec<Method>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Domains out of [`DOMAINS`]; the others are divided by the first.
    pub domains: Vec<&'static str>,
    /// Rounds.
    pub rounds: usize,
    /// How long a slice takes.
    pub time: Duration,
    /// Attempts of each thread that are counted in the counting domain; none for 0.
    pub counted: u64,
    /// Seed of all operations.
    pub seed: u64,
    /// Where the pools lie.
    pub build: BuildOptions,
}

/// One domain with one size, kind of operation and number of threads; one line of JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The domain's name.
    pub domain: &'static str,
    /// Words of the array.
    pub array_words: u64,
    /// Words of an operation, or `cas`.
    pub operation_words: String,
    /// Threads at work.
    pub threads: usize,
    /// Successful operations a second: median over the rounds.
    pub ops_per_second: f64,
    /// The share of the attempts that succeeded, all rounds together.
    pub success_rate: f64,
    /// The domain that the ratios are to.
    pub base: &'static str,
    /// Median over the rounds of the throughput divided by the base's in the same round.
    pub ratio_to_first: f64,
    /// The least ratio of a round.
    pub ratio_min: f64,
    /// The greatest ratio of a round.
    pub ratio_max: f64,
    /// What an attempt takes in the counting domain, which writes back as `adr` does; the same for
    /// every domain with the same algorithm. A transaction's is not counted.
    pub cost: Option<Cost>,
    /// Rounds.
    pub rounds: usize,
    /// Attempts of all rounds together.
    pub attempts: u64,
    /// Seed of the operations.
    pub seed: u64,
}

fn subject<D: Domain>(
    words: u64,
    algorithm: Algorithm,
    build: &BuildOptions,
) -> Result<Box<dyn Subject>, BuildError> {
    Ok(Box::new(Checked::new(Array::<D>::new(words, algorithm, build)?)))
}

fn built(
    domain: &'static str,
    words: u64,
    build: &BuildOptions,
) -> Result<Box<dyn Subject>, Error> {
    let (name, algorithm) = parts(domain);
    let made = match name {
        "process" => subject::<Process>(words, algorithm, build),
        "adr" => subject::<Adr>(words, algorithm, build),
        SLOW => set_delays(build.delays)
            .map_err(BuildError::from)
            .and_then(|()| subject::<Emulated>(words, algorithm, build)),
        other => Err(format!("no domain {other:?}; there are {}", DOMAINS.join(", ")).into()),
    };
    made.map_err(|source| Error::Refused { what: "building an array", source })
}

/// Runs `plan`; each tick of `progress` is one slice.
pub fn run(plan: &Plan, progress: &ProgressBar) -> Result<Vec<Row>, Error> {
    let most = plan.methods.iter().map(|method| method.words() as u64).max().unwrap_or(1);
    if let Some(&found) = plan.arrays.iter().find(|&&words| words < most) {
        return Err(Error::SmallArray { found, least: most });
    }
    let cells = plan.arrays.len() * plan.methods.len() * plan.threads.len();
    progress.set_length((cells * plan.domains.len() * plan.rounds) as u64);
    let mut rows = Vec::new();
    for &words in &plan.arrays {
        let subjects = plan
            .domains
            .iter()
            .map(|domain| built(domain, words, &plan.build))
            .collect::<Result<Vec<_>, Error>>()?;
        let mut counted = Vec::new();
        for wanted in [Algorithm::Direct, Algorithm::Rdcss] {
            let has = plan.domains.iter().any(|domain| counted_algorithm(domain) == Some(wanted));
            if plan.counted > 0 && has {
                let array = Array::<Counting>::new(words, wanted, &plan.build)
                    .map_err(|source| Error::Refused { what: "building an array", source })?;
                counted.push((wanted, Checked::new(array)));
            }
        }
        let mut outcomes = vec![Vec::new(); cells / plan.arrays.len()];
        for round in 0..plan.rounds {
            let mut cell = 0;
            for &method in &plan.methods {
                for &threads in &plan.threads {
                    progress.set_message(format!(
                        "{words} words, {method} at once, {threads} threads, round {} of {}",
                        round + 1,
                        plan.rounds
                    ));
                    let seed = plan.seed ^ ((round * 64 + cell) as u64) << 16;
                    let slice = Slice { method, threads, time: plan.time, seed };
                    let mut of_round = vec![Outcome::default(); subjects.len()];
                    for turn in 0..subjects.len() {
                        let system = (round + turn) % subjects.len();
                        of_round[system] = subjects[system].slice(&slice)?;
                        progress.inc(1);
                    }
                    outcomes[cell].push(of_round);
                    cell += 1;
                }
            }
        }
        for subject in &subjects {
            subject.check()?;
        }
        let mut outcomes = outcomes.into_iter();
        for &method in &plan.methods {
            for &threads in &plan.threads {
                let count = |(algorithm, array): &(Algorithm, Checked<Counting>)| {
                    let cost = array.count(method, threads, plan.counted, plan.seed)?;
                    Ok((*algorithm, cost))
                };
                let costs = counted.iter().map(count).collect::<Result<Vec<_>, Error>>()?;
                let rounds = outcomes.next().unwrap_or_default();
                rows.extend(cell_rows(plan, words, method, threads, &rounds, &costs));
            }
        }
        for (_, array) in &counted {
            array.check()?;
        }
    }
    Ok(rows)
}

fn throughput(outcome: &Outcome) -> f64 {
    outcome.successes as f64 / outcome.elapsed.as_secs_f64().max(1e-9)
}

fn cell_rows(
    plan: &Plan,
    array_words: u64,
    method: Method,
    threads: usize,
    rounds: &[Vec<Outcome>],
    costs: &[(Algorithm, Cost)],
) -> Vec<Row> {
    let row = |(system, &domain): (usize, &&'static str)| {
        let of = |figure: &dyn Fn(&[Outcome]) -> f64| {
            Spread::of(&rounds.iter().map(|round| figure(round)).collect::<Vec<_>>())
        };
        let ratio = of(&|round| throughput(&round[system]) / throughput(&round[0]).max(1e-9));
        let attempts: u64 = rounds.iter().map(|round| round[system].attempts).sum();
        let successes: u64 = rounds.iter().map(|round| round[system].successes).sum();
        Row {
            domain,
            array_words,
            operation_words: method.to_string(),
            threads,
            ops_per_second: of(&|round| throughput(&round[system])).median,
            success_rate: successes as f64 / attempts.max(1) as f64,
            base: plan.domains[0],
            ratio_to_first: ratio.median,
            ratio_min: ratio.min,
            ratio_max: ratio.max,
            cost: costs
                .iter()
                .find(|(of, _)| Some(*of) == counted_algorithm(domain))
                .map(|&(_, cost)| cost),
            rounds: rounds.len(),
            attempts,
            seed: plan.seed,
        }
    };
    plan.domains.iter().enumerate().map(row).collect()
}
