//! The process that is killed: it opens a pool, reports its content, and writes to it.
//!
//! Its steps, with the messages ([`Message`]) in italics:
//!
//! 1. It removes the files beside the pool: earlier pools with their logs, and pools whose creation
//!    was killed. *Opening*. It opens the pool, or creates it. *Opened*.
//! 2. With `--look`: it reports the pool's content and problems. *Looked*.
//! 3. With `--write`: it fills a store beyond its memory. *Writing*. It sends an acknowledgement
//!    after each returned operation, or after each few, until the time is over. With
//!    `--write=transactions` it sends each transaction before its commit and after it.
//! 4. *Closing*. It closes the pool. *Closed*.
//!
//! It may be killed at any instant. It reports an error or a panic, and ends at once.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pando::{Error, Map, Pool, Store};

use super::created;
pub use super::created::Created;
use super::filled;
use super::look;
use super::message::{Message, Opened, Voice, short};
use super::transactions::{self, Recorder};
use super::workload::{self, MAIN, Maps, Profile, State, Style, Writer};
use crate::failure::Failure;
use pando_index::random::Random;

/// Largest size of a pool.
const MAX_BYTES: u64 = 96 << 20;
/// Memory for the pages of a store.
const STORE_MEMORY_BYTES: u64 = 16 << 20;
/// Delay between a message and its action, so that a kill can come before, during and after it.
const ANNOUNCED: Duration = Duration::from_micros(150);

type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// The orders of the process.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The pool, in a folder of its own
    #[arg(long)]
    pub pool: PathBuf,
    /// Report the content of the pool
    #[arg(long)]
    pub look: bool,
    /// Write in this way
    #[arg(long, value_enum)]
    pub write: Option<Profile>,
    /// Threads that write
    #[arg(long, default_value_t = 4)]
    pub writers: u64,
    /// Seed of what they write
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Operations of a writer per acknowledgement
    #[arg(long, default_value_t = 1)]
    pub every: u64,
    /// Messages that are lost at a power cut after they were sent
    #[arg(long, default_value_t = 0)]
    pub queue: u64,
    /// How long they write, in milliseconds
    #[arg(long, default_value_t = 10_000)]
    pub write_ms: u64,
    /// The index of the maps.
    #[command(flatten)]
    pub created: Created,
}

impl Args {
    /// The same as words of a command line.
    pub fn words(&self) -> Vec<String> {
        let Self { pool, look, write, writers, seed, every, queue, write_ms, created } = self;
        let mut words = vec!["child".to_owned(), format!("--pool={}", pool.display())];
        words.extend(look.then(|| "--look".to_owned()));
        words.extend(write.map(|profile| format!("--write={profile:?}").to_lowercase()));
        words.push(format!("--writers={writers}"));
        words.push(format!("--seed={seed}"));
        words.push(format!("--every={every}"));
        words.push(format!("--queue={queue}"));
        words.push(format!("--write-ms={write_ms}"));
        words.extend(created.words());
        words
    }
}

/// Runs the steps above.
pub fn run(args: &Args) -> Result<(), Failure> {
    let voice =
        Voice::standard_output().map_err(|error| Failure::trouble("use standard output", error))?;
    args.created.set_lengths();
    end_at_a_panic();
    live(args, &voice).unwrap_or_else(|trouble| end(&voice, &*trouble));
    Ok(())
}

/// A panic in one thread ends the process, and tells its message.
pub(crate) fn end_at_a_panic() {
    std::panic::set_hook(Box::new(|panic| {
        if let Ok(voice) = Voice::standard_output() {
            let _ = voice.say(&Message::Failed(short(panic)));
        }
        std::process::abort();
    }));
}

/// Ends the process, and leaves the pool as it is.
pub(crate) fn end(voice: &Voice, trouble: &(dyn std::error::Error + Send + Sync)) -> ! {
    // The send fails if the reader is gone.
    let _ = voice.say(&Message::Failed(short(trouble)));
    std::process::exit(1)
}

