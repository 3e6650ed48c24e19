//! Tests of the page store: on a simulated directory, whose power is cut at each operation, which
//! refuses operations, and whose bytes are damaged.

mod cleaning;
mod common;
mod damage;
mod failures;
mod power;
mod store;
mod threads;
