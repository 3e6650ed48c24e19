//! The disk of a log that breaks in a test.

use std::fs;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::Path;

/// The only segment of a log that is still short.
const SEGMENT: &str = "segment-0000000000000000";

/// Lets each write of the log in `log` fail from now on, by its name and by the handles that this
/// process has open. Its segment goes to `kept`.
pub fn break_disk(log: &Path, kept: &Path) {
    let segment = log.join(SEGMENT);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
    for entry in fs::read_dir("/proc/self/fd").expect("the handles") {
        let entry = entry.expect("a handle");
        if fs::read_link(entry.path()).is_ok_and(|path| path == segment) {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.parse().ok()).expect("a number");
            // SAFETY: the handle is that of the log, which has it open and goes on to own it.
            let mut handle = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
            rustix::io::dup2(&full, &mut handle).expect("replaced");
        }
    }
    fs::rename(&segment, kept).expect("renamed");
    symlink("/dev/full", segment).expect("linked");
}

/// The disk has what it had before it broke.
pub fn mend_disk(log: &Path, kept: &Path) {
    fs::rename(kept, log.join(SEGMENT)).expect("renamed");
}
