//! The best cache-line write-back instruction of this processor, found once at run time.

use std::arch::asm;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes of a cache line. (A processor with lines of 128 bytes writes each line back twice, which
/// costs time and does no harm.)
pub const LINE_BYTES: u64 = 64;

/// A write-back instruction, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WriteBack {
    /// `clwb`: writes back, may keep the line in the cache.
    Clwb = 1,
    /// `clflushopt`: writes back and evicts, not ordered with other flushes.
    Clflushopt = 2,
    /// `clflush`: writes back and evicts, serialized.
    Clflush = 3,
    /// `dc cvap` of aarch64: cleans to the point of persistence.
    DcCvap = 4,
    /// `dc cvac` of aarch64: cleans to the point of coherency. On a processor without a point of
    /// persistence, that is the memory.
    DcCvac = 5,
}

impl WriteBack {
    /// The instruction's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clwb => "clwb",
            Self::Clflushopt => "clflushopt",
            Self::Clflush => "clflush",
            Self::DcCvap => "dc cvap",
            Self::DcCvac => "dc cvac",
        }
    }
}

/// 0 until the instruction was detected; then the discriminant of a [`WriteBack`]. Relaxed
/// suffices: a thread that sees 0 detects the same instruction again.
static FOUND: AtomicU8 = AtomicU8::new(0);

/// The best instruction of this processor.
pub fn instruction() -> WriteBack {
    match FOUND.load(Ordering::Relaxed) {
        1 => WriteBack::Clwb,
        2 => WriteBack::Clflushopt,
        3 => WriteBack::Clflush,
        4 => WriteBack::DcCvap,
        5 => WriteBack::DcCvac,
        _ => {
            let found = detect();
            FOUND.store(found as u8, Ordering::Relaxed);
            found
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> WriteBack {
    // CPUID leaf 7: EBX bit 24 is clwb, bit 23 is clflushopt. clflush is part of x86-64.
    // SAFETY: each processor of x86-64 has this instruction, and it only reads.
    #[allow(unused_unsafe, reason = "the call is unsafe in Rust 1.93, and safe from 1.94 on")]
    let features = unsafe { std::arch::x86_64::__cpuid_count(7, 0).ebx };
    if features & (1 << 24) != 0 {
        WriteBack::Clwb
    } else if features & (1 << 23) != 0 {
        WriteBack::Clflushopt
    } else {
        WriteBack::Clflush
    }
}

#[cfg(target_arch = "aarch64")]
fn detect() -> WriteBack {
    // SAFETY: the call reads a value that the kernel gave the process at its start.
    let features = unsafe { libc::getauxval(libc::AT_HWCAP) };
    if features & libc::HWCAP_DCPOP != 0 { WriteBack::DcCvap } else { WriteBack::DcCvac }
}

/// Starts the write-back of the line that holds `address`.
///
/// # Safety
/// `address` must lie in mapped memory.
#[inline(always)]
pub unsafe fn line(address: *const u8) {
    // SAFETY: each instruction reads no register but the address and changes no value in memory.
    // `instruction` returns only an instruction of this processor. The caller guarantees that the
    // address is mapped.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        match instruction() {
            WriteBack::Clwb => {
                asm!("clwb [{0}]", in(reg) address, options(nostack, preserves_flags));
            }
            WriteBack::Clflushopt => {
                asm!("clflushopt [{0}]", in(reg) address, options(nostack, preserves_flags));
            }
            _ => asm!("clflush [{0}]", in(reg) address, options(nostack, preserves_flags)),
        }
        #[cfg(target_arch = "aarch64")]
        match instruction() {
            WriteBack::DcCvap => {
                asm!("dc cvap, {0}", in(reg) address, options(nostack, preserves_flags));
            }
            _ => asm!("dc cvac, {0}", in(reg) address, options(nostack, preserves_flags)),
        }
    }
}

/// Completes the earlier write-backs, and orders earlier stores before later ones.
#[inline(always)]
pub fn store_fence() {
    // SAFETY: a barrier has no operand and no precondition.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("sfence", options(nostack, preserves_flags));
        // For the whole system, and not only for the processors that share caches: the medium lies
        // behind the caches.
        #[cfg(target_arch = "aarch64")]
        asm!("dsb sy", options(nostack, preserves_flags));
    }
}
