//! `upgrade`: from a pool of an earlier format to one of the present format. The program that wrote
//! the pool reads it.
//!
//! | step | what a crash leaves |
//! | --- | --- |
//! | fill `POOL.upgrading` with what that program dumps, and check it | the pool, and a file that the user removes |
//! | give the pool a second name, `POOL.format-N` | the pool under two names, and that file |
//! | rename `POOL.upgrading` to `POOL`, which replaces it | the new pool, and the former one as `POOL.format-N` |

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pando::{Error, IndexInfo, MapOptions, Pool};
use serde::Deserialize;

use super::maps::Batches;
use crate::arguments::{PoolArguments, UpgradeArguments};
use crate::failure::Failure;
use crate::format::Format;
use crate::format::csv::Columns;
use crate::format::reader::Records;
use crate::output::Output;
use crate::progress::Progress;
use crate::quantity::counted;

/// What the earlier program prints about the pool, as far as it is used.
#[derive(Deserialize)]
struct FormerPool {
    max_bytes: u64,
    maps: Vec<FormerMap>,
    /// Its log, in versions that have logs.
    log: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct FormerMap {
    name: String,
    index: String,
    #[serde(default)]
    is_transactional: bool,
    options: BTreeMap<String, String>,
    records: Option<u64>,
    passed_over: Option<String>,
}

/// Upgrades the pool.
pub fn run(pool: &PoolArguments, arguments: &UpgradeArguments) -> Result<(), Failure> {
    let path = pool.path_or_default()?;
    let format = match Pool::open(&path, &pool.options()) {
        Err(Error::OlderPool { found, .. }) => found,
        Err(error) => return Err(error.into()),
        Ok(opened) => {
            opened.close()?;
            return say(format_args!("{} has the present format", path.display()));
        }
    };
    let Some(program) = &arguments.with else {
        return Err(Failure::Input(format!(
            "{} has format version {format}, which only the program that wrote it reads; name that \
             `pando` by --with",
            path.display()
        )));
    };
    let (new_path, kept) = (beside(&path, "upgrading"), beside(&path, &format!("format-{format}")));
    for taken in [&new_path, &kept] {
        if taken.exists() {
            return Err(Failure::Input(format!(
                "{} is there, perhaps from an upgrade that was interrupted; if the pool is whole, \
                 remove it",
                taken.display()
            )));
        }
    }
    let former = Former { program, path: &path };
    let found = former.stat()?;
    if found.log.is_some() && pool.log.is_none() {
        return Err(Failure::Input(format!(
            "{} has a log; name a new directory for the log of the new pool by --log",
            path.display()
        )));
    }
    let upgraded = Pool::create(&new_path, &pool.options().max_bytes(found.max_bytes))?;
    let copied = copy_all(&former, &found, &upgraded);
    let closed = upgraded.close();
    let records = match copied {
        Ok(records) => records,
        Err(failure) => {
            // The error of the removal would hide the cause.
            let _ = fs::remove_file(&new_path);
            return Err(failure);
        }
    };
    closed?;
    File::open(&new_path)
        .and_then(|file| file.sync_all())
        .map_err(Failure::file("sync", &new_path))?;
    fs::hard_link(&path, &kept).map_err(Failure::file("link", &kept))?;
    fs::rename(&new_path, &path).map_err(Failure::file("replace", &path))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(Failure::file("sync", folder))?;
    say(format_args!(
        "upgraded {} with {} from format version {format}; the former pool is {}",
        counted(found.maps.len() as u64, "map"),
        counted(records, "record"),
        kept.display()
    ))
}

fn say(line: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    let mut output = Output::new();
    output.line(line)?;
    output.flush()
}

/// The path followed by a dot and `ending`.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".");
    name.push(ending);
    name.into()
}

