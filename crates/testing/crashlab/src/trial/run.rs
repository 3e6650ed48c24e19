//! A run of a scenario, and its crashes.

use std::collections::HashSet;
use std::rc::Rc;

use pando_index::random::Random;

use super::lab::{Lab, Recorded, Refusal};
use super::plan::{Plan, Tally, Trial};
use super::playback::{Playback, draw_cuts};
use super::without::site_of;
use crate::lab::domain::{Mode, files_of_run, install, set_mode};
use crate::lab::recorder::{Recorder, Site};
use crate::subjects::Model;

impl<M: Model> Trial for Lab<M> {
    fn name(&self) -> String {
        let domain = if self.subject.needs_write_back() { "adr" } else { "process" };
        format!("{}/{}/{domain}", self.subject.name(), self.name)
    }

    fn preemptions(&self) -> u32 {
        self.preemptions
    }

    fn run(&mut self, plan: &Plan, tally: &mut Tally) -> Result<(), String> {
        self.recorded(plan, tally, |lab, random, recorded, tally| {
            let Recorded { happened, log, files } = recorded;
            let cuts = if lab.subject.survives() { plan.crashes.cuts } else { Some(0) };
            let cuts = &draw_cuts(log, cuts, random);
            let (without, recovering) = (None, None);
            let observed = None;
            let playback = Playback { happened, files, plan, cuts, without, recovering, observed };
            let words = lab.medium.take().unwrap_or_else(|| lab.base.clone());
            lab.medium = Some(lab.play_back(&lab.base, words, log, &playback, random, tally)?);
            Ok(())
        })
    }

    fn run_without(
        &mut self,
        plan: &Plan,
        wanted: &dyn Fn(Site) -> bool,
    ) -> Result<Vec<(Site, Option<String>)>, String> {
        let mut verdicts = Vec::new();
        self.recorded(plan, &mut Tally::default(), |lab, random, recorded, tally| {
            let sites: HashSet<Site> = recorded.log.iter().filter_map(site_of).collect();
            for site in sites.into_iter().filter(|&site| wanted(site)) {
                let seen = lab.without(site, plan, random, recorded, tally);
                verdicts.push((site, seen.err()));
            }
            Ok(())
        })?;
        Ok(verdicts)
    }
}

impl<M: Model> Lab<M> {
    /// Records one run and calls `work` to play it back.
    fn recorded(
        &mut self,
        plan: &Plan,
        tally: &mut Tally,
        work: impl FnOnce(&mut Self, &mut Random, &Recorded<M>, &mut Tally) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut random = Random::new(plan.seed);
        let programs = (self.programs)(&mut random);
        let refusal = self.granted.map(|most| Refusal::drawn(most, &mut random));
        let files = files_of_run(&self.files);
        let recorder = match self.recorder.take() {
            Some(mut recorder) => {
                recorder.follow_files(files.clone());
                recorder
            }
            None => Recorder::new(Rc::clone(&self.arena), files.clone()),
        };
        install(Some(recorder));
        let result = self.record(&programs, &files, refusal, tally).and_then(|recorded| {
            self.restore();
            work(self, &mut random, &recorded, tally)
        });
        set_mode(Mode::Idle, 0);
        let recorder = install(None);
        if result.is_ok() {
            self.recorder = recorder;
        } else {
            self.lay_out_base();
        }
        result.map_err(|what| {
            let list = programs.iter().enumerate();
            let list = list.map(|(task, ops)| format!("  thread {}: {ops:?}\n", task + 1));
            let list: String = list.collect();
            let refusal = refusal.map_or_else(String::new, |refusal| format!("{refusal:?}\n"));
            format!("{}, {what}\nprograms:\n{list}{refusal}", self.name())
        })
    }
}
