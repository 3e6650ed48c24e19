//! The crash lab: real code runs over real pools, one step at a time, and every step is seen.
//!
//! # How it works
//!
//! Pools in the crash lab have a [`Domain`](pando_pmem::Domain) of their own, [`LabDomain`], whose
//! hooks are called before every load and store, at every write-back and at every fence
//! ([`domain`]). While a run is recorded, a hook does two things: it lets the scheduler decide
//! which logical thread goes on ([`director`]), and it writes down what the last step stored
//! ([`recorder`]). The log of a run is then played back step by step against a model of the medium
//! ([`medium`]), which says at each step what a crash could leave; each such image is laid out in
//! an [`Arena`](pando_pmem::testing::Arena), opened, and judged.
//!
//! # The fault model
//!
//! * A store of 8 aligned bytes is atomic. Stores to one line of 64 bytes reach the medium in the
//!   order in which they were made; a line may reach it at any time after a store to it.
//! * What a line held when a thread wrote it back has reached the medium when that thread's next
//!   fence is over. Nothing else promises anything: not an atomic operation, not another's fence.
//! * Where the domain needs no write-back (`Process`, `Eadr`), what was stored is what is left: a
//!   crash cuts the run between any two steps.
//! * A store through an exclusive borrow (a block that nobody else sees yet) is seen when the line
//!   is written back, or before the thread's next fence or CAS; 8-byte parts count in order.

pub mod director;
pub mod domain;
pub mod medium;
pub mod panics;
pub mod recorder;

pub use domain::LabDomain;
