//! The crashes of a recorded run: the log is played back against the medium and cut. Each image
//! that a crash could leave there is written into the arena, opened and checked.

use std::collections::HashSet;
use std::rc::Rc;
use std::time::Instant;

use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;

use super::lab::{Happened, Lab, PATIENCE, lay_out, words_of};
use super::plan::{Crashes, Plan, Tally};
use crate::lab::domain::{Mode, files_of_run, install, run_as, set_mode, with_recorder};
use crate::lab::medium::Medium;
use crate::lab::panics::attempt;
use crate::lab::recorder::{Entry, LINE_BYTES, Recorder, Site};
use crate::subjects::{Model, Observed};

/// A hash of one word and its offset. The hash of an image is the exclusive or of these.
fn hash_of(off: u64, value: u64) -> u64 {
    Random::new(off.rotate_left(32) ^ value.wrapping_mul(0x9E37_79B9_7F4A_7C15)).draw()
}

/// Power cuts after a kill, beside the one at the end.
const CUTS_AFTER_KILL: usize = 12;

/// What a power cut may leave of the files.
const KEPT: [Kept; 3] = [Kept::Nothing, Kept::Some, Kept::All];

/// The contents of some late lines in an image. The other lines are as the run saw them.
type Choice = Vec<(u32, usize)>;

/// The images to be checked at one cut, from the late lines and the number of contents of each.
fn choices(late: &[(u32, usize)], crashes: Crashes, random: &mut Random) -> Vec<Choice> {
    let images = crashes.images;
    if images == 1 {
        let any = late.iter().map(|&(line, of)| (line, random.below(of as u64) as usize));
        return vec![any.collect()];
    }
    let all = late.iter().try_fold(1_usize, |all, &(_, of)| all.checked_mul(of));
    if all.is_some_and(|all| all <= images) {
        // All images, since there are few.
        return late.iter().fold(vec![Vec::new()], |choices: Vec<Choice>, &(line, of)| {
            let longer = |choice: &Choice| {
                let choice = choice.clone();
                (0..of).map(move |version| [&choice[..], &[(line, version)]].concat())
            };
            choices.iter().flat_map(longer).collect()
        });
    }
    // All lines new, all lines old, one line old, one line new, random mixtures.
    let mut choices = vec![Vec::new(), late.iter().map(|&(line, _)| (line, 0)).collect()];
    for &(line, of) in late {
        choices.push(vec![(line, random.below(of as u64 - 1) as usize)]);
        let others = late.iter().filter(|&&(other, _)| other != line);
        choices.push(others.map(|&(other, _)| (other, 0)).collect());
    }
    while choices.len() > images.max(3) {
        let extra = 2 + random.below(choices.len() as u64 - 2) as usize;
        choices.swap_remove(extra);
    }
    for _ in 0..images.saturating_sub(choices.len()).clamp(1, 8) {
        let any = late.iter().map(|&(line, of)| (line, random.below(of as u64) as usize));
        choices.push(any.collect());
    }
    choices
}

/// The entries of a log after which it is cut: `count` random ones, or all stores, changes of files
/// and returns.
pub(super) fn draw_cuts(
    log: &[Entry],
    count: Option<usize>,
    random: &mut Random,
) -> HashSet<usize> {
    let is_cut = |entry: &Entry| !matches!(entry, Entry::WriteBack { .. } | Entry::Fence { .. });
    let all: Vec<usize> = (0..log.len()).filter(|&index| is_cut(&log[index])).collect();
    match count {
        Some(count) if count < all.len() => (0..count).map(|_| *random.pick(&all)).collect(),
        _ => all.into_iter().collect(),
    }
}

/// What one crash leaves.
struct Image<'run, M: Model> {
    medium: &'run Medium,
    choice: &'run Choice,
    /// The number of the state of the files.
    files: usize,
    /// What was observed before the crash.
    observed: Option<&'run Observed<M>>,
}

/// The crashes of one log.
pub(super) struct Playback<'run, M: Model> {
    pub happened: &'run [Happened<M>],
    /// The states of the files, by number.
    pub files: &'run [Simulated],
    pub plan: &'run Plan,
    /// The entries after which the run is cut, and the site that is left out of the playback; in
    /// the crashes of a recovery, the site that is left out of the recovery.
    pub cuts: &'run HashSet<usize>,
    pub without: Option<Site>,
    /// In the crashes of a recovery: the cut of the run before the recovery.
    pub recovering: Option<u64>,
    /// In power cuts after a kill: what was observed at the end of the log, after the kill.
    pub observed: Option<&'run Observed<M>>,
}

