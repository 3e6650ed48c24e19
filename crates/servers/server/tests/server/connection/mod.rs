//! Connections: passwords, users, limits, TLS, a standard client.

mod access;
mod limits;
mod python;
mod server;
mod tls;
mod web_requests;
