//! The crash lab: the real code runs over real pools, one step at a time, and each step is
//! recorded.
//!
//! # How it works
//!
//! Pools in the crash lab have their own [`Domain`](pando_pmem::Domain), [`LabDomain`]. Its hooks
//! are called before every load and store, at every write-back and at every fence ([`domain`]).
//! While a run is recorded, a hook does two things. It lets the scheduler choose the logical thread
//! that continues ([`director`]), and it records the stores of the last step ([`recorder`]).
//!
//! The log of a run is then played back step by step against a model of the medium ([`medium`]).
//! The model gives the images that a crash could leave at each step. Each image is written into an
//! [`Arena`](pando_pmem::testing::Arena), opened, and checked.
//!
//! A subject may have files, on the [`Simulated`](pando_device::simulated::Simulated) device. Each
//! operation on them is a step. The recorder keeps a copy of the device after each change, and
//! notes its number in the log. So a cut of the log has the files of the same instant.
//!
//! # The fault model
//!
//! * A store of 8 aligned bytes is atomic. Stores to one line of 64 bytes reach the medium in their
//!   order. A line may reach the medium at any time after a store to it.
//! * After a thread's fence, the medium has the content of each line as it was when that thread
//!   wrote the line back. Nothing else makes a line durable: no atomic operation, and no other
//!   thread's fence.
//! * In a domain without write-back (`Process`) each store is durable. A crash cuts the run
//!   between two steps.
//! * A store into a reserved block, which no other thread sees yet, is recorded when its line is
//!   written back, or before the thread's next fence or CAS. Its 8-byte parts are recorded in
//!   order.
//! * With write-back, a crash is a power cut. Of the files it leaves what was synced, with none,
//!   some or all of the other changes. Without write-back it is a kill. The files keep all that was
//!   written, and what was not synced may be lost later.

pub mod director;
pub mod domain;
pub mod medium;
pub mod panics;
pub mod recorder;

pub use domain::LabDomain;
