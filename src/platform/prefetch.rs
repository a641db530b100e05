//! Hints to the processor that something will be needed soon. A file with unsafe code, for there is no other way to say it:
//! where tasks come in a crowd a million sleeps cost a third less by it (bench `sleep`), spawns from outside a sixth.

#![allow(unsafe_code)]

/// How many bytes of a task are fetched: as many as one mostly has whose body is small, and then some.
pub(crate) const TASK: usize = 512;
/// How many bytes come at once.
const LINE: usize = 64;

/// Has the first `bytes` from `at` on brought into the cache. Nothing is read, so they may be anybody's, or nobody's.
#[inline]
pub(crate) fn prefetch<T: ?Sized>(at: *const T, bytes: usize) {
    let at = at.cast::<i8>();
    for offset in (0..bytes).step_by(LINE) {
        let line = at.wrapping_add(offset);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: it reads nothing; an address that names no memory is ignored.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(line);
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = line;
    }
}
