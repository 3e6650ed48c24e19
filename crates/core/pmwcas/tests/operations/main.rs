//! PMwCAS from outside: its calls, its policies, many threads, a crash at every write, threads
//! that stall or come late, a process that is killed.
//!
//! One program runs all tests by each algorithm, since each program would compile PMwCAS again.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]
#![expect(clippy::duplicate_mod, reason = "the same tests, by each algorithm")]

mod direct;
mod killed;
mod rdcss;
mod transactional;
