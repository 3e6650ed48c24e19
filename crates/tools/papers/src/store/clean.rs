//! `bwtree:clean`: the cost of cleaning, by the share of the segments that is live.
//!
//! # Question
//!
//! "Because of garbage collection, log structuring normally incurs extra writes to relocate pages
//! that persist in reclaimed storage areas of the log" (section II.E). How many bytes does cleaning
//! move for each byte that is written, if pages fill a given share of the disk? Do deltas reduce
//! it, as the section says?
//!
//! # Method
//!
//! The page store alone (`pando-lss`), with one thread. It has as many pages of 6 KiB, which is
//! about what a leaf of 8 KiB has on disk, as `--records` records of 128 bytes take, 48 a page.
//! `max_bytes` limits its files, so that the parts of pages are the given share of all segments:
//! 50, 60, 70, 80 and 90 %. Three segments come on top, which the store keeps for cleaning and for
//! the current block. Segments are shorter than usual: 128 of them have the data, so that a small
//! run cleans like a large one.
//!
//! Pages are written one by one, at random:
//!
//! | writes | of each page |
//! | --- | --- |
//! | whole pages, uniform | each page has the same probability |
//! | whole pages, zipfian | popular pages are written more often (skew 0.99) |
//! | deltas, uniform | three deltas of 256 bytes, and then the whole page |
//!
//! First, twice the bytes of the segments are written; after that, the state is steady. Then each
//! round writes these bytes once. The work is counted, so `--seconds` has no effect. A store cleans
//! the segments that have the fewest live bytes, and only when it needs one. At the end all pages
//! are read and checked.
//!
//! # Units
//!
//! | line | unit | what it is |
//! | --- | --- | --- |
//! | moved | bytes a byte | bytes of pages that cleaning has moved, by bytes of pages that were written |
//! | moved for a write | bytes | the same, by whole pages and deltas that were written |
//! | live in cleaned segments | % | moved bytes by the bytes of the segments that became empty. Cleaning costs less than the share of all segments suggests if this is less |
//! | checkpoints | bytes a byte | bytes of the checkpoints of the page store: it makes one after each pass of cleaning, and writes its whole table |
//! | bytes written | bytes a byte | all bytes: with heads of blocks, padding, moved pages and checkpoints |
//! | rate | MB/s | bytes of pages that were written in a second of the clock, with cleaning |
//!
//! The table has some bytes for each page, and a pass of cleaning empties few segments. So the cost
//! of checkpoints for a byte grows with the number of segments: it is that of a store whose data
//! takes 128 of them.
//!
//! If `u` is the live share of the cleaned segments, a cleaned segment gives room for `1 - u`, and
//! `u` is moved. So about `u / (1 - u)` bytes are moved for a byte. Each line says which share of
//! the segments was really live, on the average of some instants.
//!
//! # Limits of memory
//!
//! The page store has 10 bytes for each page, about 50 more for each page of several parts, and one
//! block. Its files are read and written by the system's cache of files: see [`super`]. The run
//! needs the bytes of the pages twice in `--pool-dir`.
//!
//! # What the paper shows
//!
//! No figure. Section V.B says that with incremental flushing, "the cleaner does not need to work
//! as hard since storage is not being consumed as fast". Here that is the third kind of writes.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use pando_device::Disk;
use pando_lss::{Group, MAX_PARTS, PageStore, PageStoreOptions, Stat};

use super::opened::{folder, refused};
use super::rounds::{Rounds, share};
use crate::error::Error;
use crate::experiment::Settings;
use crate::outcome::Outcome;
use pando_bench::key_sampler::{KeyChoice, KeySampler, Picked};
use pando_bench::rng::Rng;

/// Shares of the segments' bytes that are live, in percent.
const SHARES: [u64; 5] = [50, 60, 70, 80, 90];
/// Records, where none are asked for.
const RECORDS: u64 = 500_000;
const RECORDS_PER_PAGE: u64 = 48;
const PAGE_BYTES: usize = 6 << 10;
const DELTA_BYTES: usize = 256;
/// Segments that have the data.
const SEGMENTS: u64 = 128;
/// Segments that a store has beside the data.
const MORE_SEGMENTS: u64 = 3;
/// The least and the most bytes of a segment, and of what they are multiples.
const SEGMENT_BYTES: [u64; 2] = [64 << 10, 16 << 20];
const SEGMENT_ALIGN: u64 = 4096;
/// How often the bytes of all segments are written before the first round.
const WARM_UPS: usize = 2;
/// How often the live share is looked at in a round.
const LOOKS: u64 = 16;

