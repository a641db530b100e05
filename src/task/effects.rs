//! What is done around the steps of a process, whatever its code is. There is one copy of it: what knows the type of a body is
//! compiled for each body that a program has.

use crate::context::time::reuse;
use crate::host::control::{AnyControl, Head, flag};
use crate::host::dispatch::completion::UntypedCompletion;
use crate::host::namespace::Namespace;
use crate::host::refs::ProcessRef;
use crate::observe::{Counter, State};
use crate::platform::clock::Instant;
use crate::process::catch::{catch, drop_caught};
use crate::process::exit::{Exit, Reason};
use crate::process::state::Ref;
use crate::process::state::current::Current;
use crate::process::state::inline_command::{Inlined, Number};
use crate::process::yields::{Batch, InlineOutcome, Yield, Yields};

/// A process in its turn.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    current: &'a Current,
    head: &'a Head,
    own: &'a Ref<dyn AnyControl>,
}

impl<'a> Around<'a> {
    #[inline]
    pub(super) fn new(current: &'a Current, head: &'a Head, own: &'a Ref<dyn AnyControl>) -> Self {
        Self { current, head, own }
    }

    fn home(&self) -> ProcessRef {
        ProcessRef::new(self.own.clone())
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
                self.current.forbid_kept_timers();
            }
        }
        (flags & flag::KILLED != 0).then(|| self.head.fate())
    }

    /// Counts a step that is about to begin; when that was, if it is to be timed.
    #[cold]
    pub(super) fn begin_metered(&self) -> Result<Option<Instant>, Exit> {
        let Some(meter) = self.head.meter() else { return Ok(None) };
        self.current.forbid_kept_timers();
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
        self.current.upgrade.forget();
        let exit = self.panicked(text);
        self.tell_callers(Some(&exit));
        exit
    }

    /// Whoever waits for a reply that was dropped while its process unwound, or died, hears of that.
    #[inline]
    pub(super) fn tell_callers(&self, exit: Option<&Exit>) {
        if let Some(replies) = self.current.take_dropped_replies() {
            replies.into_iter().for_each(|tell| tell(exit));
        }
    }

    /// What futures let go of and no other has taken over goes.
    #[inline]
    pub(super) fn leave(&self) {
        if self.current.end_kept_timer() {
            self.let_go();
        }
    }

    #[cold]
    fn let_go(&self) {
        reuse::cancel(self.current, self.own.identity(), self.head);
    }

    /// Keeps an answer that was not claimed in the turn in which it came, for whoever will.
    #[cold]
    pub(super) fn keep(&self) {
        if let Some(Inlined::Answer(number, answer)) = self.current.inline.take() {
            let _ = self.head.yields().keep(number, InlineOutcome::Answered(answer)).map_err(drop_caught);
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
        if self.current.inline.is_busy() || self.head.yields_if_any().is_some() {
            self.dispatch_unread();
        }
    }

    #[cold]
    fn dispatch_unread(&self) {
        // The table is made here if there is none: the handler of an inline command may answer from another thread.
        self.head.yields().end_answers();
        self.dispatch_as::<true>();
    }

    /// With or without a process that reads the answers. That is a constant, so that the usual case has no branch for it.
    #[inline]
    fn dispatch_as<const LAST: bool>(&self) {
        if self.current.inline.is_busy() {
            self.dispatch_first::<LAST>();
        }
        if let Some(yields) = self.head.yields_if_any() {
            self.dispatch_all::<LAST>(yields);
        }
    }

    /// Dispatches the inline command of this step, if there is one.
    fn dispatch_first<const LAST: bool>(&self) -> bool {
        if let Some((number, handler)) = self.current.inline.offered() {
            self.dispatch_inline::<LAST>(number, handler);
        } else if let Some((tag, command)) = self.current.inline.take_tagged() {
            let yields = self.head.yields();
            let namespace = self.head.host().namespace();
            Self::dispatch_one(namespace, yields, Yield { tag, command }, self.own.clone());
            yields.forget_overtaken();
        } else {
            return false;
        }
        true
    }

    fn dispatch_inline<const LAST: bool>(&self, number: Number, handler: u32) {
        let host = self.head.host();
        if host.namespace().dispatcher().dispatch_inline(self.current, number, handler, &|| self.home()) {
            let counter = if LAST { Counter::Discarded } else { Counter::Completions };
            host.shared().metrics.add(counter, 1);
            if number == 0 || LAST {
                let _ = drop_caught(self.current.inline.take());
            } else {
                self.current.note_answered();
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
        // Looked up once: those who answer on other cores write beside where that is said.
        let namespace = self.head.host().namespace();
        let mut batch = Batch::default();
        while yields.has_pending() {
            let count = yields.take_pending(&mut batch);
            let homes = self.own.clones(count as u32);
            for (yielded, home) in batch.iter_mut().map_while(Option::take).zip(homes) {
                Self::dispatch_one(namespace, yields, yielded, home);
            }
        }
        yields.forget_overtaken();
    }

    #[inline(always)]
    fn dispatch_one(namespace: &Namespace, yields: &Yields, yielded: Yield, home: Ref<dyn AnyControl>) {
        let Yield { tag, command } = yielded;
        let mut command = Some(command);
        if !yields.is_overtaken(tag) {
            let _ = catch(|| namespace.dispatcher().dispatch(&mut command, UntypedCompletion::new(home, tag)));
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
