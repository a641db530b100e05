//! This test counts the clock readings of the steps while an inspection runs.

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use std::time::Duration;

    use futures::executor::block_on;

    use crate::observe::{ProcessColumn, ProcessQuery, RuntimeMetrics, Sampling, is_sampled_turn};
    use crate::platform::clock::readings;
    use crate::platform::sync::tally::{AtomicBool, AtomicUsize, Ordering::SeqCst};
    use crate::platform::sync::{Arc, thread};
    use crate::{Address, Command, Context, Exit, Host, Reply, Runtime};

    /// Number of rounds of the script.
    const ROUNDS: usize = 300;
    /// In one of `WAIT_EVERY` rounds, the script waits until a complete inspection has begun and ended.
    const WAIT_EVERY: usize = 10;

    struct Double(u64);
    impl Command for Double {
        type Reply = u64;
    }

    enum Request {
        Note(u64),
        Ask(Reply<u64>),
    }

    async fn server(mut ctx: Context<Request>) -> Result<(), Exit> {
        let mut noted = 0;
        loop {
            match ctx.receive().await? {
                Request::Note(number) => noted += number,
                Request::Ask(reply) => reply.send(noted),
            }
        }
    }

    /// Inspects the runtime once, with each kind of inspection that returns immediately.
    fn inspect(host: &Host) {
        for column in [ProcessColumn::MailboxLen, ProcessColumn::WaitingSince, ProcessColumn::Steps] {
            for row in host.processes(&ProcessQuery::new().descending(column)) {
                let _ = host.process_details(row.pid);
            }
        }
        assert!(host.wait_for_graph().deadlocks.is_empty());
        let _ = (host.explain(), host.metrics(), host.last_exits(), host.names("", 10), host.groups("", 10));
    }

    /// Number of complete inspections. If the inspecting thread panics, the drop of this value ends the wait of the
    /// script.
    struct Inspections(Arc<AtomicUsize>);

    impl Drop for Inspections {
        fn drop(&mut self) {
            self.0.store(usize::MAX, SeqCst);
        }
    }

    /// Returns when the present turn is not a measured turn. At this time, all clock readings of the earlier measured
    /// turns have been counted.
    async fn leave_measured_turn(ctx: &Context<u64>) {
        ctx.yield_now().await;
        while is_sampled_turn() {
            ctx.yield_now().await;
        }
    }

    /// One process performs the script on the only worker. The worker never parks during the script. Returns the number
    /// of clock readings of this worker, and the metrics of the script. In some rounds, the script waits until
    /// `inspections` changes.
    async fn script(
        ctx: Context<u64>,
        to: Address<Request>,
        inspections: Option<Arc<AtomicUsize>>,
    ) -> (u64, RuntimeMetrics) {
        // Each script begins with the same sampling state, and therefore the same turns are measured. No message is
        // measured, because the runtime may discard the start time of a measured message. The locks that the inspection
        // holds determine whether the runtime discards a start time.
        let _ = Sampling::WITHOUT_MESSAGES.replace();
        leave_measured_turn(&ctx).await;
        let (before, begun) = (ctx.host().metrics(), readings());
        for round in 0..ROUNDS {
            if let Some(inspections) = inspections.as_ref().filter(|_| round % WAIT_EVERY == 0) {
                let seen = inspections.load(SeqCst);
                while inspections.load(SeqCst) < seen.saturating_add(2) {
                    thread::yield_now();
                }
            }
            for number in 0..4 {
                to.send(Request::Note(number)).expect("the server lives");
            }
            assert_eq!(ctx.call(&to, Request::Ask).await.ok(), Some(6 * (round as u64 + 1)));
            assert_eq!(ctx.perform(Double(4)).await.ok(), Some(8));
            ctx.spawn(async |_: Context| ()).await.expect("the child returns");
            ctx.yield_now().await;
        }
        leave_measured_turn(&ctx).await;
        let counted = readings() - begun;
        (counted, ctx.host().metrics() - before)
    }

    /// Runs the script. During the script, another thread inspects the runtime in a loop if `is_inspected` is true.
    fn run(is_inspected: bool) -> (u64, RuntimeMetrics) {
        let rt = Runtime::builder().workers(1).long_step_threshold(Duration::MAX).handle(|c: Double| c.0 * 2);
        let rt = rt.build().expect("a runtime");
        let server = rt.process().name("server").spawn(server).expect("the name is free");
        let to = server.address();
        let (inspections, stop) = (Arc::new(AtomicUsize::new(0)), AtomicBool::new(false));
        let counter = is_inspected.then(|| Arc::clone(&inspections));
        thread::scope(|scope| {
            if is_inspected {
                let inspections = Inspections(inspections);
                scope.spawn(|| {
                    let inspections = inspections;
                    let mut sampler = rt.sample_run_times();
                    while !stop.load(SeqCst) {
                        inspect(rt.host());
                        let _ = sampler.take(10);
                        inspections.0.fetch_add(1, SeqCst);
                    }
                });
            }
            let script = rt.spawn(async move |ctx: Context<u64>| Ok::<_, Exit>(script(ctx, to, counter).await));
            let result = block_on(script);
            stop.store(true, SeqCst);
            result.expect("the script returns")
        })
    }

    /// 9.2c: each clock reading of a step begins or ends a measured duration. This statement is also true while another
    /// thread inspects the runtime, and the inspection does not change the number of clock readings. Therefore no step
    /// reads the clock for the inspection.
    #[test]
    fn no_step_reads_the_clock_for_an_inspection() {
        let mut first = None;
        for is_inspected in [false, true, false, true, true] {
            let (counted, metrics) = run(is_inspected);
            assert_eq!(counted, *first.get_or_insert(counted), "inspected: {is_inspected}: {metrics}");
            let times = &metrics.distributions;
            // For a measured turn, the runtime reads the clock three times: when the process becomes ready, when the
            // turn starts, and when the turn ends. A measured call or command reads the clock twice.
            let turns = times.scheduling_delay.count() + 2 * times.step_time.count();
            let commands: u64 = times.command_time.iter().map(|one| one.time.count()).sum();
            let pairs = times.call_time.count() + commands;
            assert_eq!(counted, turns + 2 * pairs, "inspected: {is_inspected}: {metrics}");
            // The script makes 1,800 steps, and a few further steps to leave a measured turn. About one turn in 64 is
            // measured.
            let steps = metrics.counters.steps - 6 * ROUNDS as u64;
            assert!((1..10).contains(&steps), "{metrics}");
            assert!((10..=60).contains(&times.step_time.count()) && (5..=40).contains(&pairs), "{metrics}");
        }
    }
}
