//! TLS, with certificates that the test creates.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pando_server::testing::free_port;
use pando_server::{Options, ServeError, TlsOptions};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto};

use super::server::Server;

/// Creates files of an authority, and of a server and a client that it has signed.
fn make_certificates(folder: &Path) {
    let authority_key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).expect("a certificate");
    std::fs::write(folder.join("ca.pem"), authority.pem()).expect("a file");
    let issuer = Issuer::new(params, authority_key);
    for name in ["server", "client"] {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).expect("a file");
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).expect("a file");
    }
}

/// The server's reply to `request` over TLS; an error if the handshake fails.
fn ask(
    at: SocketAddr,
    folder: &Path,
    shows_certificate: bool,
    request: &[u8],
) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(folder.join("ca.pem")).expect("a certificate");
    roots.add(authority).expect("an authority");
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = if shows_certificate {
        let certificate = CertificateDer::from_pem_file(folder.join("client.pem")).expect("a file");
        let key = PrivateKeyDer::from_pem_file(folder.join("client.key")).expect("a file");
        builder.with_client_auth_cert(vec![certificate], key).expect("a certificate")
    } else {
        builder.with_no_client_auth()
    };
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
    let stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut stream = StreamOwned::new(connection, stream);
    stream.write_all(request)?;
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        // The server closes without a closing message.
        Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(answer),
    }
}

#[test]
fn clients_speak_tls_on_a_port_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    make_certificates(folder);
    let at = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let tls = TlsOptions {
        addresses: vec![at],
        certificate: folder.join("server.pem"),
        key: folder.join("server.key"),
        client_ca: None,
    };
    let server = Server::start(Options { tls: Some(tls.clone()), ..Options::default() });
    let request = b"SET a 1\r\nGET a\r\nQUIT\r\n";
    let answer = "+OK\r\n$1\r\n1\r\n+OK\r\n";
    assert_eq!(ask(at, folder, false, request).expect("an answer"), answer);
    // A client without TLS gets no reply, and does not delay other clients.
    let mut plain = TcpStream::connect(at).expect("it listens");
    plain.write_all(b"PING\r\n").expect("it is sent");
    assert_eq!(ask(at, folder, false, request).expect("an answer"), answer);
    drop(server);

    let at = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mutual =
        TlsOptions { addresses: vec![at], client_ca: Some(folder.join("ca.pem")), ..tls.clone() };
    let server = Server::start(Options { tls: Some(mutual), ..Options::default() });
    assert_eq!(ask(at, folder, true, request).expect("an answer"), answer);
    assert!(ask(at, folder, false, request).is_err(), "a certificate is required");
    drop(server);

    let wrong = TlsOptions { key: folder.join("ca.pem"), ..tls };
    let refused = pando_server::serve(&Options { tls: Some(wrong), ..Options::default() });
    assert!(matches!(refused, Err(ServeError::Net(pando_net::Error::Tls(_)))), "{refused:?}");
}
