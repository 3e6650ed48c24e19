//! Damage to the file of a pool, anywhere.

use crate::damaged::{damage, open_and_use, write};
use crate::images::pick;
use crate::input::Input;
use crate::scratch::Scratch;

/// The first byte selects a pool; the rest gives the damage. The pool is opened, checked and used.
pub fn open_pool(data: &[u8]) {
    let mut input = Input::new(data);
    let mut image = pick(input.byte()).to_vec();
    damage(&mut image, &mut input);
    let scratch = Scratch::new();
    let path = scratch.path("pool");
    write(&image, &path);
    open_and_use(&path);
}
