//! System calls of the harness: a core for each thread, the time of a thread on a core, the size of
//! the heap.

use std::time::Duration;

/// The cores that this process may use, by number.
pub fn cores() -> Vec<usize> {
    // SAFETY: an all-zero set is a valid empty one, and the call writes no more than its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Vec::new();
        }
        set
    };
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the number is below the set's size.
        .filter(|&core| unsafe { libc::CPU_ISSET(core, &set) })
        .collect()
}

/// Pins the calling thread to `core`; if the kernel refuses, the thread may move.
fn pin_to(core: usize) {
    // SAFETY: the core came from the kernel's own set, so it is in range; the call only reads.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Pins the calling thread, the one with this number, to a core of its own, if there is one for
/// each of `threads`.
pub fn pin_one_of(threads: usize, thread: usize, cores: &[usize]) {
    if let Some(&core) = cores.get(thread).filter(|_| threads <= cores.len()) {
        pin_to(core);
    }
}

/// The time that the calling thread has run on a core so far.
pub fn thread_time() -> Duration {
    time_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The time that all threads of this process, also those that have ended, have run on cores so far.
pub fn process_time() -> Duration {
    time_of(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn time_of(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the one structure that it is given.
    unsafe { libc::clock_gettime(clock, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Makes the kernel kill this process when the thread that started it ends.
pub fn die_with_parent() {
    // SAFETY: the call takes plain integers and touches no memory of this process.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL)
    };
}

/// Allocated bytes of the heap in all arenas; `None` if the C library has no such figure.
///
/// It is read between slices only, so that it costs the measured operations nothing, unlike a
/// counting allocator.
pub fn heap_bytes() -> Option<u64> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: the call has no preconditions.
        let info = unsafe { libc::mallinfo2() };
        Some((info.uordblks + info.hblkhd) as u64)
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_is_seen_to_grow() {
        let before = heap_bytes();
        let block = vec![1_u8; 32 << 20];
        if let (Some(before), Some(after)) = (before, heap_bytes()) {
            assert!(after >= before + (31 << 20), "{before} {after}");
        }
        drop(block);
    }

    #[test]
    fn a_thread_keeps_to_its_core() {
        let core = cores()[0];
        let found = std::thread::spawn(move || {
            pin_to(core);
            cores()
        });
        assert_eq!(found.join().unwrap(), [core]);
    }
}
