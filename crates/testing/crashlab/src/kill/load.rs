//! Kills the command `pando load` with files of both formats.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::created::Created;
use super::supervise::SIGKILL;
use super::workload::{LOADED, Records, key, map_name, value};
use crate::failure::Failure;
use pando_index::random::Random;

/// Keys in a file, and the number of versions of each key in the file.
const KEYS: u64 = 1_000;
const TIMES: usize = 8;
/// Longest time from the start of the command to its kill.
const LIFE: Duration = Duration::from_millis(40);

/// A file that `pando load` has loaded, in whole or in part.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Number of keys in the file: the numbers from 0 on.
    pub keys: u64,
    /// The versions that each key has in the file, in order.
    pub versions: Vec<u64>,
    /// The end of the command.
    pub end: LoadEnd,
}

/// The end of `pando load`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadEnd {
    /// The kill ended it.
    Killed,
    /// The whole file was loaded before the kill.
    Finished,
    /// It failed, with this message.
    Failed(String),
}

impl Loaded {
    /// Checks that each key has its value from before, or a version from the file. After a finished
    /// load each key must have the last version.
    pub fn verify(&self, before: Option<&Records>, now: Option<&Records>) -> Result<(), String> {
        let empty = Records::new();
        let (before, now) = (before.unwrap_or(&empty), now.unwrap_or(&empty));
        let is_right = |key: u64| match now.get(&key) {
            found if self.end == LoadEnd::Finished => found == self.versions.last(),
            None => !before.contains_key(&key),
            Some(found) => before.get(&key) == Some(found) || self.versions.contains(found),
        };
        if let Some(wrong) = (0..self.keys).find(|&key| !is_right(key)) {
            let (was, is) = (before.get(&wrong), now.get(&wrong));
            return Err(format!("loading {self:?}: key {wrong} was {was:x?} and is {is:x?}"));
        }
        match now.keys().find(|&&key| key >= self.keys) {
            Some(other) => Err(format!("loading {self:?}: key {other} is not in the file")),
            None => Ok(()),
        }
    }
}

/// The time until the kill; shorter after each miss, in which the command ended before its kill.
pub fn life(misses: u32, random: &mut Random) -> Duration {
    let longest = LIFE / 2_u32.saturating_pow(misses);
    Duration::from_nanos(random.below(longest.as_nanos() as u64 + 1))
}

/// Writes a file into `folder`, loads it into `pool` and kills the command after its `life`.
pub fn load_and_kill(
    pando: &Path,
    pool: &Path,
    folder: &Path,
    created: &Created,
    life: Duration,
    random: &mut Random,
) -> Result<Loaded, Failure> {
    // All classes of length except the longest, which is for growth.
    let versions: Vec<u64> = (0..TIMES).map(|_| random.draw() & !1).collect();
    let is_tsv = random.one_in(2);
    let file = folder.join(if is_tsv { "load.tsv" } else { "load.jsonl" });
    std::fs::write(&file, text(&versions, is_tsv))
        .map_err(|error| Failure::trouble("write a file to load", error))?;
    let mut process = Command::new(pando)
        .arg("load")
        .arg(&file)
        .args(["--create", "--writers=3", "--map", &map_name(LOADED)])
        .args(created.words_of_load(pool))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::trouble(&format!("start {}", pando.display()), error))?;
    std::thread::sleep(life);
    process.kill().map_err(|error| Failure::trouble("kill pando load", error))?;
    let output = process
        .wait_with_output()
        .map_err(|error| Failure::trouble("wait for pando load", error))?;
    let end = match output.status {
        status if status.signal() == Some(SIGKILL) => LoadEnd::Killed,
        status if status.success() => LoadEnd::Finished,
        status => LoadEnd::Failed(format!(
            "pando load ended by itself: {status}: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
    };
    Ok(Loaded { keys: KEYS, versions, end })
}

/// All keys with the first version, then all with the next.
fn text(versions: &[u64], is_tsv: bool) -> Vec<u8> {
    let mut text = Vec::new();
    for (&version, number) in
        versions.iter().flat_map(|version| (0..KEYS).map(move |key| (version, key)))
    {
        let (key, value) = (key(number), value(LOADED, number, version));
        // Both consist of letters and digits: nothing needs escaping.
        let parts: [&[u8]; 5] = if is_tsv {
            [b"", &key, b"\t", &value, b"\n"]
        } else {
            [b"{\"key\":\"", &key, b"\",\"value\":\"", &value, b"\"}\n"]
        };
        text.extend(parts.concat());
    }
    text
}

/// The command `pando`: the file that `PANDO` names, or the file beside this program. Cargo builds
/// it if it does not exist, or if it is older than this program.
pub fn pando() -> Result<PathBuf, Failure> {
    if let Some(path) = std::env::var_os("PANDO") {
        return Ok(path.into());
    }
    let own = std::env::current_exe()
        .map_err(|error| Failure::trouble("find this program's own file", error))?;
    let path = own.with_file_name("pando");
    let modified = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    if modified(&path).is_some_and(|time| Some(time) >= modified(&own)) {
        return Ok(path);
    }
    if let Some(cargo) = std::env::var_os("CARGO") {
        let is_release = own.parent().is_some_and(|folder| folder.ends_with("release"));
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--package", "pando-cli"])
            .args(is_release.then_some("--release"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .map_err(|error| Failure::trouble("run cargo", error))?;
        if !built.success() {
            return Err(Failure::trouble("build the command pando", built));
        }
    }
    if path.exists() {
        return Ok(path);
    }
    let what = format!("find the command {}", path.display());
    Err(Failure::trouble(
        &what,
        "build it with cargo build --release -p pando-cli, or set PANDO to its path",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_leaves_old_or_new() {
        let loaded = |end| Loaded { keys: 2, versions: vec![5, 6], end };
        let now = |records: &[(u64, u64)]| {
            loaded(LoadEnd::Killed)
                .verify(Some(&Records::from([(0, 1)])), Some(&records.iter().copied().collect()))
        };
        assert!(now(&[(0, 1)]).is_ok() && now(&[(0, 5), (1, 6)]).is_ok());
        assert!(now(&[]).is_err() && now(&[(0, 7)]).is_err() && now(&[(0, 1), (2, 5)]).is_err());
        let all = Records::from([(0, 6), (1, 6)]);
        assert!(loaded(LoadEnd::Finished).verify(None, Some(&all)).is_ok());
        assert!(
            loaded(LoadEnd::Finished).verify(None, Some(&Records::from([(0, 6), (1, 5)]))).is_err()
        );
    }
}
