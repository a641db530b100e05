//! Thread-locals without a destructor.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ops::Deref;

use crate::platform::sync::thread::LocalKey;

/// Thread-local value that is not dropped when the thread exits. Therefore, the destructors of other thread-locals can
/// use the value. When the thread exits, the value must own no memory. Owned memory leaks.
pub(crate) struct NeverDropped<T>(ManuallyDrop<T>);

impl<T> NeverDropped<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T> Deref for NeverDropped<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Calls `f` with the value of a thread-local, as `LocalKey::with` does. The type of the value has no destructor.
///
/// The compiler compiles `LocalKey::with` again for each closure. Many generic functions pass a closure, and the
/// compiler compiles these functions again for each message type. Therefore `with_undropped` passes only the function
/// `ptr::from_ref` to `LocalKey::with`. The function `with_undropped` itself calls the closure `f`. `LocalKey::with` is
/// then compiled only once.
#[cfg(not(any(procession_loom, procession_shuttle)))]
#[inline]
pub(crate) fn with_undropped<T: 'static, R>(key: &'static LocalKey<T>, f: impl FnOnce(&T) -> R) -> R {
    const { assert!(!std::mem::needs_drop::<T>(), "the thread drops this value before it exits") };
    let value = key.with(std::ptr::from_ref);
    // SAFETY: the standard library keeps the value of a thread-local at its address until the thread exits. The type
    // has no destructor, so the thread does not drop the value earlier. The reference is valid during the call of `f`,
    // and `f` runs on this thread. `LocalKey` gives only shared references to the value.
    f(unsafe { &*value })
}

/// Under the model checkers, a thread-local is dropped at the end of its thread.
#[cfg(any(procession_loom, procession_shuttle))]
pub(crate) fn with_undropped<T: 'static, R>(key: &'static LocalKey<T>, f: impl FnOnce(&T) -> R) -> R {
    key.with(f)
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::platform::sync::atomic::{AtomicU32, Ordering};
    use crate::platform::sync::{Arc, thread};

    thread_local! {
        static UNDROPPED: NeverDropped<Cell<u32>> = const { NeverDropped::new(Cell::new(0)) };
        static AT_EXIT: RefCell<Option<AtExit>> = const { RefCell::new(None) };
    }

    /// The destructor stores the value of the thread-local `UNDROPPED`.
    struct AtExit(Arc<AtomicU32>);

    impl Drop for AtExit {
        fn drop(&mut self) {
            self.0.store(with_undropped(&UNDROPPED, |value| value.get()), Ordering::Relaxed);
        }
    }

    /// The destructors of other thread-locals can read the value while the thread exits.
    #[test]
    fn a_destructor_of_another_thread_local_can_use_the_value() {
        let read = Arc::new(AtomicU32::new(0));
        let at_exit = AtExit(Arc::clone(&read));
        thread::spawn(move || {
            AT_EXIT.with(|value| *value.borrow_mut() = Some(at_exit));
            // The access to `AT_EXIT` has registered the destructor of `AT_EXIT`. After that, this thread accesses
            // `UNDROPPED` for the first time.
            with_undropped(&UNDROPPED, |value| value.set(7));
        })
        .join()
        .unwrap();
        assert_eq!(read.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn each_thread_has_its_own_value() {
        let set_and_get = |to| {
            with_undropped(&UNDROPPED, |value| value.set(value.get() + to));
            with_undropped(&UNDROPPED, |value| value.get())
        };
        assert_eq!(set_and_get(1), 1);
        assert_eq!(thread::spawn(move || set_and_get(10)).join().unwrap(), 10);
        assert_eq!(set_and_get(1), 2);
    }
}
