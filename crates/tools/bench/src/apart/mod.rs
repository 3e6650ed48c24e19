//! A system in a process of its own, whose memory is limited: for records that memory cannot hold.
//!
//! The comparison is the same as of systems in this process: rounds of slices, one system after the
//! other. A slice is a request to the system's process, which runs it and replies. All systems have
//! the same limit, and the page cache counts (`group.rs`). The process also reports the bytes that
//! it has read from the device and written meanwhile. The kernel counts a write when a page of a
//! file becomes dirty.
//!
//! A process ends with its parent.

pub mod group;
mod message;

use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use procfs::process::Process;

use self::group::Group;
use self::message::{Figures, Part, Reply, Request, records_of, told};
use crate::args::ApartArgs;
use crate::error::{Failure, Fault};
use crate::key_sampler::{KeyChoice, KeySampler};
use crate::machine;
use crate::program::Program;
use crate::record::{Records, Shape};
use crate::slice::{Outcome, Slice, Traffic};
use crate::subject::Subject;
use crate::system::{AnySystem, Refusal, Scan};
use crate::systems::entry::{BuildError, BuildOptions, Builder};
use crate::systems::{self, SystemName};

/// The cache of a system in a process with so much memory: as much as it can have before the kernel
/// ends the process. A store takes about 50 MiB beside its cache. fjall takes about twice as much
/// as it is told.
fn cache_bytes(name: SystemName, memory_bytes: u64) -> u64 {
    match name.name().split(':').collect::<Vec<_>>().as_slice() {
        ["bwtree", "store" | "store-synced"] => memory_bytes / 4 * 3,
        ["fjall", ..] => memory_bytes / 4,
        _ => memory_bytes / 2,
    }
}

/// How a process is started and limited.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of memory, with the system's cache of files.
    pub memory_bytes: u64,
    /// This program, which runs itself.
    pub program: Program,
}

/// The pipes of a process, and the process.
struct Running {
    requests: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
    child: Child,
}

/// A system in another process.
struct Apart {
    running: Mutex<Running>,
    // Dropped last: the process has ended then.
    _group: Group,
}

/// The builder of the system `name` in a process of its own.
pub fn builder(
    name: SystemName,
    (records, shape): (u64, Shape),
    options: &BuildOptions,
    limits: &Limits,
) -> Builder {
    let (options, limits) = (options.clone(), limits.clone());
    Box::new(move || Ok(Box::new(Apart::start(name, (records, shape), &options, &limits)?)))
}

impl Apart {
    fn start(
        name: SystemName,
        (records, shape): (u64, Shape),
        options: &BuildOptions,
        limits: &Limits,
    ) -> Result<Self, BuildError> {
        let group = Group::new(limits.memory_bytes)?;
        let mut child = Command::new(&limits.program.executable)
            .args(&limits.program.prefix)
            .args(["system-child", "--system", name.name()])
            .args(["--records", &records.to_string()])
            .args(["--key-bytes", &shape.key_bytes.to_string()])
            .args(["--value-bytes", &shape.value_bytes.to_string()])
            .args(["--cache-bytes", &cache_bytes(name, limits.memory_bytes).to_string()])
            .arg("--pool-dir")
            .arg(&options.pool_dir)
            .arg("--log-dir")
            .arg(options.log_dir())
            .arg("--group")
            .arg(group.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(requests), Some(replies)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the process has no pipes".into());
        };
        let replies = BufReader::new(replies);
        let running = Running { requests: Some(requests), replies, child };
        let apart = Self { running: Mutex::new(running), _group: group };
        match apart.next_reply()? {
            Reply::Built => Ok(apart),
            other => Err(unexpected(&other).into()),
        }
    }

    fn next_reply(&self) -> Result<Reply, String> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut line = String::new();
        running.replies.read_line(&mut line).map_err(|error| error.to_string())?;
        if line.is_empty() {
            let status = running.child.wait().map_err(|error| error.to_string())?;
            return Err(format!(
                "its process ended: {status}. If it was killed, it needs more memory"
            ));
        }
        serde_json::from_str(&line).map_err(|error| error.to_string())
    }

    fn ask(&self, request: &Request) -> Result<Reply, Fault> {
        let apart = |what| Fault::Apart { what };
        let line = serde_json::to_string(request).map_err(|error| apart(error.to_string()))?;
        {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            // If it fails, the process has ended, and the reply is missing.
            let _ = running.requests.as_mut().map(|requests| writeln!(requests, "{line}"));
        }
        match self.next_reply().map_err(apart)? {
            Reply::Failed(what) => Err(apart(what)),
            reply => Ok(reply),
        }
    }

    fn bytes(&self) -> (Option<u64>, Option<u64>) {
        match self.ask(&Request::Bytes) {
            Ok(Reply::Bytes(memory, files)) => (memory, files),
            _ => (None, None),
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner);
        // It ends when there are no more requests, and removes its files.
        drop(running.requests.take());
        let _ = running.child.wait();
    }
}

