//! Tests of the log: on a simulated directory, whose power is cut at each operation, and on pools
//! whose threads are killed and stopped at each write.

mod append;
mod common;
mod damage;
mod failures;
mod kill;
mod power;
mod replace;
mod truncate;
mod writer;
