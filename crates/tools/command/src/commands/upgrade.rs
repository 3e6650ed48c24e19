//! `upgrade`: from a pool of an earlier format to one of the present format. The program that wrote
//! the pool reads it.
//!
//! | step | what a crash leaves |
//! | --- | --- |
//! | create `POOL.upgrading` with the owner, group and mode of the pool | the pool, and a file that the user removes |
//! | fill it with what that program dumps, and check it | the same |
//! | give the pool a second name, `POOL.format-N` | the pool under two names, and that file |
//! | rename `POOL.upgrading` to `POOL`, which replaces it | the new pool, and the former one as `POOL.format-N` |

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pando::{Error, IndexInfo, MapOptions, Pool, PoolOptions};
use rustix::fs::Mode;
use rustix::process::umask;
use serde::Deserialize;

use super::maps::Batches;
use crate::arguments::PoolArguments;
use crate::arguments::upkeep::UpgradeArguments;
use crate::failure::Failure;
use crate::format::Format;
use crate::format::csv::Columns;
use crate::format::reader::Records;
use crate::output::Output;
use crate::pool_access::needs_force;
use crate::progress::Progress;
use crate::quantity::counted;

/// The first format whose program has `dump --force`.
const FORMAT_OF_FORCE: u32 = 3;

/// What the earlier program prints about the pool, as far as it is used.
#[derive(Deserialize)]
struct FormerPool {
    max_bytes: u64,
    maps: Vec<FormerMap>,
    /// Its log, in versions that have logs.
    log: Option<serde::de::IgnoredAny>,
}

/// Two of them differ if a write came between.
#[derive(PartialEq, Deserialize)]
struct FormerMap {
    name: String,
    /// "kind" up to the middle of format 3.
    #[serde(alias = "kind")]
    index: String,
    #[serde(default)]
    is_transactional: bool,
    /// "settings" up to the middle of format 3.
    #[serde(alias = "settings")]
    options: BTreeMap<String, String>,
    records: Option<u64>,
    passed_over: Option<String>,
    /// The other figures, which differ between versions.
    #[serde(flatten)]
    figures: BTreeMap<String, serde_json::Value>,
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
    // The link of a path that is a link stays, and the file behind it is replaced.
    let path = fs::canonicalize(&path).map_err(Failure::file("find", &path))?;
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
    let former = Former { program, path: &path, format };
    let found = former.stat()?;
    if found.log.is_some() && pool.log.is_none() {
        return Err(Failure::Input(format!(
            "{} has a log; name a new directory for the log of the new pool by --log",
            path.display()
        )));
    }
    let options = pool.options().max_bytes(found.max_bytes);
    let upgraded = create_as_private(&path, &new_path, &options)?;
    let records = match fill(upgraded, &new_path, &former, &found).and_then(|records| {
        fs::hard_link(&path, &kept).map_err(Failure::file("link", &kept))?;
        Ok(records)
    }) {
        Ok(records) => records,
        Err(failure) => {
            // The error of the removal would hide the cause.
            let _ = fs::remove_file(&new_path);
            return Err(failure);
        }
    };
    fs::rename(&new_path, &path).map_err(Failure::file("replace", &path))?;
    let folder = path.parent().unwrap_or(Path::new("/"));
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

/// Creates the pool at `to`. Those who have no right to the file at `from` have none to the new
/// files either, not even while they are empty: a file that is open stays readable.
fn create_as_private(from: &Path, to: &Path, options: &PoolOptions) -> Result<Pool, Failure> {
    let mode = fs::metadata(from).map_err(Failure::file("look at", from))?.mode();
    let hidden = [0o070, 0o007].into_iter().filter(|bits| mode & bits == 0).sum::<u32>();
    // The process has no other thread that creates files.
    let former = umask(Mode::from_raw_mode(0o777));
    umask(former | Mode::from_raw_mode(hidden));
    let created = Pool::create(to, options);
    umask(former);
    Ok(created?)
}

/// Fills the new pool, which is at `path`, and closes it; the number of records.
fn fill(
    upgraded: Pool,
    path: &Path,
    former: &Former<'_>,
    found: &FormerPool,
) -> Result<u64, Failure> {
    // Before records are in it that others may not read.
    let copied =
        take_owner_and_mode(former.path, path).and_then(|()| copy_all(former, found, &upgraded));
    let closed = upgraded.close();
    let records = copied?;
    closed?;
    File::open(path).and_then(|file| file.sync_all()).map_err(Failure::file("sync", path))?;
    Ok(records)
}

/// Gives the file at `to` the owner, the group and the mode of the one at `from`.
fn take_owner_and_mode(from: &Path, to: &Path) -> Result<(), Failure> {
    let look = |path: &Path| fs::metadata(path).map_err(Failure::file("look at", path));
    let (former, new) = (look(from)?, look(to)?);
    if (former.uid(), former.gid()) != (new.uid(), new.gid()) {
        chown(to, Some(former.uid()), Some(former.gid()))
            .map_err(Failure::file("give the owner and group of the pool to", to))?;
    }
    fs::set_permissions(to, former.permissions()).map_err(Failure::file("set the mode of", to))
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
    if former.stat()?.maps != found.maps {
        return Err(Failure::Input(format!(
            "another process has written to {} meanwhile; let none use it, and run the upgrade \
             again",
            former.path.display()
        )));
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
    /// The pool's format version.
    format: u32,
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
        let ran = self.command(&["stat", "--json"]).output();
        let ran = ran.map_err(Failure::file("run", self.program))?;
        if !ran.status.success() {
            // Not the advice behind it, which is to do this with another program.
            let said = String::from_utf8_lossy(&ran.stderr);
            let said = said.lines().next().and_then(|line| line.split(';').next());
            eprintln!("{}: {}", self.program.display(), said.unwrap_or_default());
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
        // Before, a dump refused no map, and knew no such option.
        if needs_force(&map.name) && self.format >= FORMAT_OF_FORCE {
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
