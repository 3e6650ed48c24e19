//! An event loop or a sweep that panics ends the server, with an error: without it, clients would
//! wait, or the server would run out of room. A panic inside one request ends only its connection,
//! and one in a task of the background only the task.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;

use tokio::sync::Notify;

/// The first panic of a thread that is watched.
#[derive(Debug, Default)]
pub(crate) struct Panics(OnceLock<Panic>);

/// The panic of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Panic {
    /// The name of the thread.
    pub thread: String,
    /// The words of the panic.
    pub reason: String,
}

impl Panics {
    /// Does the work of this thread. If it panics, notes that and stops the server.
    pub(crate) fn watch(&self, stop: &Notify, work: impl FnOnce()) {
        let Err(payload) = std::panic::catch_unwind(AssertUnwindSafe(work)) else { return };
        let thread = std::thread::current().name().unwrap_or("without a name").to_owned();
        let reason = words_of(&*payload);
        tracing::error!(thread, reason, "a thread has panicked, so the server stops");
        let _ = self.0.set(Panic { thread, reason });
        stop.notify_one();
    }

    /// The first panic.
    pub(crate) fn first(&self) -> Option<&Panic> {
        self.0.get()
    }
}

fn words_of(payload: &(dyn Any + Send)) -> String {
    let words = payload.downcast_ref::<&str>().map(|words| (*words).to_owned());
    let words = words.or_else(|| payload.downcast_ref::<String>().cloned());
    words.unwrap_or_else(|| "without words".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_panic_is_kept_with_its_words() {
        let (panics, stop) = (Panics::default(), Notify::new());
        panics.watch(&stop, || {});
        assert_eq!(panics.first(), None);
        let works: [fn(); 2] = [|| panic!("number {}", 1), || panic!("two")];
        let (panics, stop) = (&panics, &stop);
        std::thread::scope(|scope| {
            for work in works {
                let thread = std::thread::Builder::new().name("worker".to_owned());
                let thread = thread.spawn_scoped(scope, move || panics.watch(stop, work));
                thread.expect("a thread").join().expect("it does not panic");
            }
        });
        let panic = Panic { thread: "worker".to_owned(), reason: "number 1".to_owned() };
        assert_eq!(panics.first(), Some(&panic));
    }
}
