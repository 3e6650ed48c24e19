//! The access of commands to each of their keys.

use crate::acl::access::{BOTH, READS, WRITES, of};
use crate::commands::find;

#[test]
fn what_set_does_depends_on_its_options() {
    let set = find(b"set").unwrap();
    assert_eq!(of(set, &[b"set", b"k", b"get"], 1), WRITES);
    assert_eq!(of(set, &[b"set", b"k", b"v", b"GET"], 1), BOTH);
    let get = find(b"get").unwrap();
    assert_eq!(of(get, &[b"get", b"k"], 1), READS);
}
