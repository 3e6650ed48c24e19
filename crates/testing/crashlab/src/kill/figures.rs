//! The figures of a trial.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::HumanCount;
use pando_tc::testing::Outcome;

use super::phase::Phase;
use super::supervise::Heard;

/// Sums over the kills of one index.
#[derive(Clone, Copy, Debug, Default)]
struct OfIndex {
    kills: u64,
    acknowledged: u64,
    committed: u64,
}

/// Sums over all kills.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    kills: BTreeMap<Phase, u64>,
    /// By the name of the index.
    of_indexes: BTreeMap<String, OfIndex>,
    losses: u64,
    acknowledged: u64,
    committed: u64,
    completed: u64,
    undone: u64,
    first_gets: Vec<Duration>,
}

impl Figures {
    /// Counts a kill of a process whose maps have this index.
    pub fn kill(&mut self, phase: Phase, index: &str) {
        *self.kills.entry(phase).or_default() += 1;
        self.of_indexes.entry(index.to_owned()).or_default().kills += 1;
    }

    /// Counts a pool that was lost with a kill, or whose file was removed after it.
    pub fn loss(&mut self) {
        self.losses += 1;
    }

    /// Counts the messages of a process whose maps have this index.
    pub fn hear(&mut self, heard: &Heard, index: &str) {
        let acknowledged = heard.acknowledged.iter().sum::<u64>();
        let ends = heard.transactions.values().map(|(_, end)| end);
        let committed = ends.filter(|end| matches!(end, Outcome::Committed { .. })).count() as u64;
        self.acknowledged += acknowledged;
        self.committed += committed;
        let of_index = self.of_indexes.entry(index.to_owned()).or_default();
        of_index.acknowledged += acknowledged;
        of_index.committed += committed;
        if let Some(opened) = heard.opened.as_ref().filter(|opened| !opened.was_clean) {
            self.completed += opened.completed;
            self.undone += opened.undone;
            self.first_gets.push(Duration::from_nanos(opened.first_get_ns));
        }
    }

    /// Kills so far.
    pub fn kills(&self) -> u64 {
        self.kills.values().sum()
    }

    /// Kills in one phase.
    pub fn kills_in(&self, phase: Phase) -> u64 {
        self.kills.get(&phase).copied().unwrap_or_default()
    }

    /// Operations that were acknowledged before a kill.
    pub fn acknowledged(&self) -> HumanCount {
        HumanCount(self.acknowledged)
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds: Vec<String> = self
            .kills
            .iter()
            .map(|(phase, kills)| format!("{phase:?} {}", HumanCount(*kills)).to_lowercase())
            .collect();
        let mut times = self.first_gets.clone();
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        let slowest = times.last().copied().unwrap_or_default();
        write!(
            out,
            "{} ({}), after {} of them the pool was lost too; {} acknowledged operations, none lost, no \
             torn record, no leak; {} acknowledged transactions, none lost, and no history without an order; \
             {} operations completed and {} undone by recovery; from open to the first get: \
             median {median:.1?}, slowest {slowest:.1?}",
            HumanCount(self.kills()),
            kinds.join(", "),
            HumanCount(self.losses),
            self.acknowledged(),
            HumanCount(self.committed),
            HumanCount(self.completed),
            HumanCount(self.undone),
        )?;
        for (name, OfIndex { kills, acknowledged, committed }) in &self.of_indexes {
            let [kills, acknowledged, committed] =
                [kills, acknowledged, committed].map(|it| HumanCount(*it));
            write!(
                out,
                "\n  {name}: {kills}, with {acknowledged} acknowledged operations and {committed} \
                 acknowledged transactions"
            )?;
        }
        Ok(())
    }
}
