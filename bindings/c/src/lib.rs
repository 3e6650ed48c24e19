//! The C interface of Pando. `include/pando.h` is made from these files by cbindgen, and its first
//! comment has the rules of all calls. `docs/c.md` is the page for users.
//!
//! Each function runs inside [`error::call`], which turns a panic into an error, and finds its
//! objects by [`handle`]. Only C code makes a `pando_slice` and passes pointers, so the functions
//! are not `unsafe` for Rust; those that read what C lends are in `bytes.rs` and `options.rs`.
#![allow(non_camel_case_types, reason = "the names of C")]

mod batch;
mod bytes;
mod error;
mod failure;
mod guard;
mod handle;
mod map;
mod options;
mod pool;
mod scan;
mod session;
mod snapshot;
mod snapshot_cell;
mod transaction;
