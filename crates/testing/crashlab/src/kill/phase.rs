//! The activity of a process at the time of the kill.

use std::time::Duration;

use super::message::Message;
use super::supervise::Kill;
use super::workload::Profile;
use pando_index::random::Random;

/// The interrupted activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Creating a pool.
    Create,
    /// Growth of a pool by large values.
    Grow,
    /// Writes of all kinds.
    Write,
    /// Opening a pool that was not closed, several times in a row.
    Recover,
    /// Closing a pool.
    Close,
    /// Creating and dropping maps.
    Catalog,
    /// `pando load`.
    Load,
}

/// Rounds per pool.
const ROUNDS_A_POOL: u64 = 24;

impl Phase {
    /// The phase of a round. A pool is created and grows, and is then used for many rounds.
    pub fn of(round: u64) -> Self {
        match round % ROUNDS_A_POOL {
            0 => Self::Create,
            1 | 13 => Self::Grow,
            turn => {
                [Self::Write, Self::Recover, Self::Close, Self::Write, Self::Catalog, Self::Load]
                    [turn as usize % 6]
            }
        }
    }

    /// The work of the writers. If the maps are transactional, it may be transactions.
    pub fn profile(self, is_transactional: bool, random: &mut Random) -> Profile {
        match self {
            Self::Grow => Profile::Growing,
            Self::Catalog => Profile::Catalog,
            _ if is_transactional && random.one_in(2) => Profile::Transactions,
            _ => Profile::Mixed,
        }
    }

    /// The time of the kill. On a machine that is slower by `slowness`, delays are longer.
    pub fn kill(self, random: &mut Random, slowness: u64) -> Kill {
        let (after, range_us) = match self {
            Self::Create => (Message::Opening, 1_500),
            Self::Recover => (Message::Opening, 500),
            Self::Close => (Message::Closing, 300),
            Self::Grow | Self::Write | Self::Catalog | Self::Load => (Message::Writing, 20_000),
        };
        Kill { after, delay: Duration::from_micros(random.below(range_us * slowness)) }
    }
}
