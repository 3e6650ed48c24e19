//! The page in Debian's Chromium.

use std::process::{Command, Stdio};
use std::time::Instant;

use super::{PATIENCE, Served};
use crate::common::packages;

/// The browser itself. `/usr/bin/chromium` is a script that finds it only at its installed path.
const PROGRAM: &str = "usr/lib/chromium/chromium";

/// The browser, without a window. If it is not installed, it is downloaded (124 MB).
fn browser() -> Command {
    let mut command = packages::program("chromium").other(PROGRAM).command();
    // It loads only our own page. In containers its sandbox lacks the necessary rights.
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    command.args(["--no-first-run", "--disable-background-networking"]);
    command
}

/// The page after this number of milliseconds of the browser's virtual time. That time advances
/// only while the page waits for nothing.
fn page_after(served: &Served, milliseconds: u32) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut child = browser()
        .arg(format!("--user-data-dir={}", folder.path().display()))
        .args([&format!("--virtual-time-budget={milliseconds}"), "--dump-dom"])
        .arg(format!("http://{}/", served.http))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the browser starts");
    let mut page = child.stdout.take().unwrap();
    let read = std::thread::spawn(move || std::io::read_to_string(&mut page).unwrap());
    let deadline = Instant::now() + 2 * PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the browser does not end");
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    read.join().unwrap()
}

/// The text of the element with that ID, which must contain only text.
fn text_of<'page>(page: &'page str, id: &str) -> &'page str {
    let begin = page.find(&format!(" id=\"{id}\"")).unwrap_or_else(|| panic!("{id}: {page}"));
    let (_, text) = page[begin..].split_once('>').unwrap();
    text.split_once('<').unwrap().0
}

/// Takes some seconds with an installed browser (`apt-get install -y chromium`). Otherwise it first
/// downloads 124 MB, so it does not run by default: `cargo test -p pando-serve --test server --
/// --ignored`.
#[test]
#[ignore = "needs a browser: cargo test -p pando-serve --test server -- --ignored"]
fn a_browser_shows_the_figures() {
    let served = Served::begin();
    served.redis("SET k 0123456789\r\nGET k\r\nGET none\r\n", 5 + 17 + 5);
    served.ask("POST", "/shape");
    served.status_when(|status| {
        status.shape.age_seconds.is_some() && status.seconds.iter().any(|second| second.hits > 0)
    });
    let page = page_after(&served, 3000);
    assert_eq!(text_of(&page, "state"), "live");
    assert!(text_of(&page, "promise").contains("what has returned survives"), "{page}");
    assert_eq!((text_of(&page, "hits"), text_of(&page, "misses")), ("1", "1"));
    assert_eq!(text_of(&page, "keys"), "1");
    assert!(text_of(&page, "used").ends_with("B"), "{page}");
    assert!(text_of(&page, "throughput").parse::<f64>().is_ok(), "{page}");
    assert!(page.contains("<td>GET</td><td>2</td>"), "{page}");
    assert!(page.contains("<td>server</td><td>bztree</td>"), "{page}");
    assert!(page.contains("<polyline"), "{page}");
}
