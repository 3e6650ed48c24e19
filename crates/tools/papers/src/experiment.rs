//! An entry of the catalogue, and what running it takes.

use std::path::PathBuf;
use std::time::Duration;

use indicatif::ProgressBar;
use pando_pmem::emulated::Delays;

use super::error::Error;
use super::outcome::Outcome;
use pando_bench::machine;
use pando_bench::systems::BuildOptions;

/// What a user may set of a run; each experiment has its own sizes where nothing is set.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Records, or words of an array.
    pub records: Option<u64>,
    /// Numbers of threads.
    pub threads: Option<Vec<usize>>,
    /// How long a slice takes.
    pub time: Option<Duration>,
    /// Rounds.
    pub rounds: Option<usize>,
    /// Seed of all operations.
    pub seed: u64,
    /// Where and how indexes are built.
    pub build: BuildOptions,
    /// What stands before the arguments when this program runs itself again.
    pub prefix: Vec<String>,
}

impl Settings {
    /// Whether a slower medium is to be emulated.
    pub fn is_emulated(&self) -> bool {
        self.build.delays != Delays::default()
    }

    /// The BzTree that survives a loss of power: with delays, on an emulated medium.
    pub fn durable_system(&self) -> &'static str {
        if self.is_emulated() { "bztree:slow" } else { "bztree:adr" }
    }

    /// The numbers of threads: those set, or 1, 2 and as many as there are cores.
    pub fn threads_or_cores(&self) -> Vec<usize> {
        self.threads.clone().unwrap_or_else(|| {
            let cores = machine::cores().len().max(1);
            let mut threads: Vec<usize> = [1, 2, 4, 8, 16, 32, 64]
                .into_iter()
                .take_while(|&threads| threads < cores)
                .collect();
            threads.push(cores);
            threads
        })
    }
}

/// This program, which an experiment runs again.
pub fn this_program() -> Result<PathBuf, Error> {
    let found = std::env::current_exe().and_then(|path| path.canonicalize());
    found.map_err(|source| Error::Refused { what: "finding this program", source: source.into() })
}

/// A number of threads in words.
pub fn in_threads(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

/// What a paper measured on and how, in one line each.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// The part of an experiment's name before the colon.
    pub short: &'static str,
    /// Authors and title.
    pub title: &'static str,
    /// Machine and method.
    pub conditions: &'static str,
}

/// How an experiment is run.
pub type Runner = fn(&Settings, &ProgressBar) -> Result<Outcome, Error>;

/// How far an experiment is built.
#[derive(Clone, Copy, Debug)]
pub enum Built {
    /// All that the paper measures of its own index.
    Whole(Runner),
    /// A part, and what is missing from it.
    Partly(Runner, &'static str),
}

impl Built {
    /// What is missing, if something is.
    pub fn missing(&self) -> Option<&'static str> {
        match self {
            Self::Whole(_) => None,
            Self::Partly(_, missing) => Some(missing),
        }
    }

    /// One word for the list.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Whole(_) => "built",
            Self::Partly(..) => "partly",
        }
    }
}

/// One figure or table of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The name, as `bztree:fig4`.
    pub name: &'static str,
    /// The paper that it is from.
    pub paper: &'static Paper,
    /// Its caption, shortened.
    pub title: &'static str,
    /// What it shows, in one line.
    pub shows: &'static str,
    /// The index that it needs.
    pub index: &'static str,
    /// How far it is built.
    pub built: Built,
    /// Whether its durable system can run on an emulated medium.
    pub takes_delays: bool,
    /// What differs from the paper in machine and method, a line each.
    pub differs: &'static [&'static str],
}

impl Experiment {
    /// What the paper measured on and how.
    pub fn paper_conditions(&self) -> &'static str {
        self.paper.conditions
    }
}
