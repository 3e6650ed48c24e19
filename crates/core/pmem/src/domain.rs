//! Persistence domains: what makes a write durable.
//!
//! Code that writes into a pool is generic over [`Domain`], so no index pays for a durability that
//! its medium does not need. The cost and the guarantee of each domain:
//!
//! | domain | medium | cost of a write | survives |
//! | --- | --- | --- | --- |
//! | [`Process`] | any shared mapping | program order | the death of any process |
//! | [`Process`] | DAX, caches in the power-fail domain (eADR) | program order | power loss |
//! | [`Adr`] | DAX otherwise | write-back and fence of each line | power loss |
//!
//! Anonymous memory takes [`Process`] too. Nothing survives there.
//!
//! [`Counting`](crate::counting::Counting) behaves as `Adr` and counts the costs. With the feature
//! `papers`, `emulated::Emulated` behaves as `Adr` on a slow medium, with delays that are set.

use std::sync::atomic::{Ordering, fence};

use crate::write_back;

/// A persistence domain, chosen at compile time.
///
/// The hooks are empty in every domain for users, and compile to nothing.
pub trait Domain: Copy + Default + std::fmt::Debug + Send + Sync + 'static {
    /// Whether a line becomes durable only by write-back and fence. If false, a store is durable
    /// once it is globally visible, and no dirty bit is ever set. The answer does not change while
    /// a pool is open. In domains for users it is a constant.
    fn needs_write_back() -> bool;

    /// Whether an operation may be one hardware transaction ([`rtm`](crate::rtm)): a committed
    /// transaction is durable at once, and no hook needs to see its stores.
    const TRANSACTIONS: bool = false;

    /// How often a thread checks whether another thread has finished its operation, before it
    /// interrupts the operation. Bounded, so no thread waits; long enough for a running thread to
    /// finish.
    const SPINS: u32 = 64;

    /// Starts the write-back of the line that holds `address`; [`Domain::fence`] completes it.
    ///
    /// The caller is tracked, here and in [`fence`](Self::fence), so that a test can leave out one
    /// of them.
    ///
    /// The default, for domains without write-backs, does nothing.
    ///
    /// # Safety
    /// `address` must lie in mapped memory.
    #[inline(always)]
    #[track_caller]
    unsafe fn write_back(_address: *const u8) {}

    /// Orders all earlier stores and write-backs of this thread before its later stores.
    ///
    /// The default is for domains without write-backs, where a killed process needs program order
    /// only. On x86-64 its stores drain in order (TSO), so only the compiler must not reorder
    /// them. Elsewhere the processor may reorder them too.
    #[inline(always)]
    #[track_caller]
    fn fence() {
        fence(Ordering::Release);
    }

    /// Called before each store or CAS of `bytes` bytes to `address`. If it returns false, the
    /// write does not take place (in a thread that a test has killed).
    #[inline(always)]
    fn admit_store(_address: usize, _bytes: usize) -> bool {
        true
    }

    /// Like [`admit_store`](Self::admit_store), for an atomic read-modify-write of the word at
    /// `address`.
    #[inline(always)]
    fn admit_swap(address: usize) -> bool {
        Self::admit_store(address, 8)
    }

    /// Like [`admit_store`](Self::admit_store), for bytes of a block that no other thread sees.
    /// They may be stored at any time before they are written back.
    #[inline(always)]
    fn admit_exclusive_store(address: usize, bytes: usize) -> bool {
        Self::admit_store(address, bytes)
    }

    /// Like [`admit_store`](Self::admit_store), for words that recovery never reads.
    #[inline(always)]
    fn admit_transient_store(_address: usize) -> bool {
        true
    }

    /// Called at each load of `bytes` bytes from `address`.
    #[inline(always)]
    fn observe_load(_address: usize, _bytes: usize) {}

    /// Called when the line at `address` is prefetched; the address may be any.
    #[inline(always)]
    fn observe_prefetch(_address: usize) {}

    /// Called before each access to a word of process memory that threads share. There a test can
    /// switch to another thread, as at the words of a pool.
    #[inline(always)]
    fn observe_process_memory() {}
}

/// A store is durable once it is globally visible, because no cache is lost: not when a process
/// dies, and not at power loss if the platform flushes the caches then.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process;

impl Domain for Process {
    const TRANSACTIONS: bool = true;

    #[inline(always)]
    fn needs_write_back() -> bool {
        false
    }
}

/// Persistent memory whose caches are lost at power loss.
#[derive(Clone, Copy, Debug, Default)]
pub struct Adr;

impl Domain for Adr {
    #[inline(always)]
    fn needs_write_back() -> bool {
        true
    }

    #[inline(always)]
    unsafe fn write_back(address: *const u8) {
        // SAFETY: the caller guarantees that the address is mapped.
        unsafe { write_back::line(address) }
    }

    #[inline(always)]
    fn fence() {
        write_back::store_fence();
    }
}
