//! The limit on open file descriptors.

/// Raises the process's limit on descriptors to the maximum that the system allows.
pub fn raise_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit on file descriptors");
    }
}
