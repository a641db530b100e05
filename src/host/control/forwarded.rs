//! The replies that processes have forwarded with [`Reply::forward`](crate::Reply::forward), for inspection.
//!
//! The wait record of a call contains the pid of the process that received the request. After a forward, another
//! process must answer the call: the *holder* of the reply. The table of this file contains the holder. Only a call
//! whose reply was forwarded has an entry in the table, so other calls need no memory here.
//!
//! # Ordering
//! - An entry begins without a holder. [`Forward::end`] sets the holder after the send. Before the holder is set, the
//!   caller's edge in the wait-for graph points to the process that forwards the reply. The forwarding process is
//!   running, so the edge belongs to no deadlock. If the send is refused, the entry does not change.
//! - The new holder may forward the reply again before the first forward has ended. Each forward takes its number
//!   before the send of its message. Therefore the later forward has the higher number, and the earlier forward then
//!   changes nothing.
//! - The reply slot of the call removes the entry: the watcher of this slot is an [`EndOfCall`]. The slot first wakes
//!   the caller, and then wakes the watcher. Therefore, if an inspection no longer finds the entry of an answered call,
//!   the inspection also sees that the caller no longer waits.
//!
//! # Cost
//! A forwarded call takes the lock of a table three times, and makes three small allocations. There are several tables,
//! so that the calls of different callers rarely contend for one lock. The tables contain only numbers, so no user code
//! runs under a lock. A thread that holds the lock of a table takes no other lock.

use std::collections::{BTreeMap, BTreeSet};
use std::task::{Wake, Waker};

use crate::host::control::waits::Wait;
use crate::platform::sync::tally::{AtomicUsize, Ordering};
use crate::platform::sync::{Arc, Mutex};

/// Identifies a call by two values: the word of the caller's pid, and the id of the call.
type Key = (u64, CallId);

/// Identifies a call among the calls that one process has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallId {
    /// Address of the cell that the caller and the callee share. After the end of the call, a later call can have a
    /// cell at the same address.
    Cell(usize),
    /// The number in the tag of a call that a hand-written process has yielded. A process never reuses this number.
    Yield(u64),
}

/// A reply that was forwarded, or whose first forward has not ended yet.
#[derive(Debug)]
struct Forwarded {
    /// Number of the forward that created the entry. The entry of a later call may have the same key, but has a
    /// different number.
    id: u64,
    /// Word of the pid of the process that received the request. The wait record of the caller contains the same word.
    /// The value is 0 if the process belongs to another runtime.
    from: u64,
    /// Word of the holder's pid. The value is 0 if the holder belongs to another runtime. `None` as long as no forward
    /// has ended.
    holder: Option<u64>,
    /// Number of the forward that set the holder.
    number: u64,
}

#[derive(Debug, Default)]
struct Forwards {
    /// The entries of one caller are consecutive.
    entries: BTreeMap<Key, Forwarded>,
    /// Number of forwards that have begun so far.
    count: u64,
}

/// Number of tables.
const TABLES: usize = 16;

/// The forwarded replies to the calls of all processes of a runtime.
#[derive(Debug, Default)]
pub(crate) struct ForwardedReplies([ForwardTable; TABLES]);

/// The forwarded replies to the calls of some callers.
#[derive(Debug, Default)]
struct ForwardTable {
    forwards: Mutex<Forwards>,
    /// Number of entries. A thread reads the number without the lock. No access to `len` needs a memory ordering.
    /// Assume that a process forwards a reply and then waits. If a reader has read the run state of the waiting
    /// process, the reader also sees the changed `len`.
    len: AtomicUsize,
}

impl ForwardTable {
    fn change<R>(&self, change: impl FnOnce(&mut Forwards) -> R) -> R {
        let mut forwards = self.forwards.lock();
        let result = change(&mut forwards);
        self.len.store(forwards.entries.len(), Ordering::Relaxed);
        result
    }
}

/// Result of [`ForwardedReplies::redirect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Redirected {
    /// If one of the replies is forwarded again, `redirect` returns a different number.
    pub(crate) number: u64,
    /// True if a forwarded reply may belong to an excluded record. For a reply that may belong to an excluded record,
    /// `redirect` changes no record.
    pub(crate) is_uncertain: bool,
}

impl ForwardedReplies {
    /// Returns the table for the calls of one process. `caller` is the word of the pid of this process.
    fn of(&self, caller: u64) -> &ForwardTable {
        // The low bits of a word are the index of the pid.
        &self.0[caller as usize % TABLES]
    }