/// Copies all maps, and checks the new pool; the number of records.
fn copy_all(former: &Former<'_>, found: &FormerPool, upgraded: &Pool) -> Result<u64, Failure> {
    let progress = Progress::new("copied", None);
    let mut records = 0;
    for map in &found.maps {
        if let Some(reason) = &map.passed_over {
            return Err(Failure::Input(format!(
                "the map {:?} cannot be read: {reason}; copy out what can be read by `--salvage \
                 dump` of the program of --with",
                map.name
            )));
        }
        let copied = former.copy_map(map, upgraded, &progress)?;
        if map.records.is_some_and(|expected| expected != copied) {
            return Err(Failure::Input(format!(
                "the map {:?} has {} records, and {copied} were dumped",
                map.name,
                map.records.unwrap_or_default()
            )));
        }
        records += copied;
    }
    match upgraded.check()?.gravest() {
        None => Ok(records),
        Some(class) => Err(Failure::Problems(class)),
    }
}

/// The earlier program, and the pool that it reads.
struct Former<'command> {
    program: &'command Path,
    path: &'command Path,
}

impl Former<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.arg("--pool").arg(self.path).args(arguments).stdin(Stdio::null());
        command
    }

    fn failed(&self, status: std::process::ExitStatus) -> Failure {
        Failure::Input(format!(
            "{} could not read the pool ({status}); is it the program that wrote the pool?",
            self.program.display()
        ))
    }

    fn stat(&self) -> Result<FormerPool, Failure> {
        let mut command = self.command(&["stat", "--json"]);
        let ran = command.stderr(Stdio::inherit()).output();
        let ran = ran.map_err(Failure::file("run", self.program))?;
        if !ran.status.success() {
            return Err(self.failed(ran.status));
        }
        serde_json::from_slice(&ran.stdout).map_err(|error| {
            Failure::Input(format!(
                "{} printed no figures of a pool: {error}",
                self.program.display()
            ))
        })
    }

    /// Copies a map; the number of its records.
    fn copy_map(
        &self,
        map: &FormerMap,
        upgraded: &Pool,
        progress: &Progress,
    ) -> Result<u64, Failure> {
        let target = upgraded.map_with(&map.name, &options_of(map))?;
        let mut arguments = vec!["dump", "--map", &map.name, "--format", "json-lines"];
        if map.name == pando_server::MAP_NAME {
            arguments.push("--force");
        }
        let child = self.command(&arguments).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(Failure::file("run", self.program))?;
        let Some(dump) = child.stdout.take() else { unreachable!("its output is a pipe") };
        let read_failed = || Failure::file("read the output of", self.program);
        let records = Records::new(dump, Format::JsonLines, &Columns::default(), usize::MAX);
        let mut records = records
            .map_err(read_failed())?
            .map_err(|error| Failure::Input(format!("the dump of {:?}: {error}", map.name)))?;
        let mut batches = Batches::new(&target, upgraded, progress);
        while let Some(record) = records.next_record().map_err(read_failed())? {
            let record = record.map_err(|error| {
                let line = records.number();
                Failure::Input(format!("the dump of {:?}, line {line}: {error}", map.name))
            })?;
            if let Some((key, value)) = record {
                batches.add(key, value)?;
            }
        }
        let copied = batches.finish()?;
        let status = child.wait().map_err(Failure::file("wait for", self.program))?;
        if status.success() { Ok(copied) } else { Err(self.failed(status)) }
    }
}

/// The options of a map, as far as its index has them still.
fn options_of(map: &FormerMap) -> MapOptions {
    let mut options = MapOptions::new().index(&map.index);
    if map.is_transactional {
        options = options.transactional(true);
    }
    let known = pando::indexes().into_iter().find(|index| index.name == map.index);
    for (name, value) in &map.options {
        let has_option = |index: &IndexInfo| index.options.iter().any(|option| option.name == name);
        if known.as_ref().is_some_and(has_option) {
            options = options.set(name, value);
        }
    }
    options
}
