//! No byte of an HTTP request is executed as a command, in either protocol.

use crate::testing;

const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
const REDIS_BODY: &str = "set pwned 1\r\n*3\r\n$3\r\nset\r\n$5\r\npwned\r\n$1\r\n1\r\n";
const MEMCACHED_BODY: &str = "set pwned 0 0 1\r\n1\r\nms pwned 1\r\n1\r\n";

/// HTTP requests with each method, with and without the header that browsers send.
fn requests(body: &str) -> impl Iterator<Item = String> {
    let requests = METHODS.into_iter().flat_map(|method| {
        ["Host: x\r\nContent-Length: 99\r\n", "", "X-Header: set pwned 1\r\n"]
            .map(|headers| format!("{method} /path?set=1 HTTP/1.1\r\n{headers}\r\n"))
    });
    requests.map(move |request| request + body)
}

#[test]
fn no_byte_of_an_http_request_is_carried_out_in_whatever_pieces_it_comes() {
    let server = testing::server();
    for request in requests(REDIS_BODY) {
        for piece_bytes in 1..=request.len() {
            let replies = testing::redis_on(&server, request.as_bytes(), piece_bytes);
            assert_eq!(replies.escape_ascii().to_string(), "", "{request} by {piece_bytes}");
        }
    }
    for request in requests(MEMCACHED_BODY) {
        for piece_bytes in 1..=request.len() {
            let replies = testing::memcached_on(&server, request.as_bytes(), piece_bytes);
            assert_eq!(replies.escape_ascii().to_string(), "", "{request} by {piece_bytes}");
        }
    }
    assert_eq!(testing::redis_on(&server, b"DBSIZE\r\n", 100), b":0\r\n");
}

#[test]
fn requests_before_an_http_request_are_answered_and_none_behind_it() {
    let server = testing::server();
    for begin in
        ["SET a 1\r\nSET b 1\r\nMULTI\r\nSET c 1\r\n", "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n"]
    {
        for request in requests(REDIS_BODY) {
            let sent = format!("{begin}{request}");
            for piece_bytes in [1, 7, sent.len()] {
                let replies = testing::redis_on(&server, sent.as_bytes(), piece_bytes);
                let replies = String::from_utf8_lossy(&replies);
                assert!(
                    replies == "+OK\r\n+OK\r\n+OK\r\n+QUEUED\r\n" || replies == "+OK\r\n",
                    "{sent}: {replies}"
                );
            }
        }
    }
    for request in requests(MEMCACHED_BODY) {
        let sent = format!("set a 0 0 1\r\n1\r\nget a\r\n{request}");
        for piece_bytes in [1, 7, sent.len()] {
            let replies = testing::memcached_on(&server, sent.as_bytes(), piece_bytes);
            assert_eq!(replies, b"STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n", "{sent}");
        }
    }
    assert_eq!(testing::redis_on(&server, b"EXISTS pwned c\r\n", 100), b":0\r\n");
}

#[test]
fn the_words_that_redis_knows_close_a_connection_in_any_case_and_any_form() {
    let server = testing::server();
    for sent in [
        "POST\r\nPING\r\n",
        "post / anything\r\nPING\r\n",
        "hOST: x\r\nPING\r\n",
        "*1\r\n$4\r\nPOST\r\nPING\r\n",
        "*2\r\n$5\r\nHost:\r\n$1\r\nx\r\nPING\r\n",
    ] {
        assert_eq!(testing::redis_on(&server, sent.as_bytes(), sent.len()), b"", "{sent}");
    }
    let replies = testing::redis_on(&server, b"GET HTTP/1.1\r\nSET k HTTP/1.1\r\nPING\r\n", 100);
    assert_eq!(replies, b"$-1\r\n+OK\r\n+PONG\r\n", "these are commands");
}

#[test]
fn a_get_in_lower_case_is_a_command_of_memcached() {
    let server = testing::server();
    let sent = b"get / HTTP/1.1\r\nversion\r\n";
    assert_eq!(testing::memcached_on(&server, sent, 100), b"END\r\nVERSION 1.6.18\r\n");
}
