//! `maps`, `drop` and `indexes`: operations on whole maps, and the indexes that a map can have.
//!
//! # Copying a map
//!
//! | step | what a crash leaves |
//! | --- | --- |
//! | create the map `.copy`, and write the records into it | the map `.copy`, which the user drops |
//! | give it its name, in one step | the same, or the copy |

use pando::{IndexInfo, Map, MapInfo, MapOptions, Pool, Transaction};

use crate::arguments::PoolArguments;
use crate::arguments::maps::{
    DropArguments, IndexesArguments, MapsCommand, MapsCopyArguments, MapsListArguments,
    MapsRenameArguments,
};
use crate::commits::in_parts;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::pool_access::INCOMPLETE_COPY as INCOMPLETE;
use crate::progress::Progress;

/// Records that are read, and then written at once.
const BATCH_RECORDS: usize = 128;
/// Most bytes of a batch, unless it has one record.
const BATCH_BYTES: usize = 1 << 20;

/// Runs a command on maps.
pub fn run(pool: &PoolArguments, command: &MapsCommand) -> Result<(), Failure> {
    match command {
        MapsCommand::List(list) => self::list(pool, list),
        MapsCommand::Rename(rename) => self::rename(pool, rename),
        MapsCommand::Copy(copy) => self::copy(pool, copy),
    }
}

fn list(pool: &PoolArguments, arguments: &MapsListArguments) -> Result<(), Failure> {
    let pool = pool.open_to_read()?;
    let maps = pool.maps()?;
    pool.close()?;
    output::report(maps.as_slice(), arguments.json, |maps: &[MapInfo], output| {
        for map in maps {
            let index = &map.index;
            let transactional = if map.is_transactional { ", transactional" } else { "" };
            match &map.damage {
                None => output.line(format_args!("{:?}: {index}{transactional}", map.name))?,
                Some(damage) => output.line(format_args!("slot {}: {damage}", map.slot))?,
            }
        }
        Ok(())
    })
}

fn rename(pool: &PoolArguments, arguments: &MapsRenameArguments) -> Result<(), Failure> {
    let from = arguments.force.check(&arguments.from)?;
    let to = arguments.force.check(&arguments.to)?;
    let pool = pool.open()?;
    pool.rename_map(from, to)?;
    Ok(pool.close()?)
}

