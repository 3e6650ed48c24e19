//! Playback of a recorded run without one write-back or one fence.

use pando_index::random::Random;

use super::lab::{Lab, Recorded};
use super::plan::{Plan, Tally};
use super::playback::{Playback, draw_cuts};
use crate::lab::recorder::{Entry, Site};
use crate::subjects::Model;

/// The source position of a write-back or a fence.
pub(super) fn site_of(entry: &Entry) -> Option<Site> {
    match entry {
        Entry::WriteBack { site, .. } | Entry::Fence { site, .. } => Some(site),
        Entry::Store { .. } | Entry::Files { .. } | Entry::Return => None,
    }
}

/// Entries after a missing write-back or fence in which each store is a cut.
const BEHIND: usize = 60;

impl<M: Model> Lab<M> {
    /// Plays back without `site`, with cuts after it. Then it cuts some recoveries too, without
    /// `site` in the recovery.
    pub(super) fn without(
        &self,
        site: Site,
        plan: &Plan,
        random: &mut Random,
        recorded: &Recorded<M>,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let Recorded { happened, log, files } = recorded;
        let places: Vec<usize> =
            (0..log.len()).filter(|&index| site_of(&log[index]) == Some(site)).collect();
        let drawn: Vec<usize> = (0..3).map(|_| *random.pick(&places)).collect();
        let cuts = draw_cuts(log, None, random)
            .into_iter()
            .filter(|index| drawn.iter().any(|place| (*place..place + BEHIND).contains(index)))
            .collect();
        let recovery_cuts = draw_cuts(log, Some(4), random);
        // The missing write-back may do harm much later, after further operations.
        let far_cuts = draw_cuts(log, Some(60), random);
        let attempts = [(u64::MAX, &cuts), (1, &recovery_cuts), (u64::MAX, &far_cuts)];
        for (recovery_every, cuts) in attempts {
            let plan = Plan { recovery_every, ..*plan };
            let (plan, without, recovering) = (&plan, Some(site), None);
            let observed = None;
            let playback = Playback { happened, files, plan, cuts, without, recovering, observed };
            let words = self.base.clone();
            let seen = self.play_back(&self.base, words, log, &playback, random, tally);
            if let Err(what) = seen {
                self.lay_out_base();
                return Err(what);
            }
        }
        Ok(())
    }
}