impl<M: Model> Lab<M> {
    /// Plays `log` back over `base` and checks its crashes. The arena and `words` hold `base` at
    /// the beginning, and again at the end unless a fault was found.
    pub(super) fn play_back(
        &self,
        base: &[u64],
        words: Vec<u64>,
        log: &[Entry],
        playback: &Playback<'_, M>,
        random: &mut Random,
        tally: &mut Tally,
    ) -> Result<Vec<u64>, String> {
        let medium = Medium::new(words, self.subject.needs_write_back());
        self.play_back_over(base, medium, log, playback, random, tally)
    }

    /// The same over a medium to which stores may be late.
    fn play_back_over(
        &self,
        base: &[u64],
        mut medium: Medium,
        log: &[Entry],
        playback: &Playback<'_, M>,
        random: &mut Random,
        tally: &mut Tally,
    ) -> Result<Vec<u64>, String> {
        let mut stored: Vec<u32> = Vec::new();
        let mut hash = 0;
        let mut seen = HashSet::new();
        let crashes = playback.plan.crashes;
        let mut files = 0;
        for (index, entry) in log.iter().enumerate() {
            if let Entry::Store { off, value } = *entry {
                let off = u64::from(off);
                hash ^= hash_of(off, medium.word(off)) ^ hash_of(off, value);
                self.arena.set_word(off, value);
                stored.push((off / LINE_BYTES) as u32);
            }
            if let Entry::Files { version } = *entry {
                files = version as usize;
            }
            medium.play(entry, playback.without);
            if !playback.cuts.contains(&index) {
                continue;
            }
            if crashes.until.is_some_and(|until| Instant::now() >= until) {
                continue;
            }
            tally.cuts += 1;
            let cut = playback.recovering.unwrap_or(index as u64 + 1);
            let is_run = self.subject.needs_write_back() && playback.recovering.is_none();
            // A cut has about eight images, so this is about as frequent as cuts of recoveries.
            if is_run && random.one_in(playback.plan.recovery_every.div_ceil(8)) {
                let files = &playback.files[files];
                self.cut_after_kill(&medium, files, cut, playback, random, tally)?;
            }
            for choice in choices(&medium.late(), crashes, random) {
                let mut image = hash ^ hash_of(u64::MAX, cut);
                for &(line, version) in &choice {
                    let content = medium.content(line, version);
                    for (word, &value) in content.iter().enumerate() {
                        let off = u64::from(line) * LINE_BYTES + word as u64 * 8;
                        image ^= hash_of(off, medium.word(off)) ^ hash_of(off, value);
                    }
                }
                if !seen.insert(image) {
                    tally.repeated += 1;
                    continue;
                }
                let observed = playback.observed.filter(|_| index + 1 == log.len());
                let image = Image { medium: &medium, choice: &choice, files, observed };
                self.judge_image(&image, cut, playback, random, tally).map_err(|what| {
                    let late: Vec<String> =
                        choice.iter().map(|(line, _)| format!("{:#x}", line * 64)).collect();
                    let whose = if playback.recovering.is_some() { "recovery" } else { "run" };
                    format!(
                        "a crash of the {whose} after entry {index} of {}, with older lines at \
                         {late:?}: {what}",
                        log.len()
                    )
                })?;
            }
        }
        stored.sort_unstable();
        stored.dedup();
        lay_out(&self.arena, &stored, |line, word| base[line * 8 + word]);
        let mut words = medium.into_words();
        for line in stored {
            let line = line as usize * 8..line as usize * 8 + 8;
            words[line.clone()].copy_from_slice(&base[line]);
        }
        Ok(words)
    }

