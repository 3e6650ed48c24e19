//! A standard client: pymemcache.

use super::servers;
use crate::common::python;

#[test]
fn pymemcache_works_unmodified() {
    let server = servers::pando();
    python::run_client("pymemcache==4.0.0", "memcached.py", &server.port().to_string());
}
