//! The lines of CLIENT LIST.

use crate::clients::Client;
use crate::commands::{CATALOG, find};

#[test]
fn a_client_is_described_as_redis_does() {
    let client = Client::default();
    client.set_name("oak".into());
    client.note_command(find(b"get").unwrap());
    client.note_queued(Some((2, 30)));
    let line = client.describe(0, &CATALOG);
    assert!(line.starts_with("id=0 addr= laddr= fd=0 name=oak age=0 idle=0 flags=x db=0 "));
    assert!(line.contains(" multi=2 ") && line.contains(" multi-mem=30 "));
    assert!(line.ends_with(" cmd=get user=default redir=-1 resp=2"), "{line}");
}
