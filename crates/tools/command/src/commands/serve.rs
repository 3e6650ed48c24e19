//! `serve`: the server.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use pando::{DomainChoice, Error, LogFiles};
use pando_server::{Options, ServeError, SyncMode, TlsOptions};
use tracing_subscriber::filter::LevelFilter;

use crate::arguments::PoolArguments;
use crate::arguments::server::{
    LogFormat, LogLevel, REQUIREPASS, ServeArguments, ServeOptions, Sync, has_parameter,
};
use crate::failure::Failure;

/// The port of the Redis protocol.
const PORT: u16 = 6379;
/// The longest item of memcached that can be allowed, as in memcached.
const MAX_ITEM_BYTES: u64 = 1 << 30;

/// Serves clients from the pool or the store, which is created if it does not exist.
pub fn run(pool: &PoolArguments, arguments: &ServeArguments) -> Result<(), Failure> {
    let options = (pool.clone(), arguments.options.clone());
    let (pool, arguments) = &match &arguments.config {
        None => options,
        Some(file) => with_file(options, file)?,
    };
    let record_store = pool.store()?;
    if record_store.is_some() {
        refuse_options_of_pools(arguments)?;
    }
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
    if arguments.sync.is_some() && pool.log.is_none() && record_store.is_none() {
        check_log(&pool.path_or_default()?)?;
    }
    check(arguments)?;
    let password = password(arguments)?;
    let level = arguments.log_level.unwrap_or(LogLevel::Info);
    log_to_standard_error(level, arguments.log_format.unwrap_or(LogFormat::Text));
    let mut pool_options = pool.options();
    if let Some(max_bytes) = arguments.max_bytes {
        pool_options = pool_options.max_bytes(max_bytes);
    }
    let at = |port: u16| addresses(&arguments.bind, port);
    let mut config = arguments.set.clone();
    let number = |name: &str, value: u64| (name.to_owned(), value.to_string());
    config.extend(arguments.snapshot_every.map(|every| number("snapshot-every", every)));
    config.extend(arguments.snapshots.map(|kept| number("snapshots", kept.into())));
    config.extend(password.map(|password| (REQUIREPASS.to_owned(), password)));
    let options = Options {
        pool: Some(match record_store {
            Some(directory) => directory.to_owned(),
            None => pool.path_or_default()?,
        }),
        page_bytes: record_store.map(|_| pool.store_memory_bytes()),
        pool_options,
        index: arguments.index.clone(),
        sync: arguments.sync.map(|mode| match mode {
            Sync::Always => SyncMode::Always,
            Sync::Everysec => SyncMode::EverySecond,
            Sync::No => SyncMode::No,
        }),
        redis: Some(arguments.port.unwrap_or(PORT))
            .filter(|&port| port != 0)
            .into_iter()
            .flat_map(at)
            .collect(),
        memcached: arguments.memcached_port.into_iter().flat_map(at).collect(),
        memcached_max_item_bytes: arguments.memcached_max_item,
        unix: arguments.unix.clone(),
        snapshot: arguments.snapshot.clone(),
        restore: arguments.restore.clone(),
        recover: arguments.recover,
        http: arguments
            .http_port
            .into_iter()
            .flat_map(|port| addresses(&arguments.http_bind, port))
            .collect(),
        threads: arguments.threads.map_or(0, usize::from),
        tls: tls(arguments),
        config,
        acl_file: arguments.acl_file.clone(),
    };
    Ok(pando_server::serve(&options)?)
}

/// The options of the command line, and behind them those of the file at `path`.
fn with_file(
    (pool, options): (PoolArguments, ServeOptions),
    path: &Path,
) -> Result<(PoolArguments, ServeOptions), Failure> {
    let text = fs::read_to_string(path).map_err(Failure::file("read", path))?;
    let mut file: ServeOptions = toml::from_str(&text).map_err(|error| {
        // Without the text of the line: it may be a password.
        let line = error
            .span()
            .map(|span| text.as_bytes()[..span.start].split(|byte| *byte == b'\n').count());
        let line = line.map_or(String::new(), |line| format!("line {line}: "));
        Failure::Input(format!("{}: {line}{}", path.display(), error.message()))
    })?;
    if has_parameter(&file.set, REQUIREPASS) {
        return Err(Failure::Input(format!(
            "{}: [set] takes no {REQUIREPASS}; write the password into a file of its own, and name \
             that by requirepass-file",
            path.display()
        )));
    }
    // Paths of a file are relative to its directory: the server may be started anywhere.
    let directory = path.parent().unwrap_or(Path::new(""));
    file.paths().for_each(|path| *path = directory.join(&*path));
    if let Some(index) = &file.index
        && !pando::indexes().iter().any(|known| known.name == index)
    {
        let known: Vec<_> = pando::indexes().iter().map(|index| index.name).collect();
        return Err(Failure::Input(format!(
            "{}: there is no index {index:?}; known are {}",
            path.display(),
            known.join(", ")
        )));
    }
    let in_file = |error| Failure::Input(format!("{}: {error}", path.display()));
    // What the command line names takes the place of the other kind in the file.
    if pool.store.is_some() {
        (file.pool, file.domain, file.log) = (None, None, None);
        (file.index, file.max_bytes, file.recover) = (None, None, false);
    } else if pool.path.is_some() {
        (file.store, file.memory) = (None, None);
    }
    let domain = file.domain.as_deref().map(str::parse::<DomainChoice>).transpose();
    let domain = domain.map_err(|error| in_file(error.to_string()))?;
    let pool = PoolArguments {
        path: pool.path.or(file.pool.take()),
        domain: pool.domain.or(domain),
        log: pool.log.or(file.log.take()),
        store: pool.store.or(file.store.take()),
        memory: pool.memory.or(file.memory.take()),
        ..pool
    };
    Ok((pool, options.or(file)))
}

