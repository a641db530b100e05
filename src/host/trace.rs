//! Execution traces of a runtime. A host records the events of its processes. A host also starts and ends traces.

pub(crate) mod flight;
#[cfg(feature = "console")]
mod live;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::host::Host;
use crate::host::control::{AnyControl, Head, flag};
use crate::host::inspection::{first_name, process};
use crate::host::registry::LocalId;
use crate::host::shared::Shared;
use crate::observe::ProcessState;
use crate::observe::crash::LastState;
use crate::observe::trace::handle::{Collector, Trace};
use crate::observe::trace::options::{Filter, TraceOptions};
use crate::observe::trace::reader::EntryReader;
use crate::observe::trace::session::Session;
use crate::observe::trace::timeline::{Alive, Gauges, Lookup};
use crate::observe::trace::{EventKind, TraceEvent};
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::event::Tag;
use crate::process::pid::Pid;
use crate::process::pid::text::Simulated;
use crate::process::state::Ref;
use crate::process::state::current::Current;

/// Functions that record the events of processes.
impl Host {
    fn record(&self, kind: EventKind, event: impl FnOnce() -> TraceEvent) -> bool {
        self.shared().metrics.record(kind, event, || self.now())
    }

    /// Records that a turn begins. Returns true if the events of this turn are recorded. `steps` is true if the turn
    /// begins with a step.
    pub(crate) fn trace_turn(&self, head: &Head, steps: bool) -> bool {
        self.record(EventKind::FirstOfTurn, || TraceEvent::State {
            process: word(head),
            to: ProcessState::Running,
            detail: steps,
        })
    }

    /// Records that a step begins. The caller must first check that the events of this turn are recorded.
    pub(crate) fn trace_step(&self, head: &Head) {
        self.record(EventKind::NeverDiscarded, || TraceEvent::Step { process: word(head) });
    }

    /// Records the new state of a process. The state `Running` is recorded by [`trace_turn`](Self::trace_turn) instead.
    pub(in crate::host) fn trace_state(&self, head: &Head, to: ProcessState) {
        let kind = match to {
            ProcessState::Ready if self.is_outside_or_traced() => EventKind::Wake,
            ProcessState::Suspended => EventKind::Wake,
            ProcessState::Blocked | ProcessState::Idle | ProcessState::Complete
                if Current::try_with(Current::is_traced).unwrap_or(false) =>
            {
                EventKind::NeverDiscarded
            }
            _ => return,
        };
        let emptied_at = match to {
            ProcessState::Idle => Current::try_with(Current::emptied_at).flatten(),
            _ => None,
        };
        let event = || TraceEvent::State { process: word(head), to, detail: emptied_at.is_some() };
        let now = || emptied_at.map_or_else(|| self.now(), Instant::from_ns);
        self.shared().metrics.record(kind, event, now);
    }

    /// Returns the pid of the process whose step this thread runs. Returns `None` if this process belongs to another
    /// runtime.
    pub(in crate::host) fn stepped(&self) -> Option<Pid> {
        let pid = Current::try_with(Current::pid).flatten()?;
        self.shared().pid_table.is_here(pid).then_some(pid)
    }

    /// Returns true if this thread is in a turn of this runtime, and if this turn was skipped in the present period:
    /// see [`Current::skipped_in`]. If the result is false, the turn may still be a skipped turn.
    #[inline]
    pub(in crate::host) fn is_skipped_turn(&self) -> bool {
        // The number of a period belongs to one runtime.
        Current::skipped_in().is_some_and(|period| self.shared().metrics.recorder().period().is(period))
    }

    /// Returns false in a turn that is skipped. A skipped turn records no messages, no answers and no wake-ups. If the
    /// traces select only some processes, this function always returns true. A turn of another runtime is not skipped.
    fn is_outside_or_traced(&self) -> bool {
        let is_traced = Current::try_with(Current::is_traced).unwrap_or(true);
        is_traced || self.stepped().is_none() || self.shared().metrics.recorder().is_partial()
    }

