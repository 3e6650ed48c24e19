//! The server whose power is cut, and its clients.
//!
//! 1. *Opening*. The server opens its pool, or builds it anew from its log.
//! 2. A client checks that what it must have is there. *Looked*, through the port's queue.
//! 3. With `--write`: the client removes all keys, and waits until that survives a power cut.
//!    *Writing*. Each writer sends the load ([`pando_server::testing::load`]), and tells the
//!    requests that a power cut may not undo from then on.
//! 4. Without: *Closing*. The server is shut down. *Closed*.
//!
//! With `--sync always` these are the acknowledged ones. With `everysec` a power cut undoes at most
//! the writes that were acknowledged in the two seconds before the last reply. A reply is sent
//! after its request. So when a reply comes, those survive that were acknowledged two seconds
//! before its request was sent.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use pando::PoolOptions;
use pando_server::testing::client::Client;
use pando_server::testing::load::{self, Known};
use pando_server::{Options, SyncMode};

use super::options::Sync;
use super::powered::{EVERY, QUEUE};
use crate::failure::Failure;
use crate::kill::child::{end, end_at_a_panic};
use crate::kill::message::{Message, Voice};

/// In the memory of the machine.
const SOCKET: &str = "/pando.socket";
const MAX_BYTES: u64 = 192 << 20;
const PAUSE: Duration = Duration::from_millis(10);
const EVENT_LOOPS: usize = 2;
/// What a power cut may undo in the mode `everysec`. The server counts whole milliseconds.
const UNDONE: Duration = Duration::from_millis(2_010);

/// The orders of the process.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The pool; its log is beside it
    #[arg(long)]
    pub pool: PathBuf,
    /// When replies to writes are sent
    #[arg(long, value_enum)]
    pub sync: Sync,
    /// What must be there, for each writer: requests that were acknowledged, and that were sent
    #[arg(long, value_delimiter = ',')]
    pub known: Vec<Bounds>,
    /// Write until the power is cut
    #[arg(long)]
    pub write: bool,
}

/// The bounds of the requests of a writer that were carried out: `ACKNOWLEDGED:SENT`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds(pub Known);

impl FromStr for Bounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bounds = text.split_once(':').and_then(|(acknowledged, sent)| {
            Some(Known { acknowledged: acknowledged.parse().ok()?, sent: sent.parse().ok()? })
        });
        bounds.map(Self).ok_or_else(|| format!("{text} is not ACKNOWLEDGED:SENT"))
    }
}

impl Args {
    /// The same as words of a command line.
    pub fn words(&self) -> Vec<String> {
        let Self { pool, sync, known, write } = self;
        let known = known
            .iter()
            .map(|Bounds(Known { acknowledged, sent })| format!("{acknowledged}:{sent}"));
        let mut words = vec![
            "served".to_owned(),
            format!("--pool={}", pool.display()),
            format!("--sync={sync:?}").to_lowercase(),
            format!("--known={}", known.collect::<Vec<_>>().join(",")),
        ];
        words.extend(write.then(|| "--write".to_owned()));
        words
    }
}

/// Runs the steps above.
pub fn run(args: &Args) -> Result<(), Failure> {
    let voice =
        Voice::standard_output().map_err(|error| Failure::trouble("use standard output", error))?;
    end_at_a_panic();
    std::thread::scope(|scope| {
        let said = || -> std::io::Result<()> {
            voice.say(&Message::Opening)?;
            let server = scope.spawn(|| {
                pando_server::serve(&options(args)).unwrap_or_else(|error| end(&voice, &error));
            });
            // The rebuild takes minutes on a busy machine; the one who cuts the power is patient.
            while UnixStream::connect(SOCKET).is_err() {
                std::thread::sleep(PAUSE);
            }
            let mut client = Client::unix(Path::new(SOCKET));
            for (writer, Bounds(known)) in args.known.iter().enumerate() {
                load::verify(&mut client, writer, known);
            }
            // After this the keys are removed.
            voice.say_through(&Message::Looked, QUEUE)?;
            if args.write {
                client.ask(&["FLUSHALL"]);
                client.ask(&["WAITAOF", "1", "0", "0"]);
                voice.say(&Message::Writing)?;
                for writer in 0..args.known.len() {
                    let voice = &voice;
                    scope.spawn(move || write(writer, args.sync, voice));
                }
                return Ok(());
            }
            voice.say(&Message::Closing)?;
            client.send(&["SHUTDOWN"])?;
            if server.join().is_ok() {
                voice.say(&Message::Closed)?;
            }
            Ok(())
        };
        said().unwrap_or_else(|error| end(&voice, &error));
    });
    Ok(())
}

fn options(args: &Args) -> Options {
    let log = args.pool.with_extension("log");
    Options {
        pool: Some(args.pool.clone()),
        pool_options: PoolOptions::new().max_bytes(MAX_BYTES).log(log),
        sync: Some(match args.sync {
            Sync::Always => SyncMode::Always,
            Sync::Everysec => SyncMode::EverySecond,
        }),
        unix: Some(SOCKET.into()),
        threads: EVENT_LOOPS,
        ..Options::default()
    }
}

/// Sends the load of a writer, and tells what survives.
fn write(writer: usize, sync: Sync, voice: &Voice) {
    let client = Client::unix(Path::new(SOCKET));
    // Acknowledged requests that a power cut may still undo: when, and their number.
    let mut acknowledged = VecDeque::new();
    let (mut survive, mut told) = (0, 0);
    load::write(client, writer, &Mutex::default(), |count, sent_at: Instant| {
        match sync {
            Sync::Always => survive = count,
            Sync::Everysec => {
                acknowledged.push_back((Instant::now(), count));
                while let Some(&(at, count)) = acknowledged.front()
                    && at + UNDONE <= sent_at
                {
                    survive = count;
                    acknowledged.pop_front();
                }
            }
        }
        if survive >= told + EVERY {
            told = survive;
            let done = Message::Done { writer: writer as u64, count: survive };
            voice.say(&done).map(drop).unwrap_or_else(|error| end(voice, &error));
        }
    });
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
        let known = [Known::default(), Known { acknowledged: 7, sent: u64::MAX }];
        let args = Args {
            pool: "/disk/0.pando".into(),
            sync: Sync::Everysec,
            known: known.map(Bounds).into(),
            write: true,
        };
        let parsed = Line::parse_from(args.words()).args;
        assert_eq!(format!("{parsed:?}"), format!("{args:?}"));
    }
}
