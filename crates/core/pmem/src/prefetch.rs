//! Prefetches. A prefetch is a hint: the address may be any, and nothing is changed.

/// Prefetches the line at `address` for a read.
#[inline(always)]
pub fn for_read(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is harmless.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Prefetches the line at `address` for a write: no other core keeps a copy.
#[inline(always)]
pub fn for_write(address: *const u8) {
    // In assembler: without a target feature, which not every processor has, the intrinsic
    // prefetches for a read. On a processor without the instruction, it does nothing.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is harmless.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) address, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
