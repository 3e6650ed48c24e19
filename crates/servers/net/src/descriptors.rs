//! The limit of descriptors.

/// Lets the process have as many descriptors as it may.
pub fn raise_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of descriptors cannot be raised");
    }
}