    /// Writes one image into the arena, checks it, and restores the state that the run saw.
    ///
    /// With write-backs a crash is a power cut of the medium and of the files. Without them it is a
    /// kill, and the files keep what was written. In both cases the pool may be lost: one image in
    /// four is rebuilt from its files, after a power cut of these.
    fn judge_image(
        &self,
        image: &Image<'_, M>,
        cut: u64,
        playback: &Playback<'_, M>,
        random: &mut Random,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let Image { medium, choice, files, observed } = *image;
        let files = &playback.files[files];
        let left = match self.subject.needs_write_back() {
            true => files.cut_power(*random.pick(&KEPT), random),
            false => files.after_kill(),
        };
        let mut lines: Vec<u32> = choice.iter().map(|&(line, _)| line).collect();
        for &(line, version) in choice {
            let content = medium.content(line, version);
            lay_out(&self.arena, &[line], |_, word| content[word]);
        }
        tally.images += 1;
        tally.of_recovery += u64::from(playback.recovering.is_some());
        if playback.recovering.is_none() && random.one_in(playback.plan.recovery_every) {
            self.cut_recovery(&left, cut, playback, random, tally)?;
        }
        set_mode(Mode::Track, PATIENCE);
        let judged = self.judge(&left, playback.happened, cut, observed, random.one_in(4));
        set_mode(Mode::Idle, 0);
        let judged = judged.and_then(|()| match random.one_in(4) {
            true => {
                let left = files.cut_power(*random.pick(&KEPT), random);
                self.judge_rebuilt(&left, playback.happened, cut)
            }
            false => Ok(()),
        });
        lines.extend(with_recorder(Recorder::take_touched));
        let seen = |line: usize, word: usize| medium.word((line * 8 + word) as u64 * 8);
        lay_out(&self.arena, &lines, seen);
        judged
    }

    /// Recovers the pool in the arena with its files, and checks the crashes of that recovery.
    fn cut_recovery(
        &self,
        files: &Simulated,
        cut: u64,
        playback: &Playback<'_, M>,
        random: &mut Random,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let recover = |files: &Simulated| self.open(files).map(drop);
        self.with_record(files, recover, drop, |base, log, files, _| {
            let cuts = draw_cuts(log, playback.plan.crashes.cuts, random);
            let inner = Playback { files, recovering: Some(cut), cuts: &cuts, ..*playback };
            self.play_back(base, base.to_vec(), log, &inner, random, tally).map(drop)
        })
    }

    /// Kills all threads at a cut, opens the pool again, observes and perhaps uses it. Then cuts
    /// the power, at the end or at an instant before the use. Until then the pool holds also the
    /// stores that the killed threads have not written back. Nothing may rely on them.
    fn cut_after_kill(
        &self,
        medium: &Medium,
        files: &Simulated,
        cut: u64,
        playback: &Playback<'_, M>,
        random: &mut Random,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let is_used = random.one_in(2);
        let work = |files: &Simulated| {
            let open = self.open(files)?;
            let observed = open.observe()?;
            let quiet = with_recorder(Recorder::now) as usize;
            if is_used {
                open.exercise()?;
            }
            Ok((open, observed, quiet))
        };
        let close = |(_, observed, quiet)| (observed, quiet);
        self.with_record(&files.after_kill(), work, close, |base, log, files, seen| {
            let quiet = seen.map_or(log.len(), |(_, quiet)| *quiet);
            let observed = seen.map(|(observed, _)| observed);
            let mut cuts = draw_cuts(&log[..quiet], Some(CUTS_AFTER_KILL), random);
            cuts.extend(log.len().checked_sub(1));
            let recovering = Some(cut);
            let inner = Playback { files, recovering, cuts: &cuts, observed, ..*playback };
            self.play_back_over(base, medium.after_kill(), log, &inner, random, tally)
                .map_err(|what| format!("after a kill, {what}"))
                .map(drop)
        })
    }

    /// Records `work` on the pool in the arena and on its files, and restores the arena. Then calls
    /// `check` with the words of the arena, the log, the states of the files, and the result, of
    /// which `close` has made its part; what `close` does is not recorded.
    fn with_record<R, S>(
        &self,
        files: &Simulated,
        work: impl FnOnce(&Simulated) -> Result<R, String>,
        close: impl FnOnce(R) -> S,
        check: impl FnOnce(&[u64], &[Entry], &[Simulated], Option<&S>) -> Result<(), String>,
    ) -> Result<(), String> {
        let base = words_of(&self.arena);
        let files = files_of_run(files);
        let outer = install(Some(Recorder::new(Rc::clone(&self.arena), files.clone())));
        set_mode(Mode::Record, PATIENCE);
        let worked = attempt(|| run_as(0, || work(&files)));
        set_mode(Mode::Idle, 0);
        let log = with_recorder(|recorder| recorder.finish());
        set_mode(Mode::Track, PATIENCE);
        let closed = worked.map(|result| result.map(close));
        set_mode(Mode::Idle, 0);
        let touched = with_recorder(Recorder::take_touched);
        let files = with_recorder(Recorder::take_files);
        lay_out(&self.arena, &touched, |line, word| base[line * 8 + word]);
        let judged = closed.and_then(|result| check(&base, &log?, &files, result.as_ref()));
        install(outer);
        judged
    }
}
