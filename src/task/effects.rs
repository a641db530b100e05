//! The actions before and after each step of a process: the check of limits, the dispatch of commands, and the
//! notification of callers. These functions do not depend on the type of the process. Therefore, the compiler compiles
//! these functions once, and not once for each process type.

use crate::context::time::reuse;
use crate::host::control::{AnyControl, Head, flag};
use crate::host::namespace::Namespace;
use crate::host::refs::SleeperRef;
use crate::observe::{Counter, ProcessState, is_sampled_turn};
use crate::platform::clock::Instant;
use crate::process::catch::{catch, drop_caught};
use crate::process::error::InitError;
use crate::process::event::Tag;
use crate::process::exit::{Exit, Reason};
use crate::process::state::Ref;
use crate::process::state::current::{Current, StepEnd};
use crate::process::state::inline_command::{Inlined, Number};
use crate::process::yields::{Batch, Yield, Yields};

/// Decision whether a turn runs a step of its process.
pub(super) enum StepPermit {
    Step,
    /// The process was killed. The turn ends the process with this exit.
    Exit(Exit),
    /// The process is suspended. The turn ends, and the process waits.
    Suspended,
}

/// The process whose turn runs on this thread.
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

    #[inline]
    pub(super) fn own(&self) -> &'a Ref<dyn AnyControl> {
        self.own
    }

    /// Counts a step that has ended. The thread that runs the process calls this function.
    #[inline]
    pub(super) fn count_step(&self) {
        self.head.count_step(|| self.own.count_batch());
    }

    #[inline]
    pub(super) fn head(&self) -> &'a Head {
        self.head
    }

    /// Returns the address of the control block, which identifies the process.
    #[inline]
    pub(super) fn address(&self) -> usize {
        self.own.identity()
    }

    /// Returns the name of the type of the process's code.
    pub(super) fn type_name(&self) -> &'static str {
        self.own.type_name().unwrap_or_default()
    }

    /// Returns the number of strong references to the process.
    #[inline]
    pub(super) fn references(&self) -> usize {
        self.own.count()
    }

    /// Initializes the machine of the process. If the initialization fails or panics, returns the exit.
    pub(super) fn init(&self, init: &mut dyn FnMut() -> Result<(), InitError>) -> Result<(), Exit> {
        match catch(init) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Exit::from(error)),
            Err(text) => Err(self.panicked(text)),
        }
    }

    /// Records that an observed process waits.
    #[cold]
    pub(super) fn enter_observed_wait(&self, flags: u16, state: ProcessState) {
        if state == ProcessState::Idle && self.current.is_traced() {
            // The clock is read before the check. Therefore, a message that arrives after the check has a later time
            // than the event of the trace.
            let now = self.head.host().now().ns();
            self.current.note_emptied(self.own.mailbox_figures().is_empty().then_some(now));
        }
        self.head.enter_wait(flags, state);
        // An observer may have yielded a command for the process.
        self.dispatch();
    }

    /// A turn calls this function before its first step, if the process was killed or is observed. The caller passes
    /// the flags of the process in `flags`. Returns true if the trace buffer of the worker is full, no observer sees
    /// this turn, the process was not killed, and no process of the runtime is suspended. In this case, the function
    /// records the state of the process and clears `OBSERVED` in `flags`, and [`permit_step`](Self::permit_step) need
    /// not be called. The rest of the turn then has the cost of a turn that is not observed.
    ///
    /// For most turns of a busy worker with a trace, this function returns true after a [short
    /// check](crate::process::state::skipped_turn). Therefore, this function is separate from `permit_step`, and its
    /// compiled code calls another function only as its last action. A function with other calls pushes more registers
    /// to the stack (benchmark `ping-pong` with a trace).
    #[cold]
    #[inline(never)]
    pub(super) fn skips_turn(&self, flags: &mut u16) -> bool {
        let recorder = self.head.host().shared().metrics.recorder();
        if *flags & flag::KILLED == 0 && recorder.discards_again(self.current.last_skipped()) {
            self.current.note_skipped();
            return self.skip_turn(flags);
        }
        self.checks_and_skips_turn(flags)
    }

    /// The part of [`skips_turn`](Self::skips_turn) that does the complete check.
    #[inline(never)]
    fn checks_and_skips_turn(&self, flags: &mut u16) -> bool {
        let shared = self.head.host().shared();
        let is_killed = *flags & flag::KILLED != 0;
        let may_skip = || !is_killed && shared.observer.is_none() && shared.suspended.is_empty();
        let Some(skipped) = shared.metrics.discards_turn(may_skip) else { return false };
        // If a trace selects only some processes, the messages of these processes are recorded, even if this function
        // skips the turn of the sender. Therefore, in this case, the turn is not noted as skipped.
        if !shared.metrics.recorder().is_partial() {
            self.current.replace_last_skipped(skipped);
            self.current.note_skipped();
        }
        self.skip_turn(flags)
    }

    #[inline]
    fn skip_turn(&self, flags: &mut u16) -> bool {
        *flags &= !flag::OBSERVED;
        self.head.enter_unseen(ProcessState::Running);
        true
    }

    /// A turn calls this function before each step, if the process was killed or is observed. The caller passes the
    /// flags of the process in `flags`. Returns whether the turn runs a step of the process. If the turn begins with
    /// this call, the function reports to the observer that the process runs. If the process is suspended, records this state
    /// instead. The caller sets `is_fresh` to true before the first step of the process.
    ///
    /// If neither an observer nor a trace sees this turn, clears `OBSERVED` in `flags`.
    #[cold]
    #[inline(never)]
    pub(super) fn permit_step(&self, flags: &mut u16, begins: bool, is_fresh: bool) -> StepPermit {
        let (is_killed, host) = (*flags & flag::KILLED != 0, self.head.host());
        if !is_killed && host.shared().suspended.contains(|| self.head.pid()) {
            self.head.enter_wait(*flags, ProcessState::Suspended);
            return StepPermit::Suspended;
        }
        if begins {
            if *flags & flag::OBSERVED != 0 && host.trace_turn(self.head, !is_fresh && !is_killed) {
                self.current.note_traced();
            }
            if host.shared().observer.is_none() && !self.current.is_traced() {
                *flags &= !flag::OBSERVED;
            }
            self.head.enter(*flags, ProcessState::Running);
            // A simulation always has an observer. If a sleep kept its timer for a later sleep, the simulation would
            // count this timer as a future event. Therefore each sleep in a simulation sets and cancels a separate
            // timer.
            if host.shared().clock.is_virtual() {
                self.current.forbid_kept_timers();
            }
        } else if !is_killed {
            self.begins_step(flags);
        }
        if is_killed { StepPermit::Exit(self.head.exit_when_killed()) } else { StepPermit::Step }
    }

    /// A turn of an observed process calls this function before a step, if the turn has already run `init` or another
    /// step.
    #[cold]
    pub(super) fn begins_step(&self, flags: &mut u16) {
        let host = self.head.host();
        if self.current.is_traced() {
            host.trace_step(self.head);
        } else if host.shared().observer.is_none() {
            *flags &= !flag::OBSERVED;
        }
    }

    /// Checks the limits of the process before a step. If the time of steps is limited, returns the start time of the
    /// step.
    #[cold]
    pub(super) fn begin_metered(&self) -> Result<Option<Instant>, Exit> {
        let Some(meter) = self.head.meter() else { return Ok(None) };
        self.current.forbid_kept_timers();
        Ok(meter.begin(|| self.own.steps())?.then(|| self.head.host().now()))
    }

    /// Adds the time of a step to the running time of the process. Returns an error if the running time exceeds its
    /// limit.
    #[cold]
    pub(super) fn end_metered(&self, begun: Instant) -> Result<(), Exit> {
        self.head.meter().map_or(Ok(()), |meter| meter.ran(self.head.host().now() - begun))
    }

    /// Marks the process as started. This function is called after the first step. A process with `manual_start` marks
    /// itself as started.
    #[cold]
    pub(super) fn has_begun(&self) {
        if !self.head.has(flag::STARTED | flag::MANUAL_START) {
            self.head.started();
        }
    }

    /// Returns the exit for a step that panicked. If the step has dropped replies, these replies stay stored until step
    /// 7 of the exit. The reason is that a panic in `close` or in a destructor may replace this exit.
    #[cold]
    pub(super) fn unwound(&self, text: Reason) -> Exit {
        self.current.upgrade.forget();
        self.panicked(text)
    }

    /// Handles the events of the step that has just run. The step is not counted yet. Notifies the callers whose
    /// replies were dropped during the step or the exit of the process.
    #[inline]
    pub(super) fn end_step(&self, exit: Option<&Exit>) {
        if let Some(events) = self.current.take_step_end() {
            self.handle_step_end(events, exit);
        }
    }

    #[cold]
    fn handle_step_end(&self, StepEnd { checks_yield, dropped_replies }: StepEnd, exit: Option<&Exit>) {
        if checks_yield {
            self.own.record_yield_check();
        }
        dropped_replies.into_iter().for_each(|tell| tell(exit));
    }

    /// A sleep in this step may have kept a timer and a reference to the process for a later sleep. This function
    /// cancels this timer and drops this reference.
    #[inline]
    pub(super) fn leave(&self) {
        if self.current.end_keeping() {
            self.let_go();
        }
    }

    #[cold]
    fn let_go(&self) {
        reuse::cancel(self.current, self.own.identity(), self.head);
        SleeperRef::drop_kept(self.current, self.own.identity());
    }

    /// Moves the inline answer to the table of yields, because no future has read this answer in the turn.
    #[cold]
    pub(super) fn keep_answer(&self) {
        if let Some(Inlined::Answer(number, _, answer)) = self.current.inline.take() {
            let _ = self.head.yields().admit_answer(Tag::inline(number), answer).map_err(drop_caught);
        }
    }

    /// Passes the commands of the step to their handlers, in the order in which the step yielded the commands.
    #[inline(always)]
    pub(super) fn dispatch(&self) {
        if let Some(yields) = self.head.yields_if_any() {
            self.dispatch_all::<false>(yields);
        }
    }

    /// Passes the commands of the last step to their handlers. After the last step, the process reads no answer. If
    /// this function is called during the exit, the commands come from `close` and from the destructors of the state.
    #[inline]
    pub(super) fn dispatch_last(&self) {
        if let Some(yields) = self.head.yields_if_any() {
            self.dispatch_unread(yields);
        }
    }

    #[cold]
    fn dispatch_unread(&self, yields: &Yields) {
        yields.end_answers();
        self.dispatch_all::<true>(yields);
    }

    /// Dispatches the inline command and the commands in the table. `LAST` says whether the process has run its last
    /// step. `LAST` is a constant, so that the usual case needs no branch.
    ///
    /// A command takes the inline path only if no command waits in the table. Therefore, the inline command is always
    /// the first command. The loop checks for an inline command again, because a handler may poll a future of this
    /// process, and this future may yield another command.
    #[inline]
    fn dispatch_all<const LAST: bool>(&self, yields: &Yields) {
        loop {
            if let Some((number, handler)) = self.current.inline.offered() {
                self.dispatch_inline::<LAST>(number, handler);
            } else if yields.has_pending() {
                self.dispatch_pending(yields);
            } else {
                return;
            }
        }
    }

    /// Records the answer to the inline command of an observed process. This function reads the number of the command
    /// and the index of the handler from memory. If these values were parameters, each turn would keep them in
    /// registers while the handler runs, although most turns are not recorded.
    #[cold]
    #[inline(never)]
    fn observe_inline_answer(&self) {
        let (host, inline) = (self.head.host(), &self.current.inline);
        if host.logs_messages() {
            host.log_answer(self.head, host.namespace().dispatcher().command_name(inline.handler()));
        }
        if self.current.is_traced() {
            host.trace_answer(self.head, Tag::inline(inline.number()));
        }
    }

    fn dispatch_inline<const LAST: bool>(&self, number: Number, handler: u32) {
        let host = self.head.host();
        if is_sampled_turn() {
            return self.dispatch_measured::<LAST>(number, handler);
        }
        if host.namespace().dispatcher().dispatch_inline(self.current, number, handler, &|| self.own.clone()) {
            let counter = if LAST { Counter::Discarded } else { Counter::Completions };
            host.shared().metrics.add(counter, 1);
            if LAST {
                let _ = drop_caught(self.current.inline.take());
            } else {
                if self.head.is_observed() {
                    self.observe_inline_answer();
                }
                self.current.note_answered();
            }
        }
    }

    /// Does the same as [`dispatch_inline`](Self::dispatch_inline), and measures the time of the command if the handler
    /// answers.
    #[cold]
    #[inline(never)]
    fn dispatch_measured<const LAST: bool>(&self, number: Number, handler: u32) {
        let host = self.head.host();
        let (dispatcher, since) = (host.namespace().dispatcher(), host.sampled_now());
        if dispatcher.dispatch_inline(self.current, number, handler, &|| self.own.clone()) {
            if LAST {
                host.shared().metrics.add(Counter::Discarded, 1);
                let _ = drop_caught(self.current.inline.take());
            } else {
                host.shared().metrics.add(Counter::Completions, 1);
                host.sample_command(dispatcher.command_name(handler), since);
                if self.head.is_observed() {
                    self.observe_inline_answer();
                }
                self.current.note_answered();
            }
        }
    }

    /// Dispatches a batch of the commands in the table.
    #[inline(never)]
    fn dispatch_pending(&self, yields: &Yields) {
        // The pointer to the namespace is read once, before the loop. When handlers on other cores answer, they write
        // to the cache line of this pointer. Therefore each further read could miss the cache.
        let namespace = self.head.host().namespace();
        let mut batch = Batch::default();
        let count = yields.take_pending(&mut batch);
        let processes = self.own.clones(count as u32);
        for (yielded, process) in batch.iter_mut().map_while(Option::take).zip(processes) {
            Self::dispatch_one(namespace, yields, yielded, process);
        }
        yields.forget_overtaken();
    }

    #[inline(always)]
    fn dispatch_one(
        namespace: &Namespace<dyn AnyControl>,
        yields: &Yields,
        yielded: Yield,
        process: Ref<dyn AnyControl>,
    ) {
        let Yield { tag, command } = yielded;
        let mut command = Some(command);
        if !yields.is_overtaken(tag) {
            let _ = catch(|| namespace.dispatcher().dispatch(&mut command, process, tag));
        }
        // If the command was cancelled before its dispatch, the command is still in `command` and is dropped.
        let _ = drop_caught(command);
    }

    /// Reports a panic of the process according to the policy for panics, and returns the exit.
    pub(super) fn panicked(&self, text: Reason) -> Exit {
        let head = self.head;
        head.host().panicked(head.pid(), text.as_str());
        Exit::Panicked(text)
    }
}
