//! A standard client: redis-py.

use crate::common::python;
use crate::server::Server;

#[test]
fn redis_py_works_unmodified() {
    let server = Server::with(&[]);
    python::run_client("redis==5.2.1", "redis.py", &server.socket().display().to_string());
}
