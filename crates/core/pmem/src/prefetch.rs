//! Asking for a line ahead of its use. A hint: any address will do, and nothing is changed.

/// Asks for the line at `address`, to be read.
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

/// Asks for the line at `address`, to be written: no other core keeps a copy.
#[inline(always)]
pub fn for_write(address: *const u8) {
    // In assembler: without a target feature that not every processor has, the intrinsic asks for
    // a copy to be read. Where the instruction means nothing it does nothing.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is harmless.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) address, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