fn unexpected(reply: &Reply) -> String {
    match reply {
        Reply::Failed(what) => what.clone(),
        other => format!("its process replied {other:?}, which was not asked for"),
    }
}

impl Subject for Apart {
    fn run(&self, slice: &Slice<'_>) -> Result<Outcome, Fault> {
        match self.ask(&Request::Run(Part::of(slice)))? {
            Reply::Ran(figures) => Ok(figures.outcome()),
            other => Err(Fault::Apart { what: unexpected(&other) }),
        }
    }

    fn verify(&self, records: Records, live: &Range<u64>, is_whole: bool) -> Result<(), Fault> {
        let (records, live) = (told(records), live.clone());
        match self.ask(&Request::Verify { records, live, is_whole })? {
            Reply::Verified => Ok(()),
            other => Err(Fault::Apart { what: unexpected(&other) }),
        }
    }

    fn any(&self) -> &dyn AnySystem {
        self
    }

    fn footprint_bytes(&self) -> Option<u64> {
        self.bytes().0
    }

    fn file_bytes(&self) -> Option<u64> {
        self.bytes().1
    }
}

/// Single operations are not asked for.
fn refused<T>() -> Result<T, Refusal> {
    Err("the system is in another process, which runs slices alone".into())
}

impl AnySystem for Apart {
    fn insert_new(&self, _: &[u8], _: &[u8]) -> Result<bool, Refusal> {
        refused()
    }

    fn upsert(&self, _: &[u8], _: &[u8]) -> Result<(), Refusal> {
        refused()
    }

    fn get(&self, _: &[u8], _: &mut dyn FnMut(&[u8])) -> Result<bool, Refusal> {
        refused()
    }

    fn delete(&self, _: &[u8]) -> Result<bool, Refusal> {
        refused()
    }

    fn scan(&self, _: Scan<'_>, _: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        refused()
    }

    fn count(&self) -> Result<u64, Refusal> {
        refused()
    }

    fn footprint_bytes(&self) -> Option<u64> {
        self.bytes().0
    }
}

/// What this process has read from the device and written, so far.
fn traffic() -> Traffic {
    let io = Process::myself().and_then(|process| process.io());
    io.map_or(Traffic::default(), |io| Traffic {
        read_bytes: io.read_bytes,
        written_bytes: io.write_bytes,
    })
}

/// The process of a system: replies to requests until there are none.
///
/// # Errors
///
/// The first failure, which is a reply too.
pub fn be_system(args: &ApartArgs) -> Result<(), Failure> {
    machine::die_with_parent();
    let mut out = std::io::stdout().lock();
    let mut reply = |reply: &Reply| -> Result<(), Failure> {
        writeln!(out, "{}", serde_json::to_string(reply)?)?;
        Ok(out.flush()?)
    };
    let served = serve(args, &mut reply);
    if let Err(error) = &served {
        reply(&Reply::Failed(error.to_string()))?;
    }
    served
}

fn serve(
    args: &ApartArgs,
    reply: &mut dyn FnMut(&Reply) -> Result<(), Failure>,
) -> Result<(), Failure> {
    Group::join(&args.group)?;
    let shape = Shape { key_bytes: args.key_bytes, value_bytes: args.value_bytes };
    let options = BuildOptions {
        pool_dir: args.pool_dir.clone(),
        log_dir: Some(args.log_dir.clone()),
        cache_bytes: args.cache_bytes,
        ..BuildOptions::default()
    };
    let options = options.for_records(args.records, shape);
    let subject = systems::builder(args.system, shape, &options)()?;
    reply(&Reply::Built)?;
    // That of the last slice: those of large numbers of records are not made in no time.
    let mut sampler = (KeyChoice::Uniform, KeySampler::Uniform);
    for line in std::io::stdin().lock().lines() {
        let answer = match serde_json::from_str(&line?)? {
            Request::Run(part) => {
                let keys = part.keys()?;
                if sampler.0 != keys {
                    sampler = (keys, KeySampler::new(keys, args.records));
                }
                let before = traffic();
                let outcome = subject.run(&part.slice(&sampler.1)?)?;
                Reply::Ran(Figures::of(&outcome, traffic().since(before)))
            }
            Request::Verify { records, live, is_whole } => {
                subject.verify(records_of(records), &live, is_whole)?;
                Reply::Verified
            }
            Request::Bytes => Reply::Bytes(subject.footprint_bytes(), subject.file_bytes()),
        };
        reply(&answer)?;
    }
    Ok(())
}
