//! Persistence domains: what a write must do before it counts as durable.
//!
//! Code that writes into a pool is generic over [`Domain`], so that a volatile index pays nothing
//! for durability. What each domain costs and survives:
//!
//! | domain | medium | a write costs | survives |
//! | --- | --- | --- | --- |
//! | [`Volatile`] | anonymous memory | nothing extra | nothing |
//! | [`Process`] | any shared mapping | program order | the death of any process |
//! | [`Eadr`] | DAX, caches in the power-fail domain | program order | power loss |
//! | [`Adr`] | DAX otherwise | write-back and fence of each line | power loss |
//!
//! [`Counting`](crate::counting::Counting) behaves as `Adr` and counts what that takes;
//! [`Emulated`](crate::emulated::Emulated) behaves as `Adr` on a medium as slow as it is told to
//! be.

use std::sync::atomic::{Ordering, fence};

use crate::write_back;

/// What makes a write durable, chosen at compile time.
///
/// The observing hooks are empty in every domain that serves users, and compile to nothing.
pub trait Domain: Copy + Default + std::fmt::Debug + Send + Sync + 'static {
    /// Which domain this is, as it is reported at run time.
    const KIND: DomainKind;
    /// Whether a line reaches durability only by write-back and fence. Where it is false, what is
    /// globally visible is durable, and no dirty bit is ever set.
    const WRITE_BACK: bool;

    /// Whether an operation may be one hardware transaction ([`rtm`](crate::rtm)): what the
    /// processor commits is durable at once, and no hook need see the stores.
    const TRANSACTIONS: bool = false;

    /// How often a thread looks whether another is done, before it interferes with what that one
    /// does. Bounded, so nobody waits; long enough for one that runs to come to its end.
    const SPINS: u32 = 64;

    /// Starts the write-back of the line that holds `address`; [`Domain::fence`] completes it.
    ///
    /// The caller is tracked, here and in [`fence`](Self::fence), so that a test can tell what
    /// happens if this one were missing.
    ///
    /// Without its own, a domain has no [`WRITE_BACK`](Self::WRITE_BACK), and this does nothing.
    ///
    /// # Safety
    /// `address` must lie in mapped memory.
    #[inline(always)]
    #[track_caller]
    unsafe fn write_back(_address: *const u8) {}

    /// Orders all earlier stores and write-backs of this thread before its later stores.
    ///
    /// Without its own, a domain has no write-backs. Then program order is all that a killed
    /// process needs: its stores drain in order (x86-TSO), so the compiler alone must be kept from
    /// reordering. Elsewhere the processor may reorder too.
    #[inline(always)]
    #[track_caller]
    fn fence() {
        fence(Ordering::Release);
    }

    /// Called before each store or CAS of `bytes` bytes to `address`; if it returns false
    /// the write does not take place (a thread that a test has killed).
    #[inline(always)]
    fn admit_store(_address: usize, _bytes: usize) -> bool {
        true
    }

    /// As [`admit_store`](Self::admit_store), for an atomic read-modify-write of the word at
    /// `address`.
    #[inline(always)]
    fn admit_swap(address: usize) -> bool {
        Self::admit_store(address, 8)
    }

    /// As [`admit_store`](Self::admit_store), for bytes of a block that nobody else sees: they may
    /// be written any time before they are written back.
    #[inline(always)]
    fn admit_exclusive_store(address: usize, bytes: usize) -> bool {
        Self::admit_store(address, bytes)
    }

    /// As [`admit_store`](Self::admit_store), for words that recovery never reads.
    #[inline(always)]
    fn admit_transient_store(_address: usize) -> bool {
        true
    }

    /// Called at each load of `bytes` bytes from `address`.
    #[inline(always)]
    fn observe_load(_address: usize, _bytes: usize) {}

    /// Called when the line at `address` is asked for ahead of its use; any address will do.
    #[inline(always)]
    fn observe_prefetch(_address: usize) {}

    /// Called before each access to a word of process memory by which threads of an index meet, so
    /// that a test can let others go on there, as it can at the words of a pool.
    #[inline(always)]
    fn observe_process_memory() {}
}

/// The domains by name, for choosing and reporting them at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DomainKind {
    /// Nothing survives the pool.
    Volatile,
    /// What was written survives the death of any process.
    Process,
    /// Globally visible is durable: caches are flushed by the platform at power loss.
    Eadr,
    /// A line is durable after write-back and fence.
    Adr,
    /// As `Adr`, counting what it takes.
    Counting,
}

impl DomainKind {
    /// The name that options and reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Volatile => "volatile",
            Self::Process => "process",
            Self::Eadr => "eadr",
            Self::Adr => "adr",
            Self::Counting => "counting",
        }
    }
}

/// Anonymous memory; no write-back, no dirty bit, nothing survives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Volatile;

impl Domain for Volatile {
    const KIND: DomainKind = DomainKind::Volatile;
    const WRITE_BACK: bool = false;
    const TRANSACTIONS: bool = true;

    #[inline(always)]
    fn fence() {}
}

/// A shared mapping that outlives the process; a write costs ordering only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process;

impl Domain for Process {
    const KIND: DomainKind = DomainKind::Process;
    const WRITE_BACK: bool = false;
    const TRANSACTIONS: bool = true;
}

/// Persistent memory whose platform flushes the caches at power loss.
#[derive(Clone, Copy, Debug, Default)]
pub struct Eadr;

impl Domain for Eadr {
    const KIND: DomainKind = DomainKind::Eadr;
    const WRITE_BACK: bool = false;
    const TRANSACTIONS: bool = true;
}

/// Persistent memory whose caches are lost at power loss.
#[derive(Clone, Copy, Debug, Default)]
pub struct Adr;

impl Domain for Adr {
    const KIND: DomainKind = DomainKind::Adr;
    const WRITE_BACK: bool = true;

    #[inline(always)]
    unsafe fn write_back(address: *const u8) {
        // SAFETY: the caller vouches that the address is mapped.
        unsafe { write_back::line(address) }
    }

    #[inline(always)]
    fn fence() {
        write_back::store_fence();
    }
}