    /// Records that a mailbox has accepted a message. The caller may hold the lock of the mailbox.
    #[cold]
    pub(in crate::host) fn trace_send(&self, head: &Head) {
        if !self.is_skipped_turn() {
            self.trace_recorded_send(head);
        }
    }

    #[inline(never)]
    fn trace_recorded_send(&self, head: &Head) {
        if self.is_outside_or_traced() {
            let from = self.stepped().map_or(0, Pid::word);
            self.record(EventKind::InTurn, || TraceEvent::Sent { to: word(head), from });
        }
    }

    /// Records that a process receives a message. The caller must first check that the events of this turn are
    /// recorded.
    #[cold]
    pub(crate) fn trace_receive(&self, head: &Head) {
        // The reader of the mailbox may also be another process, or code outside the processes. In both cases, this
        // function records the owner of the mailbox.
        self.record(EventKind::InTurn, || TraceEvent::Received { process: word(head) });
    }

    /// Records that a process receives its messages in an order that differs from the order of the sends.
    #[cold]
    pub(crate) fn trace_reorder(&self, head: &Head) {
        self.record(EventKind::InTurn, || TraceEvent::Reordered { process: word(head) });
    }

    /// Records that the process of this turn yields a command.
    #[cold]
    pub(crate) fn trace_yield(&self, head: &Head, tag: Tag) {
        self.record(EventKind::InTurn, || TraceEvent::Yielded {
            process: word(head),
            tag: tag.strip_generation().number,
        });
    }

    /// Records the answer to a command of an observed process.
    #[cold]
    pub(crate) fn trace_answer(&self, head: &Head, tag: Tag) {
        if self.is_outside_or_traced() {
            self.record(EventKind::InTurn, || TraceEvent::Completed {
                process: word(head),
                tag: tag.strip_generation().number,
            });
        }
    }

    /// Records that the process of this turn lets other processes run, and is queued behind these processes.
    pub(in crate::host) fn trace_preempted(&self) {
        let is_traced = Current::try_with(Current::is_traced).unwrap_or(false);
        if let Some(pid) = self.stepped().filter(|_| is_traced) {
            self.record(EventKind::InTurn, || TraceEvent::Preempted { process: pid.word() });
        }
    }

    /// Records the spawn of a process. Marks the process, so that its events are recorded.
    #[cold]
    pub(crate) fn trace_spawn(&self, head: &Head, type_name: &'static str, entry: &str) {
        if self.shared().metrics.recorder().selects(word(head), type_name) {
            self.trace_selected_spawn(head, type_name, entry);
        }
    }

    /// The part of [`trace_spawn`](Self::trace_spawn) that runs only if a trace selects the process.
    fn trace_selected_spawn(&self, head: &Head, type_name: &'static str, entry: &str) {
        head.set(flag::OBSERVED);
        // There is a race. After the check of the caller, the last trace that selects the process may end. The end of
        // this trace may then clear the flag before this function sets the flag. `end_session` first removes the filter
        // of the trace, and then clears the flags. Therefore either the check below no longer finds the filter, or
        // `end_session` clears the flag after this function has set the flag.
        let (shared, recorder) = (self.shared(), self.shared().metrics.recorder());
        if !shared.observes_all() && !recorder.selects(word(head), type_name) {
            recorder.between_sessions(|| {
                if !recorder.selects(word(head), type_name) {
                    self.end_observation(head);
                }
            });
            return;
        }
        self.record(EventKind::InTurn, || {
            let label = recorder.label(head.first_name().as_deref(), type_name, entry);
            TraceEvent::Created { process: word(head), parent: head.parent().map_or(0, Pid::word), label }
        });
    }

