//! What a worker keeps of the pid table, for what begins and ends there. It goes with the worker, from thread to thread, and
//! is in reach of the thread while that works.

use crate::host::control::AnyControl;
use crate::host::registry::{Lane, Place};
use crate::host::{Host, registry as relay};
use crate::platform::sync::{ThreadCell, thread_local};
use crate::process::pid::Pid;
use crate::process::state::Ref;

type Kept = relay::Pocket<<Host as Lane>::Stock>;

/// That of one worker.
#[derive(Debug)]
pub(crate) struct Pocket {
    /// The runtime that it is of: where its jobs go, by address.
    home: usize,
    kept: Kept,
}

thread_local! {
    /// That of the worker that this thread is.
    static HERE: ThreadCell<Box<Pocket>> = const { ThreadCell::new() };
}

impl Pocket {
    pub(crate) fn new(home: usize) -> Box<Self> {
        Box::new(Self { home, kept: Kept::new() })
    }

    /// Puts one in reach of this thread, and what was so until now out of it.
    pub(crate) fn exchange(pocket: &mut Option<Box<Self>>) {
        HERE.with(|here| {
            let outer = here.take();
            if let Some(pocket) = std::mem::replace(pocket, outer) {
                here.put(pocket);
            }
        });
    }

    /// Keeps no host any more. What is returned is to be dropped where somebody's code may run.
    #[must_use]
    pub(crate) fn let_go(&mut self) -> impl Sized + use<> {
        self.kept.let_go()
    }
}

/// Out of reach while it is used: what ends meanwhile is somebody's code.
struct Taken(Option<Box<Pocket>>);

impl Drop for Taken {
    #[inline]
    fn drop(&mut self) {
        if let Some(pocket) = self.0.take() {
            HERE.with(|here| here.put(pocket));
        }
    }
}

impl Host {
    /// Has `make` build something under a pid of its own; `None` when all are in use.
    #[inline]
    pub(in crate::host) fn place<T>(&self, make: impl FnOnce(Place, Host) -> (Ref<dyn AnyControl>, T)) -> Option<T> {
        self.with_pocket(|pocket| self.shared().relay.insert(pocket, relay::own, self, make))
    }

    /// Has a pid name nothing; returns what it named.
    #[inline]
    pub(in crate::host) fn displace(&self, pid: Pid) -> Option<Ref<dyn AnyControl>> {
        self.with_pocket(|pocket| self.shared().relay.remove(pocket, relay::own, pid))
    }

    /// Does something with what this thread keeps, if it works for this runtime.
    #[inline]
    fn with_pocket<R>(&self, f: impl FnOnce(Option<&mut Kept>) -> R) -> R {
        let mut taken = Taken(HERE.with(ThreadCell::take));
        f(taken.0.as_mut().filter(|pocket| pocket.home == self.shared().home).map(|pocket| &mut pocket.kept))
    }
}
