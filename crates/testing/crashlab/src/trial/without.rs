//! What if a write-back, or a fence, were missing? A recorded run is played back without it.

use pando_index::random::Random;

use super::lab::{Happened, Lab};
use super::plan::{Plan, Tally};
use super::playback::{Playback, draw_cuts};
use crate::lab::recorder::{Entry, Site};
use crate::subjects::Subject;

/// The source text that wrote back or fenced.
pub(super) fn site_of(entry: &Entry) -> Option<Site> {
    match entry {
        Entry::WriteBack { site, .. } | Entry::Fence { site, .. } => Some(site),
        Entry::Store { .. } | Entry::Return => None,
    }
}

/// After how many entries behind a missing fence its absence is looked for.
const BEHIND: usize = 60;

impl<S: Subject, const WRITE_BACK: bool> Lab<S, WRITE_BACK> {
    /// Plays back without `site`, with cuts behind it; then some that have their recovery cut,
    /// with `site` missing there.
    pub(super) fn without(
        &self,
        site: Site,
        plan: &Plan,
        random: &mut Random,
        happened: &[Happened<S>],
        log: &[Entry],
        tally: &mut Tally,
    ) -> Result<(), String> {
        let places: Vec<usize> =
            (0..log.len()).filter(|&index| site_of(&log[index]) == Some(site)).collect();
        let drawn: Vec<usize> = (0..3).map(|_| *random.pick(&places)).collect();
        let cuts = draw_cuts(log, None, random)
            .into_iter()
            .filter(|index| drawn.iter().any(|place| (*place..place + BEHIND).contains(index)))
            .collect();
        let recovery_cuts = draw_cuts(log, Some(4), random);
        // What is missing may come to harm much later, when others go on from what was done.
        let far_cuts = draw_cuts(log, Some(60), random);
        let attempts = [(u64::MAX, &cuts), (1, &recovery_cuts), (u64::MAX, &far_cuts)];
        for (recovery_every, cuts) in attempts {
            let plan = Plan { recovery_every, ..*plan };
            let playback =
                Playback { happened, plan: &plan, cuts, without: Some(site), recovering: None };
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