    /// Begins a forward. `from` is the pid word of the process whose step this thread runs, or `None` if this thread
    /// runs no step. `holder` is the pid word of the process to which the reply is forwarded. `watch` registers a
    /// watcher of the reply slot, and returns true if the call is already over. Returns `None` if the table needs no
    /// entry for this forward.
    pub(crate) fn begin(
        self: &Arc<Self>,
        key: Key,
        from: Option<u64>,
        holder: u64,
        watch: impl FnOnce(&Waker) -> bool,
    ) -> Option<Forward> {
        let (number, known) = self.of(key.0).change(|forwards| {
            forwards.count += 1;
            let (number, known) = (forwards.count, forwards.entries.get(&key).map(|entry| entry.id));
            if let (None, Some(from)) = (known, from) {
                forwards.entries.insert(key, Forwarded { id: number, from, holder: None, number: 0 });
            }
            (number, known)
        });
        // An entry keeps its first watcher. Therefore a reply that is forwarded repeatedly has one watcher.
        let id = known.or(from.map(|_| number))?;
        if known.is_none() {
            let end = Arc::new(EndOfCall { replies: Arc::clone(self), key, id });
            if watch(&Waker::from(Arc::clone(&end))) {
                end.remove();
                return None;
            }
        }
        Some(Forward { replies: Arc::clone(self), key, id, number, holder })
    }

    /// Replaces the callee in the records of calls whose replies were forwarded. `caller` is the pid word of the
    /// process that has the records. `excluded` contains further records of this process, which this function does not
    /// change.
    ///
    /// The function ignores the calls that the process has yielded: see [`holder`](Self::holder). A record does not
    /// contain the address of the cell. If the process waits for several calls to one callee, this
    /// function changes the first record of these calls.
    pub(crate) fn redirect(&self, caller: u64, waits: &mut [Wait], excluded: &[Wait]) -> Redirected {
        let table = self.of(caller);
        let mut redirected = Redirected::default();
        if table.len.load(Ordering::Relaxed) == 0 {
            return redirected;
        }
        // Each list is in descending order, so `pop` returns the first record.
        let mut calls: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (at, wait) in waits.iter().enumerate().rev().filter(|(_, wait)| wait.is_call()) {
            calls.entry(wait.process).or_default().push(at);
        }
        let excluded: BTreeSet<u64> = excluded.iter().filter(|wait| wait.is_call()).map(|wait| wait.process).collect();
        let forwards = table.forwards.lock();
        let cells = (caller, CallId::Cell(0))..=(caller, CallId::Cell(usize::MAX));
        for entry in forwards.entries.range(cells).map(|(_, entry)| entry) {
            let (Some(holder), Some(records)) = (entry.holder, calls.get_mut(&entry.from)) else { continue };
            if excluded.contains(&entry.from) {
                redirected.is_uncertain = true;
            } else if let Some(at) = records.pop() {
                waits[at].process = holder;
                redirected.number = redirected.number.max(entry.number);
            }
        }
        redirected
    }
}

impl ForwardedReplies {
    /// Returns the pid word of the process that must answer a yielded call, if the reply was forwarded. `caller` is the
    /// pid word of the process that has made the call, and `number` is the number in the tag of the call.
    pub(crate) fn holder(&self, caller: u64, number: u64) -> Option<u64> {
        let table = self.of(caller);
        if table.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        table.forwards.lock().entries.get(&(caller, CallId::Yield(number)))?.holder
    }
}

/// A forward whose message is not sent yet.
#[derive(Debug)]
#[must_use]
pub(crate) struct Forward {
    replies: Arc<ForwardedReplies>,
    key: Key,
    id: u64,
    number: u64,
    holder: u64,
}

impl Forward {
    /// Records that the message was sent. Does nothing if the call is over, or if the reply was forwarded again.
    pub(crate) fn end(self) {
        self.replies.of(self.key.0).change(|forwards| {
            if let Some(entry) = forwards.entries.get_mut(&self.key)
                && entry.id == self.id
                && entry.number < self.number
            {
                (entry.holder, entry.number) = (Some(self.holder), self.number);
            }
        });
    }
}

/// Watcher of a reply slot. The slot wakes the watcher when the call is over.
struct EndOfCall {
    replies: Arc<ForwardedReplies>,
    key: Key,
    id: u64,
}

impl EndOfCall {
    fn remove(&self) {
        self.replies.of(self.key.0).change(|forwards| {
            if forwards.entries.get(&self.key).is_some_and(|entry| entry.id == self.id) {
                forwards.entries.remove(&self.key);
            }
        });
    }
}

