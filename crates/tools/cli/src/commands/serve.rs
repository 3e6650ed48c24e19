//! `serve`: the server.

use std::net::SocketAddr;

use pando::LogFiles;
use pando_server::{Options, TlsOptions};
use tracing_subscriber::filter::LevelFilter;

use crate::arguments::{LogFormat, LogLevel, PoolArguments, ServeArguments};
use crate::failure::Failure;

/// Serves clients from the pool, which is created if it does not exist.
pub fn run(pool: &PoolArguments, arguments: &ServeArguments) -> Result<(), Failure> {
    if pool.salvage {
        return Err(Failure::Input(format!(
            "serve takes no --salvage; to begin a new pool from a snapshot or from what can be read of this one, run \
             `pando --pool {} serve --recover`",
            pool.path_or_default()?.display()
        )));
    }
    if pool.shared {
        return Err(Failure::Input(
            "serve takes no --shared: a server keeps counts of its keys in its own memory; leave \
             out --shared, and use clients of the server"
                .to_owned(),
        ));
    }
    let has_log = || Ok::<_, Failure>(LogFiles::of_pool(pool.path_or_default()?).is_ok());
    if pool.log.is_some() || has_log()? {
        return Err(Failure::Input(
            "serve takes no pool with a log: its keys are in a map that is not transactional, and \
             would be lost at a power cut; name a pool without a log, and leave out --log"
                .to_owned(),
        ));
    }
    log_to_standard_error(arguments.log_level, arguments.log_format);
    let mut pool_options = pool.options();
    if let Some(max_bytes) = arguments.max_bytes {
        pool_options = pool_options.max_bytes(max_bytes);
    }
    let at = |port: u16| arguments.bind.iter().map(move |&address| SocketAddr::new(address, port));
    let mut config = arguments.config.clone();
    let number = |name: &str, value: u64| (name.to_owned(), value.to_string());
    config.extend(arguments.snapshot_every.map(|every| number("snapshot-every", every)));
    config.extend(arguments.snapshots.map(|kept| number("snapshots", kept.into())));
    config.extend(arguments.requirepass.clone().map(|value| ("requirepass".to_owned(), value)));
    let options = Options {
        pool: Some(pool.path_or_default()?),
        pool_options,
        index: arguments.index.clone(),
        redis: Some(arguments.port).filter(|&port| port != 0).into_iter().flat_map(at).collect(),
        memcached: arguments.memcached_port.into_iter().flat_map(at).collect(),
        memcached_max_item_bytes: arguments.memcached_max_item,
        unix: arguments.unix.clone(),
        snapshot: arguments.snapshot.clone(),
        restore: arguments.restore.clone(),
        recover: arguments.recover,
        http: http_at(arguments).collect(),
        threads: arguments.threads.map_or(0, usize::from),
        tls: tls(arguments),
        config,
        acl_file: arguments.acl_file.clone(),
    };
    Ok(pando_server::serve(&options)?)
}

fn tls(arguments: &ServeArguments) -> Option<TlsOptions> {
    let port = arguments.tls_port?;
    Some(TlsOptions {
        addresses: arguments.bind.iter().map(|&address| SocketAddr::new(address, port)).collect(),
        certificate: arguments.tls_cert.clone()?,
        key: arguments.tls_key.clone()?,
        client_ca: arguments.tls_client_ca.clone(),
    })
}

fn log_to_standard_error(level: LogLevel, format: LogFormat) {
    let level = match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}

/// The addresses of HTTP, if it is served.
fn http_at(arguments: &ServeArguments) -> impl Iterator<Item = SocketAddr> {
    let at = |port| arguments.http_bind.iter().map(move |&address| SocketAddr::new(address, port));
    arguments.http_port.into_iter().flat_map(at)
}