fn copy(pool: &PoolArguments, arguments: &MapsCopyArguments) -> Result<(), Failure> {
    let from = arguments.force.check(&arguments.from)?;
    let to = arguments.force.check(&arguments.to)?;
    if pool.shared {
        return Err(Failure::Input(
            "maps copy takes no --shared: another process might write to the map meanwhile; leave \
             out --shared"
                .to_owned(),
        ));
    }
    if to == INCOMPLETE {
        return Err(Failure::Input(format!(
            "a copy has the name {INCOMPLETE:?} while it is not complete; take another name"
        )));
    }
    let pool = pool.open()?;
    let maps = pool.maps()?;
    let is_there = |name: &str| maps.iter().any(|map| map.damage.is_none() && map.name == name);
    if is_there(to) {
        return Err(pando::Error::MapExists { name: to.to_owned() }.into());
    }
    if is_there(INCOMPLETE) {
        return Err(Failure::Input(format!(
            "there is a map {INCOMPLETE:?}, which an interrupted copy has left; drop it by `pando \
             drop {INCOMPLETE}`, and copy again"
        )));
    }
    // There is nothing to rename yet, but a name that no map can have is refused first.
    match pool.rename_map(INCOMPLETE, to) {
        Ok(()) | Err(pando::Error::MapNotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let source = pool.open_map(from)?;
    let target = pool.map_with(INCOMPLETE, &options_of_copy(&pool, from, arguments)?)?;
    let progress = Progress::new("copied", None);
    let copied = copy_records(&source, &target, &pool, &progress);
    std::mem::drop((progress, source, target));
    let named = copied.and_then(|()| Ok(pool.rename_map(INCOMPLETE, to)?));
    if let Err(failure) = named {
        // The error of the drop would hide the cause.
        let _ = pool.drop_map(INCOMPLETE);
        return Err(failure);
    }
    Ok(pool.close()?)
}

/// The options of the copy: those that are named, or those of the map.
fn options_of_copy(
    pool: &Pool,
    from: &str,
    arguments: &MapsCopyArguments,
) -> Result<MapOptions, Failure> {
    let stat = pool.stat()?;
    let found = stat.maps.iter().find(|map| map.name == from);
    let is_transactional = arguments.transactional || found.is_some_and(|map| map.is_transactional);
    let mut options = MapOptions::new();
    if is_transactional {
        options = options.transactional(true);
    }
    if let Some(index) = &arguments.index {
        options = options.index(index);
        for (name, value) in &arguments.options {
            options = options.set(name, value);
        }
    } else if let Some(map) = found {
        options = options.index(&map.index);
        for (name, value) in &map.options {
            options = options.set(*name, value);
        }
    }
    Ok(options)
}

fn copy_records(
    source: &Map,
    target: &Map,
    pool: &Pool,
    progress: &Progress,
) -> Result<(), Failure> {
    let mut scan = source.range(..);
    let mut batches = Batches::new(target, pool, progress);
    while let Some((key, value)) = scan.next_record()? {
        batches.add(key.to_vec(), value.to_vec())?;
    }
    batches.finish().map(|_| ())
}

/// Records for a map, written in batches: of a transactional map, each is one commit, or as few as
/// take its records.
pub(super) struct Batches<'copy> {
    target: &'copy Map,
    pool: &'copy Pool,
    progress: &'copy Progress,
    batch: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
    written: u64,
}

impl<'copy> Batches<'copy> {
    /// None so far.
    pub fn new(target: &'copy Map, pool: &'copy Pool, progress: &'copy Progress) -> Self {
        Self { target, pool, progress, batch: Vec::new(), bytes: 0, written: 0 }
    }

    /// One more record.
    pub fn add(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), Failure> {
        self.bytes += key.len() + value.len();
        self.batch.push((key, value));
        let is_full = self.batch.len() == BATCH_RECORDS || self.bytes >= BATCH_BYTES;
        if is_full { self.write() } else { Ok(()) }
    }

    /// Writes the rest; the number of records.
    pub fn finish(mut self) -> Result<u64, Failure> {
        self.write()?;
        Ok(self.written)
    }

    fn write(&mut self) -> Result<(), Failure> {
        let (target, batch) = (self.target, &self.batch);
        if target.is_transactional() {
            let commit = |part: &[(Vec<u8>, Vec<u8>)]| {
                let put_all = |transaction: &mut Transaction<'_>| {
                    part.iter().try_for_each(|(key, value)| transaction.put(target, key, value))
                };
                self.pool.transaction(put_all).map(|()| part.len())
            };
            in_parts(batch, commit).map_err(|(_, error)| error)?;
        } else {
            let lent = batch.iter().map(|(key, value)| (key.as_slice(), value.as_slice()));
            target.upsert_many(&lent.collect::<Vec<_>>())?;
        }
        self.written += self.batch.len() as u64;
        self.progress.update(0, self.written);
        self.batch.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// Drops a map.
pub fn drop(pool: &PoolArguments, arguments: &DropArguments) -> Result<(), Failure> {
    let name = arguments.name.as_deref().unwrap_or_default();
    if name != INCOMPLETE {
        arguments.force.check(name)?;
    }
    let pool = pool.open()?;
    match arguments.slot.slot {
        Some(slot) => {
            refuse_whole(&pool, slot)?;
            pool.drop_slot(slot, &arguments.slot.options())?;
        }
        None => pool.drop_map(name)?,
    }
    // In a store a thread frees the room, as long as the store is open. The map is dropped also if
    // this fails.
    if let Err(error) = pool.clear_dropped() {
        eprintln!("pando: the map is dropped, and keeps room: {error}");
    }
    Ok(pool.close()?)
}

/// Refuses a slot whose map has a name, by which it can be dropped.
fn refuse_whole(pool: &Pool, slot: u64) -> Result<(), Failure> {
    match pool.maps()?.into_iter().find(|map| map.slot == slot && map.damage.is_none()) {
        Some(MapInfo { name, .. }) => Err(Failure::Input(format!(
            "slot {slot} has the map {name:?}, whose header is not damaged, and --slot is for a map \
             without a name; drop it by its name"
        ))),
        None => Ok(()),
    }
}

/// Prints the indexes.
pub fn indexes(arguments: &IndexesArguments) -> Result<(), Failure> {
    output::report(pando::indexes().as_slice(), arguments.json, print)
}

fn print(indexes: &[IndexInfo], output: &mut Output) -> Result<(), Failure> {
    for (place, index) in indexes.iter().enumerate() {
        let default = if place == 0 { " (the default)" } else { "" };
        output.line(format_args!("{}{default}: {}", index.name, index.what))?;
        for option in &index.options {
            let (name, value) = (option.name, &option.default);
            output.line(format_args!("  --set {name}={value}  {}", option.what))?;
            output.line(format_args!("      allowed is {}", option.allowed))?;
        }
    }
    Ok(())
}
