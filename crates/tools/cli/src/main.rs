//! The `pando` command: loads, reads, scans, dumps and checks pools, and shows on real data that
//! they survive `kill -9`. All of it is in the library `pando-command`, which is compiled for size.
//! This crate is not: its level is also that of the optimization at link time, which changes the
//! code of all crates.

use std::process::ExitCode;

fn main() -> ExitCode {
    pando_command::main()
}
