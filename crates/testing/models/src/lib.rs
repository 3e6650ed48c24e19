//! Models of Pando's protocols for [loom](https://docs.rs/loom). Loom runs every schedule of a few
//! threads, and every value that the memory model allows for a load. So the models also test the
//! orderings that x86 does not need, but other processors and the compiler do.
//!
//! | module | models |
//! | --- | --- |
//! | `epoch` | `pmem/src/epoch.rs`: `pin`, `unlink_epoch`, `leave`, `try_advance`, the unpinning drop |
//! | `slot` | `pmem/src/participant.rs`: `pin_leased`, `announce`, `take`, the unpinning drop |
//! | `slab` | `pmem/src/alloc/slab.rs`, `cache.rs`, `slab_search.rs`: `take_block`, `release_in_slab`, `list`, `release_current`, `claim_slab`, `dissolve_or_list`, `take_empty_slabs` |
//! | `census` | `pmem/src/alloc/census.rs`, `slab.rs`: a census beside a thread that reserves and retires blocks |
//! | `direct` | `pmwcas/src/direct.rs`, `execute.rs`: the default PMwCAS, threads that interrupt it, readers |
//! | `pmwcas` | `pmwcas/src/rdcss.rs`, `descriptor.rs`: the paper's PMwCAS, its helpers and readers |
//! | `late` | `pmwcas/src/rdcss.rs`: a helper that stops after the operation has ended |
//! | `snapshot` | `tc/src/snapshot.rs`, `snapshots.rs`, `settle.rs`: commits while snapshots are taken, read and revoked |
//! | `component` | `tc/src/commit.rs`, `one_key.rs`, `log/src/tail.rs`: the component of `snapshot` |
//! | `capture` | `bwtree/src/captures.rs`, `stored.rs`, `load.rs`, `lss/src/queue.rs`: captures, marks, evictions and loads of a page that is in a store |
//! | `structure` | `bwtree/src/captures.rs`, `pages.rs`: captures beside a change of structure |
//! | `stored` | the component of `capture` and `structure` |
//! | `bare` | `tc/src/bare.rs`, `one_key.rs`: a bare commit, its helper, and another writer of the key |
//! | `unread` | `tc/src/commit.rs`, `one_key.rs`: a late thread of a commit that has failed, whose page could not be read |
//!
//! A model repeats the atomic accesses of the code with the orderings of the code, and nothing
//! else. Each model has mutants, with a weaker ordering or without a check. The mutants must fail,
//! because a model that cannot fail tests nothing. When the code changes, the model must change:
//! `copied.txt` names each function that a model repeats, with a hash, and a test fails when the
//! function has changed.
//!
//! # Limits of loom
//!
//! * It treats a sequentially consistent load, store or CAS as acquire and release. Only
//!   `fence(SeqCst)` is sequentially consistent. So a model that passes needs no more than acquire
//!   and release. Where the code needs sequentially consistent accesses, the model puts a fence
//!   before each of them. The fences order them as the language orders the accesses.
//! * Most models limit the number of preemptions to one to three. Loom runs all schedules within
//!   the limit. Nearly all faults of this kind are found there.
//! * An acquire fence also acquires what other threads have read that come before it. So a fence
//!   can hide a mutant; the model then leaves that fence out.
//! * It would run too few schedules of a thread that first loads and then stores; see `atomic.rs`.
//!
//! Nothing here is part of the product: outside of `cargo test` the crate is empty.

/// Tests of one model, each with another `Code`: the given one, with these fields. With the code of
/// a test that `holds`, the model must hold. A test that `fails` is of a mutant, and must panic.
#[cfg(test)]
macro_rules! model_tests {
    (@test holds $(#[$note:meta])* fn $name:ident $body:block) => {
        $(#[$note])*
        #[test]
        fn $name() $body
    };
    (@test fails $($test:tt)*) => {
        model_tests! { @test holds #[should_panic] $($test)* }
    };
    ($model:expr, $code:ident; $(
        $(#[$note:meta])* $kind:ident fn $name:ident { $($field:ident: $value:expr),* }
    )+) => {
        $(model_tests! {
            @test $kind $(#[$note])* fn $name { ($model)(Code { $($field: $value,)* ..$code }) }
        })+
    };
}

#[cfg(test)]
mod atomic;
#[cfg(test)]
mod bare;
#[cfg(test)]
mod capture;
#[cfg(test)]
mod census;
#[cfg(test)]
mod component;
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
#[cfg(test)]
mod snapshot;
#[cfg(test)]
mod stored;
#[cfg(test)]
mod structure;
#[cfg(test)]
mod turn;
#[cfg(test)]
mod unread;

/// Runs `model` under all schedules with at most `preemptions`, or under all. `PANDO_LOOM_MORE=1`
/// allows one preemption more.
#[cfg(test)]
fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let more = std::env::var("PANDO_LOOM_MORE").map_or(0, |more| more.parse().unwrap());
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions.map(|bound| bound + more);
    builder.max_branches = 10_000;
    let _turn = turn::take();
    builder.check(model);
}
