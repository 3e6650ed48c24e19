//! The process that is cut short: it opens a pool, says what it holds, and writes to it.
//!
//! Its life, and what it says ([`Message`]) on the way:
//!
//! 1. *opening*; what lies beside the pool, of earlier pools and of creations cut short, is
//!    removed; the pool is opened, or created if it is not there; *opened*;
//! 2. if asked to look: what the pool holds, and what is wrong with it; *looked*;
//! 3. if asked to write: *writing*; an acknowledgement after each operation that has returned, or
//!    after each few, until the time is over;
//! 4. *closing*; the pool is closed; *closed*.
//!
//! It may be killed at any instant of this. An error or a panic ends it at once, and is said.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pando::{Error, Map, Pool, PoolOptions};

pub use super::created::Created;
use super::look;
use super::message::{Message, Opened, Voice, short};
use super::workload::{self, MAIN, Maps, Profile, State, Writer};
use crate::failure::Failure;
use pando_index::random::Random;

/// How far a pool may grow.
const MAX_BYTES: u64 = 96 << 20;
/// Between an announcement and the deed, so that a kill can come before, within and after it.
const ANNOUNCED: Duration = Duration::from_micros(150);

type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// What the process is to do.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The pool, in a folder of its own
    #[arg(long)]
    pub pool: PathBuf,
    /// Say what the pool holds
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
    /// Operations of a writer to an acknowledgement
    #[arg(long, default_value_t = 1)]
    pub every: u64,
    /// How long they write, in milliseconds
    #[arg(long, default_value_t = 10_000)]
    pub write_ms: u64,
    /// What the maps are.
    #[command(flatten)]
    pub created: Created,
}

impl Args {
    /// The words after the command's own name that say the same.
    pub fn words(&self) -> Vec<String> {
        let Self { pool, look, write, writers, seed, every, write_ms, created } = self;
        let mut words = vec!["child".to_owned(), format!("--pool={}", pool.display())];
        words.extend(look.then(|| "--look".to_owned()));
        words.extend(write.map(|profile| format!("--write={profile:?}").to_lowercase()));
        words.push(format!("--writers={writers}"));
        words.push(format!("--seed={seed}"));
        words.push(format!("--every={every}"));
        words.push(format!("--write-ms={write_ms}"));
        words.extend(created.words());
        words
    }
}

/// Lives the life above.
pub fn run(args: &Args) -> Result<(), Failure> {
    let voice =
        Voice::standard_output().map_err(|error| Failure::trouble("use standard output", error))?;
    // A thread that panics must not leave the others running as if all were well.
    std::panic::set_hook(Box::new(|panic| {
        if let Ok(voice) = Voice::standard_output() {
            let _ = voice.say(&Message::Failed(short(panic)));
        }
        std::process::abort();
    }));
    live(args, &voice).unwrap_or_else(|trouble| end(&voice, &*trouble));
    Ok(())
}

/// Ends the process, and leaves the pool as it is.
fn end(voice: &Voice, trouble: &(dyn std::error::Error + Send + Sync)) -> ! {
    // If nobody listens any more, there is nobody to tell.
    let _ = voice.say(&Message::Failed(short(trouble)));
    std::process::exit(1)
}

fn live(args: &Args, voice: &Voice) -> Result<(), Trouble> {
    clear_beside(&args.pool)?;
    voice.say(&Message::Opening)?;
    wait_awake(ANNOUNCED);
    let begin = Instant::now();
    let (pool, created) = match open(&args.pool) {
        Ok(found) => found,
        Err(Error::NotTrusted { .. }) => return Ok(voice.say(&Message::Refused)?),
        Err(error) => return Err(error.into()),
    };
    look::first_get(&pool)?;
    let first_get_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    voice.say(&Message::Opened(opened(&pool, created, first_get_ns)?))?;
    let state = if args.look { look::tell(&pool, voice)? } else { State::new() };
    if let Some(profile) = args.write {
        let state = if args.look { state } else { look::state(&pool)? };
        let options = args.created.options();
        let main = pool.map_with(&workload::map_name(MAIN), &options)?;
        let writers = Writer::all(&state, args.writers, profile, args.seed);
        voice.say(&Message::Writing)?;
        let until = Instant::now() + Duration::from_millis(args.write_ms);
        std::thread::scope(|scope| {
            for writer in writers {
                let maps = Maps { pool: &pool, main: &main, options: &options };
                scope.spawn(move || {
                    write(maps, writer, args.every, until, voice)
                        .unwrap_or_else(|trouble| end(voice, &*trouble));
                });
            }
        });
    }
    voice.say(&Message::Closing)?;
    wait_awake(ANNOUNCED);
    pool.close()?;
    Ok(voice.say(&Message::Closed)?)
}

/// Removes all files beside the pool.
fn clear_beside(pool: &Path) -> std::io::Result<()> {
    let Some(folder) = pool.parent() else { return Ok(()) };
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path != pool && path.is_file() {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Opens the pool, or creates it if it is not there.
fn open(path: &Path) -> Result<(Pool, bool), Error> {
    let options = PoolOptions::new().max_bytes(MAX_BYTES);
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
        first_get_ns,
        completed: stat.recovery.rolled_forward,
        undone: stat.recovery.rolled_back,
        domain: stat.domain,
        medium: stat.medium,
        guarantee: stat.guarantee,
    })
}

/// One writer: some operations, their acknowledgement, and a look at somebody's record, in turn.
fn write(
    maps: Maps<'_>,
    mut writer: Writer,
    every: u64,
    until: Instant,
    voice: &Voice,
) -> Result<(), Trouble> {
    let mut reads = Random::new(!writer.number);
    while Instant::now() < until {
        for _ in 0..every {
            let (op, answer) = writer.step();
            let found = op.run(maps)?;
            if found != answer {
                return Err(format!("{op:?} answers {found:?}, it must answer {answer:?}").into());
            }
        }
        voice.say(&Message::Done { writer: writer.number, count: writer.count })?;
        read_any(maps.main, writer.any_key(&mut reads))?;
    }
    Ok(())
}

/// Whatever is there, while others write, is a whole record.
fn read_any(main: &Map, key: u64) -> Result<(), Trouble> {
    let is_whole = |found: &[u8]| workload::version(MAIN, key, found).is_some();
    match main.read(&workload::key(key), is_whole)? {
        Some(false) => Err(format!("a get finds half a record, key {key}").into()),
        _ => Ok(()),
    }
}

/// Waits without giving up the processor: a sleep would last longer than what is waited for.
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
        let created = Created { index: Some("wbtree".to_owned()), values };
        let (seed, every, write_ms) = (u64::MAX, 5, 7);
        let args = Args { pool, look: true, write, writers: 3, seed, every, write_ms, created };
        let parsed = Line::parse_from(args.words()).args;
        assert_eq!(format!("{parsed:?}"), format!("{args:?}"));
    }
}
