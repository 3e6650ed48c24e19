//! How long a server is unavailable after a kill: from the start of its process to the answer to a
//! GET of a key from before the kill.
//!
//! Each system is filled, writes its dump if it uses one, and is killed by SIGKILL. Memcached,
//! which would lose everything, is stopped in order. The clock starts before the new process does.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use indicatif::ProgressBar;

use super::system::{Running, Server};
use crate::error::Error;

/// Fills a server with `records` keys and restarts it `cycles` times.
pub fn measure(
    system: Server,
    ours: &[String],
    folder: &Path,
    (records, cycles): (u64, u64),
    progress: &ProgressBar,
) -> Result<Vec<Duration>, Error> {
    let name = system.name();
    progress.set_message(format!("{name}: filling"));
    let (mut running, _) = Running::start(system, ours, folder, &system.greeting())?;
    running.fill(records, progress)?;
    if system == Server::RedisDump {
        save(&running.socket)?;
    }
    progress.set_length(cycles);
    progress.set_position(0);
    let mut all = Vec::new();
    for cycle in 0..cycles {
        progress.set_message(format!("{name}: killing and starting"));
        running.kill();
        // Keys spread over all records.
        let get = system.get(cycle * 7919 % records.max(1));
        let (again, took) = Running::start(system, ours, folder, &get)?;
        running = again;
        all.push(took);
        progress.inc(1);
    }
    Ok(all)
}

fn save(socket: &Path) -> Result<(), Error> {
    let failed = |source| Error::File { path: socket.to_path_buf(), source };
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    stream.write_all(b"*1\r\n$4\r\nSAVE\r\n").map_err(failed)?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).map_err(failed)?;
    if &answer == b"+OK\r\n" {
        Ok(())
    } else {
        Err(Error::Usage("redis-server did not write its dump".to_owned()))
    }
}
