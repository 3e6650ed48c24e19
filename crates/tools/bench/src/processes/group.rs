//! The processes of a slice, started together.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::de::DeserializeOwned;

use super::child::{Done, Ready, Request};
use super::place::Place;
use crate::error::Error;
use crate::measure::Plan;
use crate::program::Program;

/// A process, killed when it is dropped.
pub(super) struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    /// How long its opening took.
    pub opened_ns: u64,
}

impl Worker {
    /// Starts a process with so many threads; returns when it has opened the map. If it
    /// `touches`, it has read all records then.
    pub fn start(
        program: &Program,
        place: &Place,
        plan: &Plan,
        threads: usize,
        touches: bool,
    ) -> Result<Self, Error> {
        let mut command = Command::new(&program.executable);
        command
            .args(&program.prefix)
            .args(["processes-child", "--system", place.kept.name()])
            .args(["--threads", &threads.to_string()])
            .args(["--records", &plan.records.to_string()])
            .args(["--value-bytes", &plan.shape.value_bytes.to_string()])
            .arg("--file")
            .arg(&place.path);
        if touches {
            command.arg("--touches");
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let input = child.stdin.take();
        let Some(out) = child.stdout.take() else {
            return Err(Error::Child { what: "has no output".to_owned() });
        };
        let mut worker = Self { child, input, lines: BufReader::new(out), opened_ns: 0 };
        let ready: Ready = worker.line()?;
        worker.opened_ns = ready.opened_ns;
        Ok(worker)
    }

    /// Sends a request.
    pub fn ask(&mut self, request: Request) -> Result<(), Error> {
        let line = serde_json::to_string(&request).unwrap_or_default() + "\n";
        match &mut self.input {
            Some(input) => input.write_all(line.as_bytes()).map_err(failed),
            None => Ok(()),
        }
    }

    /// The answer to a request.
    pub fn answer(&mut self) -> Result<Done, Error> {
        self.line()
    }

    fn line<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        let mut line = String::new();
        self.lines.read_line(&mut line).map_err(failed)?;
        serde_json::from_str(&line).map_err(|_| Error::Child {
            what: format!("said {line:?} and ended; its own message is above"),
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it.
    pub fn kill(mut self) -> Result<(), Error> {
        self.child.kill().map_err(failed)?;
        self.child.wait().map(drop).map_err(failed)
    }

    /// Lets it close the map and end.
    pub fn leave(mut self) -> Result<(), Error> {
        self.input = None;
        let ended = self.child.wait().map_err(failed)?;
        match ended.success() {
            true => Ok(()),
            false => Err(Error::Child { what: format!("ended with {ended}") }),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Errors are ignored: the process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed(source: std::io::Error) -> Error {
    Error::Child { what: format!("could not be run: {source}") }
}

/// The sum of what processes have done, with the longest latencies.
pub(super) fn sum(all: &[Done]) -> Done {
    all.iter().fold(Done::default(), |sum, done| Done {
        per_second: sum.per_second + done.per_second,
        on_core_seconds: sum.on_core_seconds + done.on_core_seconds,
        operations: sum.operations + done.operations,
        p99_ns: sum.p99_ns.max(done.p99_ns),
        longest_ns: sum.longest_ns.max(done.longest_ns),
    })
}