    /// Records the exit of a process.
    #[cold]
    pub(in crate::host) fn trace_end(&self, head: &Head, last: &LastState) {
        let in_turn = Current::try_with(Current::is_traced).unwrap_or(false);
        // The trace of one process ends with this event.
        let is_last = in_turn || self.shared().metrics.recorder().ends_with(word(head));
        self.record(if is_last { EventKind::NeverDiscarded } else { EventKind::Wake }, || {
            let label = self.shared().metrics.recorder().label(last.name.as_deref(), last.type_name, "");
            TraceEvent::Ended { process: word(head), label }
        });
    }
}

#[inline]
fn word(head: &Head) -> u64 {
    head.place().into()
}

/// Access to the processes of a runtime, for the conversion of a trace.
struct Processes(Arc<Shared>);

impl Lookup for Processes {
    fn text(&self, process: u64) -> String {
        let table = &self.0.pid_table;
        // In a simulation, the pids of equal runs have the same text.
        let _pids = self.0.clock.is_virtual().then(|| Simulated::enter(table.incarnation()));
        table.pid(LocalId::from(process)).to_string()
    }

    fn label(&self, process: u64) -> Option<u32> {
        label(&self.0, process)
    }

    fn is_alive(&self, process: u64) -> bool {
        self.0.pid_table.with(self.0.pid_table.pid(LocalId::from(process)), |_| Ok(())).is_some()
    }

    fn gauges(&self) -> Gauges {
        let counters = self.0.metrics.counters();
        let timers = self.0.timers.len() as u64;
        Gauges { parks: counters.parks, steals: counters.steals_won, timers, ..(self.0.trace_gauges)() }
    }
}

/// Returns the label of a process, if the process exists.
fn label(shared: &Shared, number: u64) -> Option<u32> {
    let table = &shared.pid_table;
    let read = |control: &Ref<dyn AnyControl>| {
        let Some((head, type_name)) = process(control) else { return Ok(None) };
        let name = first_name(head)?;
        Ok(Some(shared.metrics.recorder().label(name.as_deref(), type_name, "")))
    };
    table.with(table.pid(LocalId::from(number)), read).flatten()
}

/// Functions that start and end traces.
impl Host {
    /// Starts an execution trace, and writes the trace to the file at this path. If the file exists, the trace replaces
    /// the contents of the file. [Perfetto](https://ui.perfetto.dev) opens the file. The page
    /// [`guide::tracing`](crate::guide::tracing) explains how to read the trace.
    ///
    /// The trace contains the processes of all hosts of the runtime. Each worker has a lane. The lane has one slice for
    /// each step. Each process has a track with its states. The trace ends when the handle is [finished](Trace::finish)
    /// or dropped. If the program ends earlier, the file is still readable. In this case, usually only the events of
    /// the last 20 ms are missing.
    ///
    /// A thread of the trace writes the file, so no worker waits for the file. Each worker stores its events in a
    /// buffer of 512 KiB. A worker records bursts of at most 4,096 events, and about 50,000 events per second over a
    /// longer time. If a worker produces more events, the worker skips the recording of whole turns. The trace contains
    /// the counts of skipped events. [`TraceSummary::lost`](crate::observe::TraceSummary::lost) is the sum of these
    /// counts. Several traces of a runtime can run at the same time.
    ///
    /// ```
    /// # use procession::{Context, Runtime};
    /// # let dir = std::env::temp_dir().join(format!("procession-doc-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir)?;
    /// # let path = dir.join("run.pftrace");
    /// let rt = Runtime::new()?;
    /// let trace = rt.start_trace(&path)?;
    /// rt.block_on(rt.spawn(async |ctx: Context| ctx.yield_now().await))?;
    /// let summary = trace.finish()?;
    /// assert!(summary.events > 0);
    /// # assert!(std::fs::metadata(&path)?.len() > 0);
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// Returns the error of the system if the system cannot create the file or cannot start the thread of the trace.
    pub fn start_trace(&self, path: impl AsRef<Path>) -> io::Result<Trace> {
        self.start_trace_to(File::create(path)?)
    }

