//! Words that no operation can have left: they differ from words of running operations, and delay
//! no thread.

use std::sync::atomic::Ordering;

use pando_pmem::Process;
use pando_pmwcas::MAX_VALUE;

use super::common::{change, in_memory, raw, read, within_bounds, word};

#[test]
fn a_word_that_refers_to_no_operation_reads_as_the_largest_value() {
    within_bounds("a damaged word", || {
        let pmwcas = in_memory::<Process>(1);
        assert!(change(&pmwcas, &[(1, 0, 5)]));
        let (mwcas, rdcss) = (1 << 63, 1 << 62);
        // A future life, a descriptor that does not exist, and both.
        for damage in [7 << 40 | 1, 0xFFFF, 9 << 40 | 0xF_FFFF] {
            for bits in [mwcas, rdcss, mwcas | rdcss] {
                pmwcas.pool().word(word(0)).store(bits | damage, Ordering::Release);
                assert_eq!(read(&pmwcas, 0), MAX_VALUE, "{damage:#x}");
                assert!(!change(&pmwcas, &[(0, 0, 1), (1, 5, 6)]), "{damage:#x}");
                let guard = pmwcas.pool().pin().unwrap();
                assert_eq!(pmwcas.compare_exchange(&guard, word(0), 0, 1), Err(MAX_VALUE));
                assert_eq!(raw(&pmwcas, 0), bits | damage, "it was changed");
                assert_eq!(read(&pmwcas, 1), 5);
            }
        }
    });
}
