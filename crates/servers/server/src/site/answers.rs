//! The responses for each path.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use pando_net::http::Site;

use super::metrics;
use super::observer::Observer;

const PAGE: &str = include_str!("page.html");
/// The page contains all its resources, and connects only to this server.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

impl Site for Observer {
    fn answer(&self, is_private: bool, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        answer(self, is_private, request)
    }

    fn note_second(&self) {
        self.end_second();
    }
}

/// The response to a request. The body of the request is not read.
fn answer<Body>(
    observer: &Observer,
    is_private: bool,
    request: &Request<Body>,
) -> Response<Full<Bytes>> {
    if is_private && !names_this_machine(request) {
        return text(StatusCode::FORBIDDEN, "use localhost or an IP address as the host name\n");
    }
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    match request.uri().path() {
        "/shape" if *request.method() == Method::POST => {
            observer.ask_for_shape();
            text(StatusCode::ACCEPTED, "see /status.json\n")
        }
        "/shape" => allowing("POST"),
        "/" | "/status.json" | "/metrics" | "/healthz" if !is_read => allowing("GET, HEAD"),
        "/" => response(StatusCode::OK, HTML, PAGE.into()),
        "/status.json" => match serde_json::to_vec(&observer.status()) {
            Ok(body) => response(StatusCode::OK, JSON, body.into()),
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the status cannot be encoded\n"),
        },
        "/metrics" => match metrics::text(observer) {
            Ok(body) => response(StatusCode::OK, metrics::CONTENT_TYPE, body.into()),
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be encoded\n"),
        },
        "/healthz" => text(StatusCode::OK, "ok\n"),
        _ => text(
            StatusCode::NOT_FOUND,
            "not found; the paths are /, /status.json, /metrics and /healthz\n",
        ),
    }
}

/// Whether the requested host is an address or `localhost`.
fn names_this_machine<Body>(request: &Request<Body>) -> bool {
    let named = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let Some(named) = named.or(request.uri().authority().map(|authority| authority.as_str()))
    else {
        // Browsers always send it.
        return true;
    };
    let Ok(authority) = named.parse::<hyper::http::uri::Authority>() else { return false };
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || address.parse::<std::net::IpAddr>().is_ok()
}

fn allowing(methods: &'static str) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    response
}

fn text(status: StatusCode, words: &'static str) -> Response<Full<Bytes>> {
    response(status, TEXT, words.into())
}

fn response(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_s_names_are_answered() {
        let asked = |host: &str| {
            let request = Request::builder().uri("/").header(header::HOST, host).body(()).unwrap();
            names_this_machine(&request)
        };
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8379", "[::1]:8379", "10.1.2.3"] {
            assert!(asked(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:8379", "", "127.0.0.1.nip.io"] {
            assert!(!asked(host), "{host}");
        }
    }
}
