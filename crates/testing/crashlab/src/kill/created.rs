//! The index of the maps of a trial.

use std::path::{Path, PathBuf};

use pando::{Acknowledge, MapOptions, PoolOptions};

use super::workload;

/// The indexes of the pools, in turn, unless an option names one.
pub const INDEXES: [&str; 5] = ["bztree", "nbtree", "wbtree", "skiplist", "bwtree"];

/// The index and the options of new maps.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Created {
    /// The index of the maps [default: another one in each pool]
    #[arg(long, alias = "kind", value_name = "NAME")]
    pub index: Option<String>,
    /// An option of each map, such as node_lines=4; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    pub values: Vec<(String, String)>,
    /// The maps are transactional, and writers also move values in transactions [default: in every
    /// second pool]
    #[arg(long)]
    pub transactional: bool,
    /// The pools have a log, and each write is synced before it is acknowledged. After some of the
    /// kills the pool's file is removed [default: in every fourth pool]
    #[arg(long, requires = "transactional")]
    pub synced: bool,
    /// Writes are buffered, and one call syncs those of one acknowledgement [default: in every
    /// second pool with a log]
    #[arg(long, requires = "synced")]
    pub buffered: bool,
    /// The pools are stores, with a cache of 16 MiB and more records than that. If each write is
    /// synced, the tail of the log is removed after some of the kills
    #[arg(long, conflicts_with_all = ["index", "values"], requires = "transactional")]
    pub store: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

impl Created {
    /// Sets the lengths of values, in a process that writes such pools or checks them.
    pub fn set_lengths(&self) {
        if self.store {
            workload::shorten_values();
        }
    }

    /// The same for pool number `number`: the indexes take turns if no option is set.
    pub fn in_pool(&self, number: u64) -> Self {
        if self.index.is_some() || !self.values.is_empty() || self.store {
            return self.clone();
        }
        let index = INDEXES[(number % INDEXES.len() as u64) as usize].to_owned();
        let transactional = self.transactional || number % 2 == 1;
        Self { index: Some(index), values: Vec::new(), transactional, ..self.clone() }
    }

    /// The name of the index in figures.
    pub fn index_name(&self) -> &str {
        match &self.index {
            Some(index) => index,
            None if self.store => "store",
            None => "default",
        }
    }

    /// How many of these cycles are of one pool: at most `most`, and so few that the indexes, if
    /// they take turns, all get a turn.
    pub fn cycles_a_pool(&self, cycles: u64, most: u64) -> u64 {
        match self.in_pool(0).index == self.index {
            true => most,
            false => (cycles / INDEXES.len() as u64).clamp(1, most),
        }
    }

    /// The same with a log, in every fourth pool that may be lost.
    pub fn or_lost(self, number: u64) -> Self {
        let synced = self.synced || (self.transactional && number % 4 == 3);
        Self { synced, ..self }.or_buffered(number / 4)
    }

    /// The same with buffered writes, in every second pool with a log.
    pub fn or_buffered(self, number: u64) -> Self {
        let buffered = self.buffered || (self.synced && !self.store && number % 2 == 1);
        Self { buffered, ..self }
    }

    /// The directory of the log of the pool at `path`, if it has one.
    pub fn log(&self, path: &Path) -> Option<PathBuf> {
        (self.synced && !self.store).then(|| path.with_extension(LOG))
    }

    /// What a power cut would take of the pool at `path`.
    pub fn lost_file(&self, path: &Path) -> PathBuf {
        if self.store { path.join("control") } else { path.to_owned() }
    }

    /// The options of the pool at `path`.
    pub fn pool_options(&self, path: &Path) -> PoolOptions {
        let options = PoolOptions::new();
        let options = self.log(path).into_iter().fold(options, |options, log| options.log(log));
        match self.synced && !self.buffered {
            true => options.acknowledge(Acknowledge::Synced),
            false => options,
        }
    }

    /// The same for the library.
    pub fn options(&self) -> MapOptions {
        let mut options = MapOptions::new().transactional(self.transactional);
        if let Some(index) = &self.index {
            options = options.index(index);
        }
        self.values.iter().fold(options, |options, (name, value)| options.set(name, value))
    }

    /// The same as words of a command line of `pando load`, for the pool at `path`.
    pub fn words_of_load(&self, path: &Path) -> Vec<String> {
        let maps = Self { synced: false, buffered: false, store: false, ..self.clone() };
        let mut words = maps.words();
        words.extend(match self.store {
            true => [format!("--store={}", path.display()), "--memory=16M".to_owned()].to_vec(),
            false => vec![format!("--pool={}", path.display())],
        });
        words.extend(self.log(path).map(|log| format!("--log={}", log.display())));
        words.extend(self.synced.then(|| "--sync".to_owned()));
        words
    }

    /// The same as words of a command line of `pando-crashlab`.
    pub fn words(&self) -> Vec<String> {
        let index = self.index.iter().map(|index| format!("--index={index}"));
        let values = self.values.iter().map(|(name, value)| format!("--set={name}={value}"));
        let flags = [
            (self.transactional, "--transactional"),
            (self.synced, "--synced"),
            (self.buffered, "--buffered"),
            (self.store, "--store"),
        ];
        let set = flags.into_iter().filter(|(is_set, _)| *is_set);
        index.chain(values).chain(set.map(|(_, flag)| flag.to_owned())).collect()
    }
}

/// The end of the name of a log's directory.
const LOG: &str = "log";

/// Whether `path` is that of a log.
pub fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == LOG)
}
