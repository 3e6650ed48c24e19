//! TLS for clients of the Redis protocol: rustls, with the certificates that the command line
//! names.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};
use tokio_rustls::server::TlsStream;

use crate::error::Error;

/// The longest duration of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Addresses and certificates for TLS.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// The addresses to listen at.
    pub addresses: Vec<std::net::SocketAddr>,
    /// The server's certificate and its chain, in PEM.
    pub certificate: PathBuf,
    /// The certificate's private key, in PEM.
    pub key: PathBuf,
    /// The authority that signs clients' certificates, in PEM; `None` if clients need no
    /// certificate.
    pub client_ca: Option<PathBuf>,
}

/// Creates the acceptor of TLS connections.
///
/// # Errors
///
/// [`Error::Tls`]: a certificate or a key is not usable, and why.
pub fn acceptor(options: &TlsOptions) -> Result<TlsAcceptor, Error> {
    let provider = Arc::new(crypto::ring::default_provider());
    let certificates = certificates(&options.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&options.key)
        .map_err(|error| unreadable(&options.key, &error))?;
    let refused = |error: &dyn std::fmt::Display| Error::Tls(error.to_string());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&error))?;
    let builder = match &options.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in self::certificates(path)? {
                roots.add(certificate).map_err(|error| unreadable(path, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| unreadable(path, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder.with_single_cert(certificates, key).map_err(|error| refused(&error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| unreadable(path, &error))?;
    if read.is_empty() {
        return Err(unreadable(path, &"it holds no certificate"));
    }
    Ok(read)
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Tls(format!("{}: {error}", path.display()))
}

/// Performs the TLS handshake with a client, within ten seconds.
///
/// # Errors
///
/// Of the connection, or [`io::ErrorKind::TimedOut`].
pub async fn accept(acceptor: &TlsAcceptor, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(accepted) => accepted,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