    /// Starts an execution trace, as [`start_trace`](Self::start_trace) does, and writes the trace to `writer`. If the
    /// writer returns an error, the trace ends. For example, the reader of a socket may have disconnected.
    ///
    /// The thread of the trace calls the writer every 10 ms, with whole packets. If the writer is slow, the buffers of
    /// the workers become full, and the workers skip events.
    ///
    /// In a [`Simulation`](crate::Simulation), the trace has no thread. The thread of the simulation calls the writer.
    /// A simulation skips no turns. The times in the trace are virtual. However, a buffer contains at most 16,384
    /// events. If a step records more events, the trace loses the oldest events of this step.
    ///
    /// # Errors
    /// Returns the error of the system if the thread of the trace cannot be started.
    pub fn start_trace_to(&self, writer: impl Write + Send + 'static) -> io::Result<Trace> {
        self.start_trace_with(TraceOptions::new(), writer)
    }

    /// Starts an execution trace with these options, as [`start_trace_to`](Self::start_trace_to) does. The options
    /// select the processes of the trace, and limit the number of events in the trace.
    ///
    /// If the options select some processes, only the turns of these processes have the cost of recording. The trace
    /// contains the turns, states, commands and received messages of the selected processes. The trace does not contain
    /// the messages that the selected processes send to other processes, the searches of the workers, or the counter
    /// tracks. If several traces run, a turn has the cost of recording as soon as one of these traces selects the
    /// process of the turn.
    ///
    /// A trace without events writes an empty packet once per second. Therefore the trace ends soon after its reader
    /// has disconnected, even if the selected processes do not run.
    ///
    /// # Errors
    /// Returns the error of the system if the thread of the trace cannot be started.
    pub fn start_trace_with(&self, options: TraceOptions, writer: impl Write + Send + 'static) -> io::Result<Trace> {
        let lookup = Box::new(Processes(Arc::clone(self.shared())));
        // The workers record events as soon as the reader begins. Therefore this code first reads the time at which
        // the trace begins: the trace must not begin after its first event.
        let begun = self.now().ns();
        let session = Session::new(self.begin_reader(&options), &self.trace_title(), begun, lookup);
        let (host, filter) = (self.clone(), session.filter());
        let collector = Collector::new(session, Box::new(writer), Box::new(move || host.end_session(&filter)));
        let clock = self.shared().clock.clone();
        if !clock.is_virtual() {
            return Trace::with_thread(collector, clock);
        }
        let (trace, collect) = Trace::without_thread(collector, clock);
        self.shared().metrics.recorder().on_overflow(collect);
        Ok(trace)
    }

    /// Begins to record events. After this call, the events of all selected processes are recorded. This call marks the
    /// selected processes in the pid table, and each later spawn marks the spawned process. This function returns the
    /// reader of the events, and the processes that this function has marked.
    fn begin_reader(&self, options: &TraceOptions) -> (EntryReader, BTreeMap<u64, Alive>) {
        let table = &self.shared().pid_table;
        // A pid of another runtime selects no process. No process has the number `u64::MAX`.
        let number = |pid: Pid| if table.pid(LocalId::from(pid.word())) == pid { pid.word() } else { u64::MAX };
        let filter = options.filter(options.pid().map(number));
        let begin = |filter: &Filter| {
            let mut alive = BTreeMap::new();
            table.visit(|control| {
                let Some((head, type_name)) = process(control) else { return Ok(()) };
                if filter.selects(word(head), type_name) {
                    let name = first_name(head)?;
                    let label = self.shared().metrics.recorder().label(name.as_deref(), type_name, "");
                    head.set(flag::OBSERVED);
                    // The trace does not record the end of a turn that began before the trace.
                    let state = head.state().filter(|state| *state != ProcessState::Running);
                    let is_mailbox_empty = state == Some(ProcessState::Idle) && control.mailbox_figures().is_empty();
                    alive.insert(word(head), Alive { label, state, is_mailbox_empty });
                }
                Ok(())
            });
            alive
        };
        // A live trace does not keep the host alive.
        let host = self.downgrade();
        let find = Box::new(move |process| label(host.upgrade()?.shared(), process));
        EntryReader::new(&self.shared().metrics, (options, filter), self.now().ns(), find, begin)
    }

