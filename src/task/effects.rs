//! What is done around the steps of a process, whatever its code is. There is one copy of it: what knows the type of a body is
//! compiled for each body that a program has.

use std::cell::Cell;

use crate::context::time::reuse as spare;
use crate::host::control::{AnyControl, Head, flag};
use crate::host::dispatch::completion::Slip;
use crate::host::namespace::Realm;
use crate::host::refs::Home;
use crate::observe::{Counter, State};
use crate::platform::clock::Instant;
use crate::platform::sync::thread_local;
use crate::process::catch::{catch, drop_caught};
use crate::process::exit::{Exit, Reason};
use crate::process::state::inline_lane::Parcel;
use crate::process::state::{Ref, current as turn, inline_lane as express, successor};
use crate::process::yields::{Kept, Yield, Yields};

thread_local! {
    /// What commands are in on their way to their handlers; empty between turns.
    static BATCH: Cell<Vec<Yield>> = const { Cell::new(Vec::new()) };
}

/// A process in its turn.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    head: &'a Head,
    own: &'a Ref<dyn AnyControl>,
}

impl<'a> Around<'a> {
    #[inline]
    pub(super) fn new(head: &'a Head, own: &'a Ref<dyn AnyControl>) -> Self {
        Self { head, own }
    }

    fn home(&self) -> Home {
        Home::new(self.own.clone())
    }

    /// Tells the observer that the process runs, if this is where its turn begins. Returns how the process ends if it was
    /// killed.
    #[cold]
    pub(super) fn may_not_run(&self, flags: u16, begins: bool) -> Option<Exit> {
        if begins {
            self.head.enter(flags, State::Running);
            // A simulation always has an observer. It takes a timer that stays for a timer that is still to come, so each
            // sleep there sets and cancels its own timer.
            if self.head.host().shared().clock.is_virtual() {
                turn::keeps_no_timer();
            }
        }
        (flags & flag::KILLED != 0).then(|| self.head.fate())
    }

    /// Counts a step that is about to begin; when that was, if it is to be timed.
    #[cold]
    pub(super) fn begin_metered(&self) -> Result<Option<Instant>, Exit> {
        let Some(meter) = self.head.meter() else { return Ok(None) };
        turn::keeps_no_timer();
        Ok(meter.begin()?.then(|| self.head.host().now()))
    }

    /// Counts what a step took.
    #[cold]
    pub(super) fn end_metered(&self, begun: Instant) -> Result<(), Exit> {
        self.head.meter().map_or(Ok(()), |meter| meter.ran(self.head.host().now() - begun))
    }

    /// It waits for the first time: it has started, unless it says that itself.
    #[cold]
    pub(super) fn has_begun(&self) {
        if !self.head.has(flag::STARTED | flag::BY_HAND) {
            self.head.started();
        }
    }

    /// A step has panicked.
    #[cold]
    pub(super) fn unwound(&self, text: Reason) -> Exit {
        successor::forget();
        let exit = self.panicked(text);
        self.tell_orphans(Some(&exit));
        exit
    }

    /// Whoever waits for a reply that was dropped while its process unwound, or died, hears of that.
    #[inline]
    pub(super) fn tell_orphans(&self, exit: Option<&Exit>) {
        if let Some(orphans) = turn::take_orphans() {
            orphans.into_iter().for_each(|orphan| orphan(exit));
        }
    }

    /// What futures let go of and no other has taken over goes.
    #[inline]
    pub(super) fn leave(&self) {
        if turn::ends_keeping() {
            self.let_go();
        }
    }

    #[cold]
    fn let_go(&self) {
        spare::leave(self.own.identity(), self.head);
    }

    /// Keeps an answer that was not claimed in the turn in which it came, for whoever will.
    #[cold]
    pub(super) fn keep(&self) {
        if let Some(Parcel::Answer(number, answer)) = express::take() {
            let _ = self.head.yields().keep(number, Kept::Answered(answer)).map_err(drop_caught);
        }
    }

    /// Sends what the step yielded to its handlers, in order.
    #[inline]
    pub(super) fn dispatch(&self) {
        self.dispatch_as::<false>();
    }

    /// As [`dispatch`](Self::dispatch), after the last step: the process reads no answer any more.
    #[inline]
    pub(super) fn dispatch_last(&self) {
        if express::is_busy() || self.head.yields_if_any().is_some() {
            self.dispatch_unread();
        }
    }

    #[cold]
    fn dispatch_unread(&self) {
        // The table is made here if there is none: the handler of a command in the express lane may answer from another thread.
        self.head.yields().end_answers();
        self.dispatch_as::<true>();
    }

    /// With or without a process that reads the answers. That is a constant, so that the usual case has no branch for it.
    #[inline]
    fn dispatch_as<const LAST: bool>(&self) {
        if express::is_busy() {
            self.dispatch_first::<LAST>();
        }
        if let Some(yields) = self.head.yields_if_any() {
            self.dispatch_all::<LAST>(yields);
        }
    }

    /// Dispatches the command that waits in the express lane, if there is one.
    fn dispatch_first<const LAST: bool>(&self) -> bool {
        if let Some((number, place)) = express::command() {
            self.dispatch_shortly::<LAST>(number, place);
        } else if let Some((tag, command)) = express::take_left() {
            let yields = self.head.yields();
            let realm = self.head.host().realm();
            Self::dispatch_one(realm, yields, Yield { tag, command }, self.own.clone());
            yields.forget_overtaken();
        } else {
            return false;
        }
        true
    }

    fn dispatch_shortly<const LAST: bool>(&self, number: express::Number, place: u32) {
        let host = self.head.host();
        if host.realm().dispatcher().dispatch_shortly(number, place, &|| self.home()) {
            let counter = if LAST { Counter::Discarded } else { Counter::Completions };
            host.shared().metrics.add(counter, 1);
            if number == 0 || LAST {
                let _ = drop_caught(express::take());
            } else {
                turn::answered();
            }
        }
    }

    fn dispatch_all<const LAST: bool>(&self, yields: &Yields) {
        loop {
            if yields.has_pending() {
                self.dispatch_pending(yields);
            }
            // A handler may have polled a future of the process, which yields then: the turn still goes on.
            if !self.dispatch_first::<LAST>() {
                return;
            }
        }
    }

    fn dispatch_pending(&self, yields: &Yields) {
        // A handler that polls a process inside of this one's turn finds none, and makes its own.
        let mut batch = BATCH.try_with(Cell::take).unwrap_or_default();
        // Looked up once: those who answer on other cores write beside where that is said.
        let realm = self.head.host().realm();
        while yields.has_pending() {
            yields.take_pending(&mut batch);
            let homes = self.own.clones(batch.len() as u32);
            for (yielded, home) in batch.drain(..).zip(homes) {
                Self::dispatch_one(realm, yields, yielded, home);
            }
        }
        yields.forget_overtaken();
        let _ = BATCH.try_with(|kept| kept.set(batch));
    }

    #[inline(always)]
    fn dispatch_one(realm: &Realm, yields: &Yields, yielded: Yield, home: Ref<dyn AnyControl>) {
        let Yield { tag, command } = yielded;
        let mut command = Some(command);
        if !yields.is_overtaken(tag) {
            let _ = catch(|| realm.dispatcher().dispatch(&mut command, Slip::new(home, tag)));
        }
        // Overtaken, it is still here.
        let _ = drop_caught(command);
    }

    /// The exit of a process that panicked, told to whoever the policy says.
    pub(super) fn panicked(&self, text: Reason) -> Exit {
        let head = self.head;
        head.host().panicked(head.pid(), text.as_str());
        Exit::Panicked(text)
    }
}
