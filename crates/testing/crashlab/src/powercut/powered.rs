//! A machine with devices of its own, whose power can be cut.

use std::path::PathBuf;

use tempfile::TempDir;

use super::machine::{Devices, Machine, Persistence};
use crate::failure::Failure;
use crate::kill::folder;
use crate::kill::supervise::{self, Heard, Kill};
use pando_index::random::Random;

/// The factor by which the virtual machine is slower, for the delays of the cuts.
pub const SLOWNESS: u64 = 100;
/// More messages than the port's queue holds. Those in the queue have not left the machine.
pub const QUEUE: u64 = 256;
/// Operations per acknowledgement: more than one, so that a cut hits the library and not the port.
pub const EVERY: u64 = 8;
/// Lines of the console in an error: a machine that hangs tells what each thread waits for.
const CONSOLE_LINES: usize = 200;

/// A machine, and its devices.
pub struct Powered<'machine> {
    machine: &'machine Machine,
    pub persistence: Persistence,
    folder: TempDir,
    devices: Devices,
    initramfs: PathBuf,
    /// Which sectors the disk loses.
    sectors: Random,
    /// How many it has lost.
    lost: u64,
}

impl<'machine> Powered<'machine> {
    /// A machine with new devices.
    pub fn new(
        machine: &'machine Machine,
        persistence: Persistence,
        seed: u64,
    ) -> Result<Self, Failure> {
        let folder = folder(None)?;
        let devices = machine.formatted().copy_to(folder.path());
        let initramfs = folder.path().join("initramfs");
        machine
            .initramfs_with_this_program()
            .and_then(|archive| archive.write(&initramfs).map_err(|error| error.to_string()))
            .map_err(|error| Failure::trouble("write the initramfs", error))?;
        let devices = devices.map_err(|error| Failure::trouble("copy the devices", error))?;
        let sectors = Random::new(!seed);
        Ok(Self { machine, persistence, folder, devices, initramfs, sectors, lost: 0 })
    }

    /// Boots with these words as the arguments of the program, which has so many writers; cuts the
    /// power as `kill` says.
    pub fn boot(
        &mut self,
        words: &[String],
        writers: u64,
        kill: Option<&Kill>,
    ) -> Result<Heard, Failure> {
        let of_disk = |error| Failure::trouble("copy the disk of the machine", error);
        self.devices.prepare_disk().map_err(of_disk)?;
        let mut boot = self.machine.boot(&self.initramfs, &self.devices, self.persistence, words);
        let heard = supervise::run(&mut boot, writers, kill).map_err(|failure| match failure {
            Failure::Trouble(what) => Failure::Trouble(format!("{what}\n{}", self.console())),
            other => other,
        })?;
        let sectors = self.devices.cut_disk(&mut self.sectors).map_err(of_disk)?;
        self.lost += sectors.lost;
        Ok(heard)
    }

    /// The last lines of the machine's console.
    pub fn console(&self) -> String {
        let console = std::fs::read(self.devices.console()).unwrap_or_default();
        let console = String::from_utf8_lossy(&console);
        let lines: Vec<&str> = console.lines().collect();
        let (_, last) = lines.split_at(lines.len().saturating_sub(CONSOLE_LINES));
        format!("the console's last lines:\n{}", last.join("\n"))
    }

    /// Tells how many sectors were lost, and keeps the devices if `is_kept`.
    pub fn end(self, is_kept: bool) {
        println!("sectors of the disk that were lost: {}", self.lost);
        if is_kept {
            println!("kept: {}", self.folder.keep().display());
        }
    }
}