    /// Returns the name of the runtime in a trace.
    fn trace_title(&self) -> Cow<'static, str> {
        match self.name() {
            "" => Cow::Borrowed("procession"),
            name => Cow::Owned(format!("procession: {name}")),
        }
    }

    /// Ends a session. After the last session, a turn has the same cost as before the first session.
    fn end_session(&self, filter: &Filter) {
        let recorder = self.shared().metrics.recorder();
        recorder.end_session(filter, || {
            if !self.shared().observes_all() {
                self.shared().pid_table.visit(|control| {
                    let type_name = process(control).map_or("", |(_, type_name)| type_name);
                    if !recorder.selects(word(control.head()), type_name) {
                        self.end_observation(control.head());
                    }
                    Ok(())
                });
            }
        });
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::platform::sync::tally::{AtomicBool, AtomicU64, Ordering};
    use crate::platform::sync::thread;
    use crate::{Context, Exit, Runtime};

    async fn receives(mut ctx: Context<()>) -> Result<(), Exit> {
        ctx.receive().await
    }

    /// 9.3b: if a process exits before the first collection of a trace, the track of the process still has the name
    /// of the process.
    #[test]
    fn a_process_that_exits_at_the_start_of_a_trace_keeps_its_name() {
        let rt = Runtime::builder().workers(0).build().expect("a runtime");
        let mut idle: Vec<_> = (0..5_000).map(|_| rt.spawn(receives)).collect();
        idle.iter().for_each(|idle| rt.block_on(idle.started()).expect("it starts"));
        let lookup = Box::new(Processes(Arc::clone(rt.shared())));
        let mut session = Session::new(rt.begin_reader(&TraceOptions::new()), "test", rt.now().ns(), lookup);
        for process in idle.split_off(4_900) {
            process.send(()).expect("it lives");
            rt.block_on(process).expect("it returns");
        }
        (0..4).for_each(|_| session.collect(rt.now().ns()));
        session.finish(rt.now().ns());
        let count = |text: &[u8]| session.bytes().windows(text.len()).filter(|bytes| *bytes == text).count();
        // The name of a track is the pid and the label. The label of a process without a name is the type of the
        // process.
        let type_name = std::any::type_name_of_val(&receives);
        assert!(type_name.starts_with("procession::"));
        assert!(count(format!("> {type_name}").as_bytes()) >= 100);
        assert_eq!(count(b"> process"), count(b"> procession::"));
    }

    /// 9.3b: if the event of an exit is lost, the trace still ends the slice that shows the last state of the
    /// process.
    #[test]
    fn a_dead_process_whose_exit_was_lost_has_no_open_slice() {
        /// Claims that the process with this number is dead, and that all other processes are alive.
        struct Claims(Processes, u64, Arc<AtomicBool>);
        impl Lookup for Claims {
            fn text(&self, process: u64) -> String {
                self.0.text(process)
            }
            fn label(&self, process: u64) -> Option<u32> {
                self.0.label(process)
            }
            fn is_alive(&self, process: u64) -> bool {
                process != self.1 || !self.2.load(Ordering::Relaxed)
            }
            fn gauges(&self) -> Gauges {
                self.0.gauges()
            }
        }
        let rt = Runtime::builder().workers(0).build().expect("a runtime");
        let claimed = rt.spawn(async |mut ctx: Context<()>| {
            ctx.receive().await?;
            ctx.receive().await
        });
        rt.block_on(claimed.started()).expect("it starts");
        let is_dead = Arc::new(AtomicBool::new(false));
        let lookup = Claims(Processes(Arc::clone(rt.shared())), claimed.pid().word(), Arc::clone(&is_dead));
        // A trace that selects only some processes writes no counters.
        let (reader, mut alive) = rt.begin_reader(&TraceOptions::new().type_contains(""));
        alive.extend(
            (0..4_090).map(|number| (u64::MAX - number, Alive { label: 0, state: None, is_mailbox_empty: false })),
        );
        let mut session = Session::new((reader, alive), "test", rt.now().ns(), Box::new(lookup));
        // If the time between two collections were long, a collection would write a packet even without events.
        let mut now = None;
        let mut collect = || {
            let now = now.get_or_insert_with(|| rt.now().ns());
            *now += 1;
            session.clear();
            session.collect(*now);
            session.bytes().len()
        };
        claimed.send(()).expect("it lives");
        let others: Vec<_> = (0..20).map(|_| rt.spawn(receives)).collect();
        others.iter().for_each(|other| rt.block_on(other.started()).expect("it starts"));
        collect();
        is_dead.store(true, Ordering::Relaxed);
        assert_ne!(collect(), 0, "the events of the processes");
        assert_eq!(collect(), 0);
        assert_ne!(collect(), 0, "the end of the slice of the dead process");
        assert_eq!(collect(), 0);
    }

    /// 9.2h, 9.3e: while a worker skips turns without a complete check, the worker still suspends a process. After the
    /// reader has raised the limit, the worker records turns again.
    #[test]
    fn a_worker_that_skips_turns_sees_suspensions_and_a_raised_limit() {
        let rt = Runtime::builder().workers(1).build().expect("a runtime");
        let [skipped, traced] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let (skips, traces) = (Arc::clone(&skipped), Arc::clone(&traced));
        let busy = rt.spawn(async move |ctx: Context| {
            loop {
                skips.fetch_add(Current::skipped_in().is_some().into(), Ordering::Relaxed);
                traces.fetch_add(Current::with(Current::is_traced).into(), Ordering::Relaxed);
                ctx.yield_now().await;
            }
        });
        let lookup = Box::new(Processes(Arc::clone(rt.shared())));
        let mut session = Session::new(rt.begin_reader(&TraceOptions::new()), "test", rt.now().ns(), lookup);
        // Waits for a condition. The condition must be true after 100,000 further skipped turns.
        let wait = |is_met: &dyn Fn() -> bool| {
            let before = skipped.load(Ordering::Relaxed);
            loop {
                let turns = skipped.load(Ordering::Relaxed) - before;
                if is_met() {
                    return;
                }
                assert!(turns < 100_000, "the worker skips all turns");
                thread::yield_now();
            }
        };
        let skips_some = || {
            let before = skipped.load(Ordering::Relaxed);
            while skipped.load(Ordering::Relaxed) < before + 10 {
                thread::yield_now();
            }
        };
        skips_some();
        rt.suspend(busy.pid()).expect("it lives");
        let state = || rt.process_details(busy.pid()).expect("it lives").info.state;
        wait(&|| state() == Some(ProcessState::Suspended));
        rt.resume(busy.pid()).expect("it lives");
        skips_some();
        let before = traced.load(Ordering::Relaxed);
        session.collect(rt.now().ns() + 100_000_000);
        wait(&|| traced.load(Ordering::Relaxed) > before);
    }

    /// 9.3e: if a spawn races with the end of the last trace, the spawned process is not observed.
    #[test]
    fn a_spawn_during_the_end_of_the_last_trace_leaves_no_observed_process() {
        let rt = Runtime::builder().workers(0).build().expect("a runtime");
        let [one, two] = [(); 2].map(|()| rt.spawn(receives));
        let head_of = |pid| rt.shared().pid_table.get(pid).expect("it lives");
        let (one, two) = (head_of(one.pid()), head_of(two.pid()));
        // The spawn has found a trace, and this trace has ended before the spawn continues.
        rt.trace_selected_spawn(one.head(), "", "");
        assert!(!one.head().is_observed());
        let (reader, _) = rt.begin_reader(&TraceOptions::new().process(two.head().pid()));
        rt.trace_selected_spawn(two.head(), "", "");
        assert!(two.head().is_observed());
        rt.end_session(&reader.filter());
        assert!(!two.head().is_observed());
    }
}