/// Refuses the options that are for pools alone.
fn refuse_options_of_pools(options: &ServeOptions) -> Result<(), Failure> {
    let refused = [
        (options.recover, "--recover", "a store replays its log at each opening"),
        (options.index.is_some(), "--index", "the maps of a store are Bw-trees"),
        (options.max_bytes.is_some(), "--max-bytes", "a store grows with its disk"),
    ];
    match refused.into_iter().find(|(is_set, ..)| *is_set) {
        Some((_, option, reason)) => Err(Failure::Input(format!(
            "{option} is for a pool; leave it out with --store: {reason}"
        ))),
        None => Ok(()),
    }
}

/// Refuses `--sync` for a pool without a log. A missing pool may have had one.
fn check_log(pool: &Path) -> Result<(), Failure> {
    let refused = |text| Err(Failure::Input(text));
    match LogFiles::of_pool(pool) {
        Ok(_) => Ok(()),
        Err(Error::NoLog) => refused(ServeError::SyncWithoutLog.to_string()),
        Err(Error::PoolNotFound { path }) => refused(format!(
            "--sync needs a pool with a log, and there is no pool at {}. If it had a log, name its \
             directory by --log: the pool is rebuilt from its log. A new pool gets a log by --log too",
            path.display()
        )),
        Err(error) => Err(error.into()),
    }
}

/// Refuses options that need another one.
fn check(options: &ServeOptions) -> Result<(), Failure> {
    let needs = |name: &str, is_set: bool, other: &str, has_other: bool| match is_set && !has_other
    {
        true => Err(Failure::Input(format!("{name} needs {other} too"))),
        false => Ok(()),
    };
    let has_tls = options.tls_port.is_some();
    needs("http-bind", !options.http_bind.is_empty(), "http-port", options.http_port.is_some())?;
    needs("tls-port", has_tls, "tls-cert", options.tls_cert.is_some())?;
    needs("tls-port", has_tls, "tls-key", options.tls_key.is_some())?;
    needs("tls-cert", options.tls_cert.is_some(), "tls-port", has_tls)?;
    needs("tls-key", options.tls_key.is_some(), "tls-port", has_tls)?;
    needs("tls-client-ca", options.tls_client_ca.is_some(), "tls-port", has_tls)?;
    if let Some(found) = options.memcached_max_item.filter(|&bytes| bytes > MAX_ITEM_BYTES) {
        return Err(Failure::Input(format!(
            "memcached-max-item is {found}, and at most {MAX_ITEM_BYTES} (1G) are allowed"
        )));
    }
    check_ports(options)
}

/// Refuses a port for two protocols, and an address that is named twice.
fn check_ports(options: &ServeOptions) -> Result<(), Failure> {
    let ports = [
        ("port", Some(options.port.unwrap_or(PORT)), &options.bind),
        ("memcached-port", options.memcached_port, &options.bind),
        ("tls-port", options.tls_port, &options.bind),
        ("http-port", options.http_port, &options.http_bind),
    ];
    let mut taken: Vec<(SocketAddr, &str)> = Vec::new();
    for (name, port, bind) in ports {
        for address in
            port.filter(|&port| port != 0).into_iter().flat_map(|port| addresses(bind, port))
        {
            if let Some((_, other)) = taken.iter().find(|(taken, _)| *taken == address) {
                let cause = match name == *other {
                    true => "the address is named twice".to_owned(),
                    false => format!("{other} is there too"),
                };
                return Err(Failure::Input(format!(
                    "{name} cannot be at {address}: {cause}; a protocol has an address of its own"
                )));
            }
            taken.push((address, name));
        }
    }
    Ok(())
}

/// The password: that of the command line, or the line of the file.
fn password(options: &ServeOptions) -> Result<Option<String>, Failure> {
    let Some(path) = &options.requirepass_file else { return Ok(options.requirepass.clone()) };
    let text = fs::read_to_string(path).map_err(Failure::file("read", path))?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() || line.contains('\n') {
        return Err(Failure::Input(format!(
            "{} has {} lines; a file with a password has one, which is not empty",
            path.display(),
            text.lines().count()
        )));
    }
    Ok(Some(line.to_owned()))
}

/// The addresses, or loopback, with this port.
fn addresses(bind: &[IpAddr], port: u16) -> Vec<SocketAddr> {
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
    let bind = if bind.is_empty() { &loopback } else { bind };
    bind.iter().map(|&address| SocketAddr::new(address, port)).collect()
}

fn tls(arguments: &ServeOptions) -> Option<TlsOptions> {
    Some(TlsOptions {
        addresses: addresses(&arguments.bind, arguments.tls_port?),
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
