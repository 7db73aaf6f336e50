//! Locks that outlive a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What `mutex` guards, also where a thread that held it has panicked: none of what is guarded in this crate is left half changed by that.
pub(crate) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
