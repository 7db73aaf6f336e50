//! Panics of the libraries that read files. A file can be damaged in ways that they have not thought of; that is an error of the
//! one file, and no end of the program.

use futures_util::FutureExt;
use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use tokio::runtime::Handle;

/// What a panic said, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("what reads it failed: {0}")]
pub struct Panicked(String);

/// How many callers answer for panics. While there are any, panics are not printed of any thread that works for a runtime: work is
/// spread over these.
static CALLERS: AtomicUsize = AtomicUsize::new(0);
/// Where the last panic was that was not printed.
static LAST_PLACE: Mutex<Option<String>> = Mutex::new(None);

/// Counts a caller for as long as it lives.
struct Caller;

impl Caller {
    fn new() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let print = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                if CALLERS.load(Ordering::Relaxed) == 0 || Handle::try_current().is_err() {
                    return print(info);
                }
                *LAST_PLACE.lock().unwrap_or_else(PoisonError::into_inner) = info.location().map(ToString::to_string);
            }));
        });
        CALLERS.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        CALLERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What `work` answers, or the panic in it or in a task that it waits for.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let _caller = Caller::new();
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| Panicked(said(&*panic)))
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
    match LAST_PLACE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(place) => format!("{text} ({place})"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::JoinHandle;

    #[test]
    fn a_panic_in_a_task_is_an_answer() {
        tokio::runtime::Runtime::new().unwrap().block_on(ask());
    }

    async fn ask() {
        let work = async {
            let task: JoinHandle<()> = tokio::spawn(async { panic!("bit width of {}", 77) });
            task.await.unwrap_or_else(|e| panic::resume_unwind(e.into_panic()));
        };
        let Panicked(text) = caught(work).await.unwrap_err();
        assert!(text.starts_with("bit width of 77 (") && text.contains("panics.rs:"), "{text}");
        assert_eq!(caught(async { 5 }).await, Ok(5));
    }
}
