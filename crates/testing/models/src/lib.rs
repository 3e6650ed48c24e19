//! Models of Pando's protocols for [loom](https://docs.rs/loom), which runs every schedule of a few
//! threads, and every value that the memory model lets a load return. x86 forgives what other
//! processors, and the compiler, do not; here the orderings themselves are on trial.
//!
//! | module | models |
//! | --- | --- |
//! | `epoch` | `pmem/src/epoch.rs`: `pin`, `unlink_epoch`, `leave`, `try_advance`, the unpinning drop |
//! | `slot` | `pmem/src/participant.rs`: `pin_leased`, `announce`, `take`, the unpinning drop |
//! | `slab` | `pmem/src/alloc/slab.rs`, `cache.rs`, `slab_search.rs`: `take_block`, `release_in_slab`, `list`, `release_current`, `claim_slab`, `dissolve_or_list`, `take_empty_slabs` |
//! | `direct` | `pmwcas/src/direct.rs`, `execute.rs`: a PMwCAS, who interrupts it, readers |
//! | `pmwcas` | `pmwcas/src/rdcss.rs`, `descriptor.rs`: the paper's, its helpers and readers |
//! | `late` | `pmwcas/src/rdcss.rs`: a helper that stops behind an operation that is over |
//!
//! A model repeats the atomic accesses of the code with the orderings of the code, and leaves out
//! all else. Each has mutants, an ordering weaker or a look left out, that it must refuse: a
//! model that cannot fail tests nothing. What is modelled changes here when it changes there:
//! `copied.txt` names each function that a model repeats, with a hash, and a test fails when one
//! has changed.
//!
//! # What loom cannot say
//!
//! * It takes a sequentially consistent load, store or CAS for an acquiring and releasing one.
//!   Only `fence(SeqCst)` is what it says. So a model that passes needs no more than that; where
//!   the code needs sequentially consistent accesses, the model puts a fence before each, which
//!   orders them among each other as the language does.
//! * Most models bound the number of preemptions, one to two: all schedules with at most so many
//!   are run, which is where nearly all faults of this kind are found.
//! * It would run too few schedules of a thread that first loads, then stores; see `atomic.rs`.
//!
//! Nothing here is part of the product: outside of `cargo test` the crate is empty.

#[cfg(test)]
mod atomic;
#[cfg(test)]
mod copied;
#[cfg(test)]
mod descriptor;
#[cfg(test)]
mod direct;
#[cfg(test)]
mod epoch;
#[cfg(test)]
mod late;
#[cfg(test)]
mod pmwcas;
#[cfg(test)]
mod slab;
#[cfg(test)]
mod slot;

/// Runs `model` under all schedules with at most `preemptions`, or under all. `PANDO_LOOM_MORE=1`
/// allows one preemption more.
#[cfg(test)]
fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let more = std::env::var("PANDO_LOOM_MORE").map_or(0, |more| more.parse().unwrap());
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions.map(|bound| bound + more);
    builder.max_branches = 10_000;
    builder.check(model);
}