/// How pages are written.
#[derive(Clone, Copy, Debug)]
struct Pattern {
    name: &'static str,
    keys: KeyChoice,
    /// Deltas between two whole writes of a page.
    deltas: usize,
}

const PATTERNS: [Pattern; 3] = [
    Pattern { name: "whole pages, uniform", keys: KeyChoice::Uniform, deltas: 0 },
    Pattern { name: "whole pages, zipfian", keys: KeyChoice::Zipfian { theta: 0.99 }, deltas: 0 },
    Pattern { name: "deltas, uniform", keys: KeyChoice::Uniform, deltas: MAX_PARTS - 1 },
];

impl Pattern {
    /// The bytes of a page, on average over its writes.
    fn page_bytes(&self) -> u64 {
        (PAGE_BYTES + DELTA_BYTES * self.deltas / 2) as u64
    }
}

/// A store of pages, with the state of its next writes.
struct Pages {
    store: PageStore,
    pattern: Pattern,
    sampler: KeySampler,
    rng: Rng,
    /// How often each page was written.
    writes: Vec<u32>,
    bytes: Vec<u8>,
}

impl Pages {
    /// A store in a new folder with all pages, which are the `percent` of its segments.
    fn new(
        (pattern, pages, percent): (Pattern, u64, u64),
        folder: &Path,
        seed: u64,
    ) -> Result<Self, Error> {
        let data_bytes = pages * pattern.page_bytes();
        let [least, most] = SEGMENT_BYTES;
        let segment_bytes = data_bytes / SEGMENTS / SEGMENT_ALIGN * SEGMENT_ALIGN;
        let segment_bytes = segment_bytes.clamp(least, most);
        let segments = (data_bytes * 100 / percent).div_ceil(segment_bytes) + MORE_SEGMENTS;
        let options = PageStoreOptions {
            segment_bytes,
            // Only `max_bytes` limits the segments, and only cleaning makes checkpoints.
            checkpoint_bytes: u64::MAX,
            ceiling_percent: 10_000,
            max_bytes: segments * segment_bytes,
        };
        let directory = Disk::open_or_create(folder).map_err(refused("a folder for pages"))?;
        let store = PageStore::create(Arc::new(directory), u128::from(seed), options);
        let mut all = Self {
            store: store.map_err(refused("creating a page store"))?,
            pattern,
            sampler: KeySampler::new(pattern.keys, pages),
            rng: Rng::new(seed),
            writes: vec![0; pages as usize],
            bytes: vec![0; PAGE_BYTES],
        };
        (0..pages as u32).try_for_each(|page| all.write(page).map(drop))?;
        Ok(all)
    }

    /// Writes a page as its turn is; the bytes.
    fn write(&mut self, page: u32) -> Result<u64, Error> {
        let writes = &mut self.writes[page as usize];
        let is_whole = (*writes as usize).is_multiple_of(self.pattern.deltas + 1);
        *writes += 1;
        self.bytes[..4].copy_from_slice(&page.to_le_bytes());
        self.bytes[4..8].copy_from_slice(&writes.to_le_bytes());
        let group = match is_whole {
            true => Group::new().base(page, self.bytes.as_slice()),
            false => Group::new().delta(page, &self.bytes[..DELTA_BYTES]),
        };
        let bytes = if is_whole { PAGE_BYTES } else { DELTA_BYTES };
        self.store.append(group).map_err(refused("a write of a page"))?;
        Ok(bytes as u64)
    }

    /// Writes pages at random, so many bytes.
    fn overwrite(&mut self, bytes: u64) -> Result<(), Error> {
        let pages = self.writes.len() as u64;
        let mut written = 0;
        while written < bytes {
            let picked = self.sampler.pick(&mut self.rng, &(0..pages), 0);
            let (Picked::Live(page) | Picked::Added(page)) = picked;
            written += self.write(page as u32)?;
        }
        self.store.sync().map_err(refused("a sync of pages"))
    }

    fn stat(&self) -> Result<Stat, Error> {
        self.store.stat().map_err(refused("the numbers of a page store"))
    }

