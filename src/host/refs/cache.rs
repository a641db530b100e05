//! References to those who were asked last, which a worker keeps for the next question to them: who asks the same ones again
//! and again counts none. They are let go of before long, so what has ended is gone soon after.

use std::cell::Cell;

use crate::host::control::{AnyControl, Control};
use crate::platform::sync::{ThreadCell, thread_local};
use crate::process::state::Ref;

/// How many there are, at most: of as many servers.
const PLACES: usize = 8;

/// Room for a reference that a thread has to spare.
pub(crate) struct Spare {
    /// Whose it is, by its identity; 0 for nobody's, when there is none.
    of: Cell<usize>,
    control: ThreadCell<Ref<dyn AnyControl>>,
}

struct Spares {
    places: [Spare; PLACES],
    /// This thread is a worker, which lets go of them.
    keeps: Cell<bool>,
}

thread_local! {
    static SPARES: Spares = const {
        Spares {
            places: [const { Spare::new() }; PLACES],
            keeps: Cell::new(false),
        }
    };
}

impl Spares {
    /// Where that of the process with this identity lies, if there is one.
    #[inline]
    fn place(&self, identity: usize) -> &Spare {
        // Fibonacci hashing (Knuth, "The Art of Computer Programming", volume 3, section 6.4): control blocks begin at multiples.
        let hash = (identity as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.places[(hash >> (u64::BITS - PLACES.trailing_zeros())) as usize]
    }
}

impl Spare {
    pub(crate) const fn new() -> Self {
        Self { of: Cell::new(0), control: ThreadCell::new() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.of.get() == 0
    }

    #[inline]
    fn take(&self) -> Option<Ref<dyn AnyControl>> {
        self.of.set(0);
        self.control.take()
    }

    /// Takes it if it is one to the process with this identity.
    #[inline]
    pub(crate) fn take_of(&self, identity: usize) -> Option<Ref<dyn AnyControl>> {
        if self.of.get() == identity { self.take() } else { None }
    }

    /// Puts one there, where none is.
    #[inline]
    pub(crate) fn put(&self, control: Ref<dyn AnyControl>) {
        self.of.set(control.identity());
        self.control.put(control);
    }
}

/// Says whether somebody has this thread [let go](rest) of what it keeps from now on. It lets go of what it has.
pub(in crate::host) fn keep(yes: bool) {
    SPARES.with(|spares| spares.keeps.set(yes));
    rest();
}

/// Lets go of all. What is dropped is somebody's code.
pub(in crate::host) fn rest() {
    let all = SPARES.with(|spares| spares.places.each_ref().map(Spare::take));
    drop(all);
}

impl<M: Send + 'static> Ref<Control<M>> {
    /// Another reference, one of those that this worker has to spare if it can be.
    #[inline]
    pub(crate) fn another(&self) -> Ref<dyn AnyControl> {
        let identity = self.identity();
        SPARES.with(|spares| spares.place(identity).take_of(identity)).unwrap_or_else(|| self.any())
    }
}

impl Ref<dyn AnyControl> {
    /// Leaves it to this worker, who will need [another](Ref::another) before long, or will not.
    #[inline]
    pub(crate) fn spare(self) {
        let former = SPARES.with(|spares| {
            if !spares.keeps.get() {
                return Some(self);
            }
            let place = spares.place(self.identity());
            let former = if place.is_empty() { None } else { place.take() };
            place.put(self);
            former
        });
        drop(former);
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::Runtime;

    #[test]
    fn who_is_asked_again_is_counted_once_and_let_go_of() {
        let rt = Runtime::builder().workers(0).build().expect("it needs no threads");
        let all: Vec<_> = (0..100).map(|_| rt.mailbox::<u32>()).collect();
        let controls = || all.iter().map(|(address, _)| address.control());
        let counts = || controls().map(Ref::count).collect::<Vec<_>>();
        let before = counts();
        let one = controls().next().expect("a hundred");
        // Not of a worker: it is dropped at once.
        one.another().spare();
        assert_eq!(counts(), before);
        keep(true);
        for _ in 0..3 {
            let another = one.another();
            assert!(another.identity() == one.identity() && one.count() == before[0] + 1);
            another.spare();
            assert_eq!(one.count(), before[0] + 1);
        }
        // No more than there are places.
        controls().for_each(|control| control.another().spare());
        let kept = counts().iter().sum::<usize>() - before.iter().sum::<usize>();
        assert!((1..=PLACES).contains(&kept), "{kept}");
        // Two of one at the same time.
        let two = [one.another(), one.another()];
        two.into_iter().for_each(Ref::spare);
        rest();
        assert_eq!(counts(), before);
        keep(false);
    }
}
