//! Damage to the file of a pool, anywhere.

use crate::damaged::{damage, open_and_use, write};
use crate::images::{has_log, pick};
use crate::input::Input;
use crate::log::write_files;
use crate::scratch::Scratch;

/// The first byte selects a pool; the rest gives the damage. The pool is opened, checked and used,
/// beside its log if it has one.
pub fn open_pool(data: &[u8]) {
    let mut input = Input::new(data);
    let selected = input.byte();
    let mut image = pick(selected).to_vec();
    damage(&mut image, &mut input);
    let scratch = Scratch::new();
    let path = scratch.path("pool");
    write(&image, &path);
    let log = has_log(selected).then(|| scratch.path("log"));
    if let Some(log) = &log {
        write_files(log);
    }
    open_and_use(&path, log.as_deref());
}