    /// Writes the bytes of all segments once, and adds the figures to the lines of this `share`.
    fn round(&mut self, lines: &mut Rounds, share_percent: u64) -> Result<(), Error> {
        let (before, begin) = (self.stat()?, Instant::now());
        let writes = |pages: &Self| pages.writes.iter().map(|&writes| u64::from(writes)).sum();
        let writes_before: u64 = writes(self);
        let all_bytes = before.segments * before.segment_bytes;
        let (mut live, mut elapsed) = (0.0, Duration::ZERO);
        for _ in 0..LOOKS {
            let began = begin.elapsed();
            self.overwrite(all_bytes / LOOKS)?;
            elapsed += begin.elapsed() - began;
            let stat = self.stat()?;
            live += share(stat.live_bytes, stat.segments * stat.segment_bytes) / LOOKS as f64;
        }
        let after = self.stat()?;
        let since = |of: fn(&Stat) -> u64| of(&after) - of(&before);
        let appended = since(|stat| stat.appended_bytes);
        let moved = since(|stat| stat.moved_bytes);
        let what = format!("{}, {share_percent} % live", self.pattern.name);
        let mut add = |of: &str, unit, figure| {
            let live = format!("{:.0} % were live", 100.0 * live);
            lines.add_with(&format!("{what}: {of}"), unit, (&live, None), figure);
        };
        let writes: u64 = writes(self) - writes_before;
        add("moved", "bytes a byte", share(moved, appended));
        add("moved for a write", "bytes", share(moved, writes));
        let cleaned_bytes = since(|stat| stat.cleaned_segments) * after.segment_bytes;
        add("live in cleaned segments", "%", 100.0 * share(moved, cleaned_bytes));
        let checkpoints = since(|stat| stat.checkpoint_bytes);
        add("checkpoints", "bytes a byte", share(checkpoints, appended));
        let written = since(|stat| stat.block_bytes + stat.checkpoint_bytes);
        add("bytes written", "bytes a byte", share(written, appended));
        let seconds = elapsed.max(Duration::from_nanos(1)).as_secs_f64();
        add("rate", "MB/s", appended as f64 / 1e6 / seconds);
        Ok(())
    }

    /// Checks that each page has its last write.
    fn check(&self) -> Result<(), Error> {
        for (page, &writes) in (0..).zip(&self.writes) {
            let pieces = self.store.read(page).map_err(refused("a read of a page"))?;
            let found = pieces.as_deref().and_then(|pieces| pieces.last()?.get(..8));
            if found != Some([page.to_le_bytes(), writes.to_le_bytes()].concat().as_slice()) {
                let why = format!("page {page} is lost, or is not that of its write {writes}");
                return Err(refused("the final check")(why));
            }
        }
        Ok(())
    }
}

/// Runs the experiment.
pub fn run(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let pages = (settings.records.unwrap_or(RECORDS) / RECORDS_PER_PAGE).max(1);
    let rounds = settings.rounds.unwrap_or(3);
    progress.set_length((PATTERNS.len() * SHARES.len() * (1 + WARM_UPS + rounds)) as u64);
    let (mut lines, mut segment_bytes) = (Rounds::default(), 0);
    for pattern in PATTERNS {
        for percent in SHARES {
            progress.set_message(format!("{}, {percent} % live", pattern.name));
            let folder = folder(settings)?;
            let mut all = Pages::new((pattern, pages, percent), folder.path(), settings.seed)?;
            progress.inc(1);
            let stat = all.stat()?;
            segment_bytes = stat.segment_bytes;
            for _ in 0..WARM_UPS {
                let all_bytes = pages * pattern.page_bytes() * 100 / percent;
                all.overwrite(all_bytes)?;
                progress.inc(1);
            }
            for _ in 0..rounds {
                all.round(&mut lines, percent)?;
                progress.inc(1);
            }
            all.check()?;
        }
    }
    let mut outcome = Outcome {
        conditions: format!(
            "{pages} pages of {} KiB, deltas of {DELTA_BYTES} bytes, segments of {} KiB, 1 thread, {rounds} rounds",
            PAGE_BYTES >> 10,
            segment_bytes >> 10,
        ),
        ..Outcome::default()
    };
    lines.push_to(&mut outcome);
    Ok(outcome)
}
