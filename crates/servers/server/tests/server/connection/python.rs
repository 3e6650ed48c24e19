//! A standard client: redis-py.

use super::server::Server;
use crate::common::python;

#[test]
fn redis_py_works_unmodified() {
    let server = Server::with(&[]);
    python::run_client("redis==5.2.1", "redis.py", &server.socket().display().to_string());
}