fn live(args: &Args, voice: &Voice) -> Result<(), Trouble> {
    clear_beside(&args.pool, &args.created)?;
    voice.say(&Message::Opening)?;
    wait_awake(ANNOUNCED);
    let begin = Instant::now();
    let (pool, created) = match open(&args.pool, &args.created) {
        Ok(found) => found,
        Err(Error::NotTrusted { .. }) => {
            voice.say(&Message::Refused)?;
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    look::first_get(&pool)?;
    let first_get_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    voice.say(&Message::Opened(opened(&pool, created, first_get_ns)?))?;
    let state = if args.look { look::tell(&pool, voice)? } else { State::new() };
    let filled = match args.write {
        // An error ends the process at once: the drop of the pool would wait for its threads.
        Some(_) if args.created.store => Some(
            filled::fill(&pool, &args.created.options()).unwrap_or_else(|error| end(voice, &error)),
        ),
        _ => None,
    };
    let open = Open { args, pool: &pool, filled: filled.as_ref(), voice };
    match args.write {
        Some(Profile::Transactions) => open.run_transactions()?,
        Some(profile) => {
            let state = if args.look { state } else { look::state(&pool)? };
            let style = Style { profile, is_transactional: args.created.transactional };
            open.write_all(Writer::all(&state, args.writers, style, args.seed))?;
        }
        None => {}
    }
    drop(filled);
    voice.say(&Message::Closing)?;
    wait_awake(ANNOUNCED);
    pool.close()?;
    voice.say(&Message::Closed)?;
    Ok(())
}

/// A pool that is open, and the orders.
#[derive(Clone, Copy)]
struct Open<'open> {
    args: &'open Args,
    pool: &'open Pool,
    /// The map that fills the store, if it is one.
    filled: Option<&'open Map>,
    voice: &'open Voice,
}

impl Open<'_> {
    /// Runs the writers.
    fn write_all(self, writers: Vec<Writer>) -> Result<(), Trouble> {
        let Self { args, pool, voice, .. } = self;
        let options = args.created.options();
        let main = pool.map_with(&workload::map_name(MAIN), &options)?;
        let maps = Maps { pool, main: &main, options: &options };
        let run = |writer, until| move || write(maps, writer, args, until, voice);
        self.run_all(|until| writers.into_iter().map(|writer| run(writer, until)).collect())
    }

    /// Runs transactions of as many threads, and tells their history.
    fn run_transactions(self) -> Result<(), Trouble> {
        let Self { args, pool, voice, .. } = self;
        let maps = transactions::maps(pool, &args.created.options())?;
        let is_buffered = args.created.buffered;
        let recorder = Recorder { pool, maps: &maps, voice, queue: args.queue, is_buffered };
        let mut random = Random::new(args.seed);
        let randoms = (0..args.writers).map(|_| Random::new(random.draw()));
        let run = |random, until| move || recorder.run(random, until);
        self.run_all(|until| randoms.map(|random| run(random, until)).collect())
    }

    /// Runs threads, and beside them one that uses the cache of a store. The argument of `threads`
    /// is the end of their time.
    fn run_all<T: FnOnce() -> Result<(), Trouble> + Send>(
        self,
        threads: impl FnOnce(Instant) -> Vec<T>,
    ) -> Result<(), Trouble> {
        let Self { args, pool, filled, voice } = self;
        voice.say(&Message::Writing)?;
        let until = Instant::now() + Duration::from_millis(args.write_ms);
        let or_end = |ran: Result<(), Trouble>| ran.unwrap_or_else(|trouble| end(voice, &*trouble));
        std::thread::scope(|scope| {
            for thread in threads(until) {
                scope.spawn(move || or_end(thread()));
            }
            if let Some(map) = filled {
                let random = Random::new(!args.seed);
                scope.spawn(move || or_end(filled::use_cache(pool, map, random, until)));
            }
        });
        Ok(())
    }
}

/// Removes all other files from the folder of the pool and its log.
fn clear_beside(pool: &Path, created: &Created) -> std::io::Result<()> {
    let Some(folder) = pool.parent() else { return Ok(()) };
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path == pool || created.log(pool).is_some_and(|log| log == path) {
            continue;
        }
        match path.is_dir() {
            true if created::is_log(&path) || path.join("pages").is_dir() => {
                std::fs::remove_dir_all(path)?;
            }
            true => {}
            false => std::fs::remove_file(path)?,
        }
    }
    Ok(())
}

/// Opens the pool, or creates it.
fn open(path: &Path, created: &Created) -> Result<(Pool, bool), Error> {
    let options = created.pool_options(path).max_bytes(MAX_BYTES);
    if created.store {
        let is_new = !path.join("control").exists() && !path.join("pages").exists();
        return Ok((Store::open_with(path, STORE_MEMORY_BYTES, &options)?.into_pool(), is_new));
    }
    match Pool::open(path, &options) {
        Err(Error::PoolNotFound { .. }) => Ok((Pool::create(path, &options)?, true)),
        opened => Ok((opened?, false)),
    }
}

fn opened(pool: &Pool, created: bool, first_get_ns: u64) -> Result<Opened, Error> {
    let stat = pool.stat()?;
    Ok(Opened {
        created,
        was_clean: stat.recovery.was_clean,
        from_log: stat.recovery.from_log,
        first_get_ns,
        completed: stat.recovery.rolled_forward,
        undone: stat.recovery.rolled_back,
        domain: stat.domain,
        medium: stat.medium,
        guarantee: stat.guarantee,
    })
}

/// One writer: in turn some operations, their acknowledgement, and a read of any writer's record.
fn write(
    maps: Maps<'_>,
    mut writer: Writer,
    args: &Args,
    until: Instant,
    voice: &Voice,
) -> Result<(), Trouble> {
    let mut reads = Random::new(!writer.number);
    while Instant::now() < until {
        for _ in 0..args.every {
            let (op, answer) = writer.step();
            let found = op.run(maps)?;
            if found != answer {
                return Err(format!("{op:?} answers {found:?}, expected {answer:?}").into());
            }
        }
        if args.created.buffered {
            maps.pool.sync()?;
        }
        voice.say(&Message::Done { writer: writer.number, count: writer.count })?;
        read_any(maps.main, writer.any_key(&mut reads))?;
    }
    Ok(())
}

/// Reads a record while others write. It must be complete.
fn read_any(main: &Map, key: u64) -> Result<(), Trouble> {
    let is_whole = |found: &[u8]| workload::version(MAIN, key, found).is_some();
    match main.read(workload::key(key), is_whole)? {
        Some(false) => Err(format!("a get finds a torn record, key {key}").into()),
        _ => Ok(()),
    }
}

/// Waits in a loop: a sleep would be longer than the delay.
pub fn wait_awake(delay: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < delay {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn the_words_say_what_the_arguments_say() {
        let pool = PathBuf::from("/folder/pool");
        let write = Some(Profile::Growing);
        let values = vec![("node_lines".to_owned(), "4".to_owned())];
        let index = Some("wbtree".to_owned());
        let (transactional, synced, buffered, store) = (true, true, true, false);
        let created = Created { index, values, transactional, synced, buffered, store };
        let (seed, every, queue, write_ms) = (u64::MAX, 5, 6, 7);
        let (look, writers) = (true, 3);
        let args = Args { pool, look, write, writers, seed, every, queue, write_ms, created };
        let parsed = Line::parse_from(args.words()).args;
        assert_eq!(format!("{parsed:?}"), format!("{args:?}"));
    }
}
