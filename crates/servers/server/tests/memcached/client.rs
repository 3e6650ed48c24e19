//! A standard client: pymemcache.

use crate::python;
use crate::servers;

#[test]
fn pymemcache_works_unmodified() {
    let server = servers::pando();
    python::run_client("pymemcache==4.0.0", "memcached.py", &server.port().to_string());
}
