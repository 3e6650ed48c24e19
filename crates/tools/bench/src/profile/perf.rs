//! Sampling with `perf`, and from addresses to chains of functions.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use procfs::process::{MMapPath, MemoryMap, Process};

use super::child;
use super::component::Frame;
use super::shares::{Error, Plan, Profile, add_up};

/// Samples a second and thread; no divisor of a timer that the program may have.
const SAMPLES_A_SECOND: u32 = 1997;
/// Below this share of samples with a source, a profile says nothing.
const LEAST_KNOWN_PERCENT: u64 = 50;

/// One sampled address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Relative to the executable's first byte in memory, or absolute in another file.
    pub address: u64,
    /// The symbol that `perf` found, for files without line tables.
    pub symbol: String,
    /// Whether it lies in the executable.
    pub is_own: bool,
}

/// The child, killed when it is dropped.
struct Profiled(Child);

impl Drop for Profiled {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the child, samples it, and adds up.
pub fn run(plan: &Plan) -> Result<Profile, Error> {
    let samples = sample(plan)?;
    attribute(&plan.executable, &samples)
}

/// Runs the child of `plan`, and samples it once it is filled.
pub fn sample(plan: &Plan) -> Result<Vec<Sample>, Error> {
    let failed = |what: String| Error::Child { what };
    let mut profiled = Command::new(&plan.executable)
        .args(&plan.prefix)
        .arg("profile-child")
        .args(["--profile-domain", &plan.domain])
        .args(["--records", &plan.records.to_string()])
        .args(["--threads", &plan.threads.to_string()])
        .args(["--read-percent", &plan.read_percent.to_string()])
        .args(["--seed", &plan.seed.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .map(Profiled)
        .map_err(|error| failed(format!("could not be started: {error}")))?;
    let mut line = String::new();
    if let Some(out) = profiled.0.stdout.take() {
        let read = BufReader::new(out).read_line(&mut line);
        read.map_err(|error| failed(format!("could not be read from: {error}")))?;
    }
    if line.trim_end() != child::FILLED {
        return Err(failed(format!("said {line:?}; its own message is above")));
    }
    let pid = profiled.0.id();
    let base = base_of(pid, &plan.executable)
        .ok_or_else(|| failed("has no mapping of its executable".to_owned()))?;
    let folder = tempfile::tempdir().map_err(|error| failed(format!("has no folder: {error}")))?;
    let data = folder.path().join("perf.data");
    perf(
        Command::new("perf")
            .args(["record", "--quiet", "--event", "cpu-clock:u", "--freq"])
            .arg(SAMPLES_A_SECOND.to_string())
            .arg("--output")
            .arg(&data)
            .args(["--pid", &pid.to_string(), "--", "sleep"])
            .arg(format!("{:.3}", plan.time.as_secs_f64())),
    )?;
    let text = perf(
        Command::new("perf").args(["script", "--fields", "ip,sym,dso", "--input"]).arg(&data),
    )?;
    let name = plan.executable.to_string_lossy().into_owned();
    Ok(text.lines().filter_map(|line| parse(line, base, &name)).collect())
}

fn perf(command: &mut Command) -> Result<String, Error> {
    let package = "linux-perf";
    let output = command.stdin(Stdio::null()).output().map_err(|source| Error::Program {
        program: "perf",
        package,
        source,
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last: Vec<_> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = last[last.len().saturating_sub(3)..].join(" / ");
    Err(Error::Failed { program: "perf", said: last })
}

/// Where the first byte of `executable` lies in the process.
fn base_of(pid: u32, executable: &Path) -> Option<u64> {
    let name = executable.canonicalize().ok()?;
    let maps = Process::new(pid.cast_signed()).and_then(|process| process.maps()).ok()?;
    let is_first =
        |map: &&MemoryMap| map.offset == 0 && map.pathname == MMapPath::Path(name.clone());
    maps.iter().find(is_first).map(|map| map.address.0)
}

/// A line of `perf script`: `ADDRESS SYMBOL (FILE)`.
fn parse(line: &str, base: u64, executable: &str) -> Option<Sample> {
    let (address, rest) = line.trim().split_once(' ')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let (symbol, file) = rest.trim().rsplit_once('(')?;
    let is_own = file.trim_end_matches(')') == executable;
    let address = if is_own { address.checked_sub(base)? } else { address };
    Some(Sample { address, symbol: symbol.trim().to_owned(), is_own })
}

/// Turns samples into chains and adds them up.
pub fn attribute(executable: &Path, samples: &[Sample]) -> Result<Profile, Error> {
    let reason = |reason: String| Error::LineTables { path: executable.to_path_buf(), reason };
    let loader = addr2line::Loader::new(executable).map_err(|error| reason(error.to_string()))?;
    let mut known_chains = HashMap::<u64, Vec<Frame>>::new();
    let (mut chains, mut known) = (Vec::with_capacity(samples.len()), 0);
    for sample in samples {
        if !sample.is_own {
            chains.push(vec![Frame { function: sample.symbol.clone(), file: String::new() }]);
            known += 1;
            continue;
        }
        let chain = match known_chains.get(&sample.address) {
            Some(chain) => chain.clone(),
            None => {
                let chain = chain_of(&loader, sample.address).map_err(reason)?;
                known_chains.insert(sample.address, chain.clone());
                chain
            }
        };
        known += u64::from(!chain.is_empty());
        chains.push(chain);
    }
    let all = samples.len() as u64;
    if all == 0 || known * 100 < all * LEAST_KNOWN_PERCENT {
        return Err(Error::Blind { known, all });
    }
    Ok(add_up(chains.into_iter()))
}

/// The functions inlined at `address`, the innermost first.
fn chain_of(loader: &addr2line::Loader, address: u64) -> Result<Vec<Frame>, String> {
    let mut frames = loader.find_frames(address).map_err(|error| error.to_string())?;
    let mut chain = Vec::new();
    while let Some(frame) = frames.next().map_err(|error| error.to_string())? {
        let name = frame.function.as_ref().and_then(|name| name.demangle().ok());
        let function = name.map_or_else(String::new, |name| name.into_owned());
        let file = frame.location.and_then(|place| place.file).unwrap_or_default().to_owned();
        chain.push(Frame { function, file });
    }
    Ok(chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_perf_script_is_understood() {
        let own =
            parse("    55d0c8a1b2c3 pando::get (inlined) (/x/bench)", 0x55d0c8a00000, "/x/bench");
        let due =
            Sample { address: 0x1b2c3, symbol: "pando::get (inlined)".to_owned(), is_own: true };
        assert_eq!(own, Some(due));
        let other = parse(" 7f10 __memmove_avx (/usr/lib/libc.so.6)", 0, "/x/bench").unwrap();
        assert_eq!((other.symbol.as_str(), other.is_own), ("__memmove_avx", false));
        assert_eq!(parse("", 0, ""), None);
    }
}