impl Wake for EndOfCall {
    fn wake(self: Arc<Self>) {
        self.remove();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.remove();
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::host::control::waits::WaitKind;
    use std::time::Duration;

    use crate::{Address, BuiltinCommand, Context, Events, Exit, Next, Process, Reply, Runtime, StepOutput, Tag};

    type Request = (u64, Reply<()>);

    fn call(callee: u64) -> Wait {
        Wait { kind: WaitKind::Call, process: callee, line: None }
    }

    fn begin(replies: &Arc<ForwardedReplies>, call: usize, from: u64, holder: u64) -> Forward {
        replies.begin((1, CallId::Cell(call)), Some(from), holder, |_| false).expect("the call is not over")
    }

    /// Returns the number of entries in all tables. A reader without the locks sees the same number.
    fn entries(replies: &ForwardedReplies) -> usize {
        replies.0.iter().map(|table| table.len.load(Ordering::Relaxed)).sum()
    }

    /// Process 1 has made calls to these callees. Returns the callees after the redirection, and the number of the
    /// forward.
    fn redirected<const N: usize>(replies: &ForwardedReplies, callees: [u64; N]) -> ([u64; N], u64) {
        let mut waits = callees.map(call);
        let redirected = replies.redirect(1, &mut waits, &[]);
        assert!(!redirected.is_uncertain);
        (waits.map(|wait| wait.process), redirected.number)
    }

    #[test]
    fn each_entry_redirects_one_record() {
        let replies = Arc::new(ForwardedReplies::default());
        assert_eq!(redirected(&replies, [2]), ([2], 0));
        begin(&replies, 10, 2, 3).end();
        begin(&replies, 20, 2, 4).end();
        // Process 3 has received a request of process 1, and also holds a forwarded reply.
        begin(&replies, 30, 3, 5).end();
        assert_eq!(redirected(&replies, [2, 3, 2, 2]), ([3, 5, 4, 2], 3));
        assert_eq!(redirected(&replies, [9]), ([9], 0));
        let mut other = [call(2), Wait { kind: WaitKind::Room, ..call(2) }];
        assert_eq!((replies.redirect(2, &mut other, &[]).number, other[0].process), (0, 2));
        other[0].kind = WaitKind::Exit;
        assert_eq!((replies.redirect(1, &mut other, &[]).number, other.map(|wait| wait.process)), (0, [2, 2]));
        // A forwarded reply may belong to an excluded call to the same callee.
        let is_uncertain = |excluded| replies.redirect(1, &mut [call(2)], &[excluded]).is_uncertain;
        assert!(is_uncertain(call(2)) && !is_uncertain(call(9)));
        assert!(!replies.redirect(1, &mut [call(9)], &[call(2)]).is_uncertain);
    }

    #[test]
    fn a_forward_changes_nothing_before_its_end_and_nothing_after_the_end_of_a_later_forward() {
        let replies = Arc::new(ForwardedReplies::default());
        let first = begin(&replies, 10, 2, 3);
        assert_eq!(redirected(&replies, [2]), ([2], 0));
        let second = begin(&replies, 10, 3, 4);
        second.end();
        first.end();
        assert_eq!(redirected(&replies, [2]), ([4], 2));
        drop(begin(&replies, 10, 4, 5));
        assert_eq!(redirected(&replies, [2]), ([4], 2));
    }

    #[test]
    fn the_end_of_a_call_removes_only_the_entry_of_this_call() {
        let replies = Arc::new(ForwardedReplies::default());
        let mut watcher = None;
        let watch = |waker: &Waker| {
            watcher = Some(waker.clone());
            false
        };
        let late = replies.begin((1, CallId::Cell(10)), Some(2), 3, watch).unwrap();
        let again = replies.begin((1, CallId::Cell(10)), None, 4, |_| unreachable!("the entry has a watcher"));
        again.expect("the entry is known").end();
        watcher.as_ref().unwrap().wake_by_ref();
        assert_eq!((redirected(&replies, [2]), entries(&replies)), (([2], 0), 0));
        begin(&replies, 10, 2, 5).end();
        late.end();
        watcher.unwrap().wake();
        assert_eq!(redirected(&replies, [2]), ([5], 3));
        assert!(replies.begin((1, CallId::Cell(20)), Some(2), 3, |_| true).is_none());
        assert!(replies.begin((1, CallId::Cell(20)), None, 3, |_| unreachable!("there is no entry")).is_none());
        assert_eq!(entries(&replies), 1);
    }

    /// Answers, drops or forwards each request.
    async fn back(mut ctx: Context<Request>, next: Option<Address<Request>>) {
        loop {
            let Ok((chance, reply)) = ctx.receive().await else { return };
            match (chance % 4, &next) {
                (0, _) => drop(reply),
                (1 | 2, Some(next)) => _ = reply.forward(next, |reply| (chance / 4, reply)),
                _ => reply.send(()),
            }
        }
    }

    #[test]
    fn the_table_is_empty_after_all_calls() {
        let rt = Runtime::builder().workers(2).build().unwrap();
        let begun = Arc::new(AtomicUsize::new(0));
        let last = rt.spawn(async |ctx: Context<Request>| back(ctx, None).await);
        let next = last.address();
        let middle = rt.spawn(async move |ctx: Context<Request>| back(ctx, Some(next)).await);
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let (to, forwards, forwarded) = (middle.address(), last.address(), Arc::clone(&begun));
                rt.spawn(async move |mut ctx: Context<Request>| {
                    for _ in 0..200 {
                        let (chance, own) = (ctx.random(), ctx.address());
                        let mut call = Box::pin(own.call(|reply| (chance >> 8, reply)));
                        assert!(futures::poll!(&mut call).is_pending());
                        let (_, reply) = ctx.receive().await.unwrap();
                        let to = if chance % 2 == 0 { &to } else { &forwards };
                        reply.forward(to, |reply| (chance >> 10, reply)).unwrap();
                        forwarded.fetch_add(1, Ordering::Relaxed);
                        match chance % 3 {
                            0 => drop(call),
                            1 => {
                                ctx.yield_now().await;
                                drop(call);
                            }
                            _ => _ = call.await,
                        }
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| rt.block_on(client).unwrap());
        // The step that answers a call also removes the entry of the call.
        for process in [middle, last] {
            rt.cancel(process.pid(), "the clients are done", Duration::from_secs(3600)).unwrap();
            rt.block_on(process).unwrap();
        }
        let forwarded = &rt.host().shared().forwarded;
        let (mut count, mut kept) = (0, 0);
        for table in &forwarded.0 {
            let forwards = table.forwards.lock();
            count += forwards.count;
            kept += forwards.entries.len();
        }
        assert_eq!((begun.load(Ordering::Relaxed), kept, entries(forwarded)), (1_600, 0, 0));
        assert!(count >= 1_600);
    }

    /// A hand-written process has made three calls, and each reply was forwarded. The entry of a call disappears at the
    /// end of the call.
    #[test]
    fn the_entries_of_yielded_calls_disappear() {
        struct Calls(Address<Request>, Vec<Tag<BuiltinCommand<()>>>);
        impl Process for Calls {
            type Message = ();
            type Output = ();
            fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
                if self.1.is_empty() {
                    self.1 = (0..3).map(|number| out.call(&self.0, |reply| (number, reply))).collect();
                } else if events.count() != 0 {
                    out.cancel_yield(self.1[0]);
                    out.set_timeout(self.1[1], Duration::ZERO);
                }
                Ok(Next::Wait)
            }
        }
        let rt = Runtime::builder().workers(0).build().expect("no threads");
        let keeps = rt.spawn(async |mut ctx: Context<Request>| {
            let mut kept = Vec::new();
            while let Ok(request) = ctx.receive().await {
                kept.push(request);
            }
        });
        let (keeper, forwarded) = (keeps.address(), &rt.shared().forwarded);
        let front = rt.spawn(async move |mut ctx: Context<Request>| {
            while let Ok((number, reply)) = ctx.receive().await {
                reply.forward(&keeper, |reply| (number, reply)).expect("the keeper lives");
            }
        });
        let calls = rt.spawn_process(Calls(front.address(), Vec::new()));
        let settle = || {
            for _ in 0..8 {
                rt.block_on(rt.spawn(async |ctx: Context| ctx.yield_now().await)).expect("a normal exit");
            }
        };
        settle();
        assert_eq!(entries(forwarded), 3);
        let number = |call: u64| forwarded.holder(calls.pid().word(), call);
        assert_eq!(
            [0, 1, 2, 3].map(number),
            [Some(keeps.pid().word()), Some(keeps.pid().word()), Some(keeps.pid().word()), None]
        );
        calls.send(()).expect("it lives");
        settle();
        assert_eq!(entries(forwarded), 1);
        rt.kill(calls.pid()).expect("it lives");
        settle();
        assert_eq!(entries(forwarded), 0);
    }
}
