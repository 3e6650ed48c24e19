//! `backup`, `restore` and `log`: the log of a pool.

use indicatif::BinaryBytes;
use pando::{Error, LogFiles, LogReport, Pool};

use crate::arguments::PoolArguments;
use crate::arguments::upkeep::{
    BackupArguments, LogCommand, LogStatArguments, LogVerifyArguments, RestoreArguments,
};
use crate::commands::stat::print_log;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::pool_access::report_recovery;
use crate::quantity::counted;

/// Copies the log of the pool.
pub fn backup(pool: &PoolArguments, arguments: &BackupArguments) -> Result<(), Failure> {
    let log = pool.log_files()?;
    let folder = arguments.to.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(pando::Error::FolderNotFound { path: folder.to_owned() }.into());
    }
    let lsn = log.backup(&arguments.to)?;
    let mut output = Output::new();
    output.line(format_args!("copied all commits up to LSN {lsn} of {}", log.path().display()))?;
    output.flush()
}

/// Creates a pool from a backup.
pub fn restore(pool: &PoolArguments, arguments: &RestoreArguments) -> Result<(), Failure> {
    let path = pool.path_or_default()?;
    if pool.log.is_none() {
        return Err(Failure::Input(
            "restore creates a log for the new pool; name a new directory for it by --log"
                .to_owned(),
        ));
    }
    let options = pool.options().on_recovery(report_recovery("the backup is read"));
    let options = arguments.max_bytes.iter().fold(options, |options, &max| options.max_bytes(max));
    let restored = Pool::restore(&arguments.from, path, &options)?;
    let stat = restored.stat()?;
    restored.close()?;
    let mut output = Output::new();
    output.line(format_args!(
        "restored {} of the image and {} of the log, in {}",
        counted(stat.recovery.image_records, "record"),
        counted(stat.recovery.commits, "commit"),
        counted(stat.maps.len() as u64, "map"),
    ))?;
    output.flush()
}

/// Runs a command on the log of the pool.
pub fn run(pool: &PoolArguments, command: &LogCommand) -> Result<(), Failure> {
    match command {
        LogCommand::Stat(arguments) => stat(pool, arguments),
        LogCommand::Verify(arguments) => verify(pool, arguments),
        LogCommand::Image(_) => {
            let pool = pool.open()?;
            pool.write_image()?;
            Ok(pool.close()?)
        }
        LogCommand::Reset(_) => reset(pool),
    }
}

fn stat(pool: &PoolArguments, arguments: &LogStatArguments) -> Result<(), Failure> {
    let pool = pool.open()?;
    let stat = pool.log_stat()?.ok_or(Error::NoLog)?;
    pool.close()?;
    output::report(&stat, arguments.json, print_log)
}

fn reset(pool: &PoolArguments) -> Result<(), Failure> {
    let path = pool.path_or_default()?;
    let opened = Pool::reset_log(&path, &pool.options())?;
    let lsn = opened.durable_lsn()?;
    opened.close()?;
    let log = LogFiles::of_pool(&path)?;
    let mut output = Output::new();
    output.line(format_args!(
        "the pool has a new log in {}, with an image of all commits up to LSN {lsn}",
        log.path().display()
    ))?;
    output.flush()
}

fn verify(pool: &PoolArguments, arguments: &LogVerifyArguments) -> Result<(), Failure> {
    let log = match &arguments.directory {
        Some(directory) => LogFiles::at(directory),
        None => pool.log_files()?,
    };
    output::report(&log.verify()?, arguments.json, print)
}

fn print(report: &LogReport, output: &mut Output) -> Result<(), Failure> {
    output.line(format_args!("log        {}", report.path.display()))?;
    output.line(format_args!(
        "ids        log {:032x} of pool {:032x}",
        report.log_id, report.pool_id
    ))?;
    output.line(format_args!(
        "image      {} in {}, at LSN {}",
        counted(report.image_records, "record"),
        BinaryBytes(report.image_bytes),
        report.image_lsn
    ))?;
    output.line(format_args!(
        "log        {} behind it, up to LSN {}",
        counted(report.commits, "commit"),
        report.end_lsn
    ))
}
