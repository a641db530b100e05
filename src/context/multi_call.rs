//! Calls to many processes. A [`MultiCall`] makes one [`Call`] for each process, and collects the answers. The model is
//! `gen_server:multi_call` of Erlang/OTP. Unlike this model, a multi-call can also end at the first reply, or when a
//! given number of processes have replied.
//!
//! A multi-call stores its calls in a `FuturesUnordered`, which polls only the calls that were woken. Therefore a
//! multi-call to n processes polls its calls about n times in total, and not n² times. This file adds the sends, the
//! end of the multi-call, and the time limit.

use std::any::type_name;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::StreamExt;
use futures::future::FusedFuture;
use futures::stream::FuturesUnordered;

use crate::context::address::Address;
use crate::context::call::{Call, Reply, sent_elsewhere};
use crate::context::names::Name;
use crate::context::names::groups::{Group, Sealed as GroupName};
use crate::context::time::Sleep;
use crate::host::Host;
use crate::host::control::{Control, flag};
use crate::host::refs::ProcessRef;
use crate::host::registry::target::{Destination, DestinationRef, Route};
use crate::observe::Counter;
use crate::platform::sync::Arc;
use crate::process::failure::{CallError, NoQuorum};
use crate::process::pid::Pid;
use crate::process::state::Ref;
use crate::process::state::budget::BudgetPause;

/// One of the called processes.
pub(crate) struct Callee<N> {
    pid: Pid,
    to: Destination<N>,
}

impl<N> Callee<N> {
    fn at(control: &Ref<Control<N>>) -> Self {
        Self { pid: control.head.pid(), to: Destination::Here(control.clone()) }
    }
}

pub(crate) trait Expand<N> {
    /// Returns the processes that a multi-call must call, in the order of the calls.
    fn callees(&self, host: &Host) -> Vec<Callee<N>>;
}

/// Processes that a [`multi_call`](Host::multi_call) calls. All these processes have the message type `N`. These types
/// implement the trait:
/// - a [`Group`]: the members of the group, in the order in which they joined;
/// - a [`Target`](crate::Target) that is a [`Pool`](crate::Pool): the members of the pool. If the pool has no member,
///   or has not [started](crate::JoinHandle::started) yet, the multi-call sends one request to the pool itself, and one
///   member answers. A request to a member does not wait in the queue of the pool, and overtakes the messages in this
///   queue. A full member refuses the request;
/// - any other [`Target`](crate::Target), for example an address: the process of the target. If the target is a name
///   and no process has this name, the multi-call calls no process. A text is the name of a process, and not the name
///   of a group;
/// - a slice or a `Vec` of addresses: the processes of the addresses, in order. In a slice or a `Vec`, the address of a
///   pool stands for one process, and not for the members of the pool. To call a group whose name is a text, pass
///   `&host.members(name)`.
#[expect(private_bounds, reason = "only the crate lists the processes")]
pub trait Callees<N>: Expand<N> {}

impl<N: Send + 'static> Callees<N> for Group<N> {}
impl<N: Send + 'static> Expand<N> for Group<N> {
    fn callees(&self, host: &Host) -> Vec<Callee<N>> {
        expand_addresses(&host.members(GroupName::text(self)))
    }
}

impl<N: Send + 'static> Callees<N> for &[Address<N>] {}
impl<N: Send + 'static> Expand<N> for &[Address<N>] {
    fn callees(&self, _: &Host) -> Vec<Callee<N>> {
        expand_addresses(self)
    }
}

impl<N: Send + 'static> Callees<N> for &Vec<Address<N>> {}
impl<N: Send + 'static> Expand<N> for &Vec<Address<N>> {
    fn callees(&self, _: &Host) -> Vec<Callee<N>> {
        expand_addresses(self)
    }
}

impl<N: Send + 'static, const LEN: usize> Callees<N> for &[Address<N>; LEN] {}
impl<N: Send + 'static, const LEN: usize> Expand<N> for &[Address<N>; LEN] {
    fn callees(&self, _: &Host) -> Vec<Callee<N>> {
        expand_addresses(*self)
    }
}

fn expand_addresses<N: Send + 'static>(addresses: &[Address<N>]) -> Vec<Callee<N>> {
    addresses.iter().map(|address| Callee::at(address.control())).collect()
}

macro_rules! one_target {
    ($($target:ty),*) => {$(
        impl<N: Send + 'static> Callees<N> for $target {}
        impl<N: Send + 'static> Expand<N> for $target {
            fn callees(&self, host: &Host) -> Vec<Callee<N>> {
                expand_destination(&self.destination(), host)
            }
        }
    )*};
}
one_target!(Pid, &str, Name<N>, &Address<N>);

/// Returns the process of a target. If the target is a pool, returns the members of the pool.
pub(crate) fn expand_destination<N: Send + 'static>(
    destination: &DestinationRef<'_, N>,
    host: &Host,
) -> Vec<Callee<N>> {
    let control = match *destination {
        DestinationRef::Here(control) => return members(control),
        DestinationRef::Pid(pid) => match host.shared().pid_table.get(pid) {
            Some(control) => control,
            // The process has exited, or the process runs on a remote node.
            None => return vec![Callee { pid, to: Destination::Pid(pid) }],
        },
        DestinationRef::Name(name) => match host.namespace().names().get(name) {
            Some(control) => control,
            None => return Vec::new(),
        },
    };
    let pid = control.head().pid();
    match control.downcast() {
        Some(control) => members(&control),
        // The message type of the process is not `N`. The send will return an error that names the expected type.
        None => vec![Callee { pid, to: Destination::Pid(pid) }],
    }
}

/// Returns the members of a pool. If the process is not a pool, returns the process itself. If the pool has not started
/// or has no member, also returns the process itself.
fn members<N: Send + 'static>(control: &Ref<Control<N>>) -> Vec<Callee<N>> {
    // A child with `keep_mailbox` has a kept mailbox. This mailbox also has a router, but belongs to no process. A
    // request to this mailbox waits there while no instance runs, and does not overtake the waiting messages.
    // While a pool starts, the list of its members is not complete yet.
    let is_started = !control.head.is_outside() && control.head.has(flag::STARTED);
    let pool = if is_started { control.inbox.router() } else { None };
    let targets = pool.map(|router| router.targets().downcast::<Arc<[Ref<Control<N>>]>>());
    match targets {
        Some(Ok(members)) if !members.is_empty() => members.iter().map(Callee::at).collect(),
        _ => vec![Callee::at(control)],
    }
}

/// A call whose request was not sent yet.
struct Unsent<N, T> {
    /// Position of the called process in the list of answers.
    position: usize,
    to: Destination<N>,
    call: Call<T>,
    request: N,
}

/// A sent call, and the position of the called process in the list of answers.
struct SentCall<T> {
    position: usize,
    call: Call<T>,
}

impl<T> Future for SentCall<T> {
    type Output = (usize, Result<T, CallError>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let position = self.position;
        Pin::new(&mut self.call).poll(cx).map(|answer| (position, answer))
    }
}

/// The answer of one process. The answer is `None` while the call is in flight.
type Answer<T> = (Pid, Option<Result<T, CallError>>);

/// Output of a multi-call that waits for all answers. The output contains the pid and the answer of each called
/// process, in the order of the calls.
type All<T> = Vec<(Pid, Result<T, CallError>)>;

/// Number of replies that a multi-call waits for.
#[derive(Clone, Copy)]
enum Needed {
    /// The multi-call waits until each process has replied or failed.
    All,
    Replies(usize),
}

/// Future of a call to several processes: see [`Host::multi_call`]. By default, the future resolves when each process
/// has replied or failed. The output is then a list of all called processes in the order of the calls. The list
/// contains the reply or the [`CallError`] of each process.
///
/// The parameter `N` is the message type of the called processes. `T` is the type of a reply, and `O` is the output
/// type of the future.
///
/// # Cancel safety
/// If the future is dropped, the replies are lost, and the calls in flight are cancelled. Each reply that arrives later
/// is dropped and counted as late. A request that was already sent stays in the mailbox of its receiver. A program can
/// also await a `&mut` reference to this future.
#[must_use = "futures do nothing unless polled"]
pub struct MultiCall<N, T, O = All<T>> {
    host: Host,
    unsent: Vec<Unsent<N, T>>,
    calls: FuturesUnordered<SentCall<T>>,
    answers: Vec<Answer<T>>,
    replied: usize,
    failed: usize,
    needed: Needed,
    limit: Option<Box<Sleep>>,
    undelivered: Vec<(Pid, N)>,
    pause: BudgetPause,
    /// Function that converts the answers to the output. The field is `None` after the multi-call has ended.
    output: Option<fn(Vec<Answer<T>>, usize) -> O>,
}

impl<N, T, O> fmt::Debug for MultiCall<N, T, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MultiCall<{}, {}>({})", type_name::<N>(), type_name::<T>(), self.answers.len())
    }
}

fn all_answers<T>(answers: Vec<Answer<T>>, _: usize) -> All<T> {
    answers.into_iter().filter_map(|(pid, answer)| Some((pid, answer?))).collect()
}

fn quorum_of<T: Send + 'static>(answers: Vec<Answer<T>>, needed: usize) -> Result<Vec<(Pid, T)>, CallError> {
    let (mut replies, mut failures) = (Vec::new(), Vec::new());
    for (pid, answer) in answers {
        match answer {
            Some(Ok(reply)) => replies.push((pid, reply)),
            Some(Err(error)) => failures.push((pid, error)),
            None => {}
        }
    }
    if replies.len() >= needed {
        return Ok(replies);
    }
    Err(CallError::NoQuorum(NoQuorum::new(needed, replies, failures)))
}

fn first_reply<T: Send + 'static>(answers: Vec<Answer<T>>, needed: usize) -> Result<(Pid, T), CallError> {
    quorum_of(answers, needed).map(|mut replies| replies.swap_remove(0))
}

impl<N: Send + 'static, T: Send + 'static> MultiCall<N, T> {
    #[track_caller]
    pub(crate) fn new(
        host: &Host,
        calling_process: Option<&ProcessRef>,
        to: impl Callees<N>,
        mut request: impl FnMut(Reply<T>) -> N,
    ) -> Self {
        let callees = to.callees(host);
        let answers = callees.iter().map(|callee| (callee.pid, None)).collect();
        let caller = || calling_process.map(|process| ProcessRef::new((**process).clone()));
        let line = Location::caller();
        let unsent = |(position, Callee { to, .. })| {
            let (call, request) = sent_elsewhere(host, caller(), (host.word_of(&to.destination()), line), &mut request);
            Unsent { position, to, call, request }
        };
        Self {
            host: host.clone(),
            unsent: callees.into_iter().enumerate().map(unsent).collect(),
            calls: FuturesUnordered::new(),
            answers,
            replied: 0,
            failed: 0,
            needed: Needed::All,
            limit: None,
            undelivered: Vec::new(),
            pause: BudgetPause::default(),
            output: Some(all_answers),
        }
    }

    /// Ends the multi-call at the first reply. The output is this reply and the pid of the process that has replied. If
    /// a process fails, the multi-call continues as long as at least one other process can reply. When the multi-call
    /// ends, the remaining calls are cancelled. Later replies to the cancelled calls are counted as late.
    ///
    /// # Errors
    /// The future fails with [`CallError::NoQuorum`] as soon as all called processes have failed. If there is no
    /// process to call, the future fails without waiting.
    pub fn first(self) -> MultiCall<N, T, Result<(Pid, T), CallError>> {
        self.ending(1, first_reply)
    }

    /// Ends the multi-call when `needed` processes have replied. The output contains `needed` replies and the pids of
    /// the processes that sent these replies, in the order of the calls. If the multi-call was polled before this
    /// method is called, the output may contain more replies. The remaining calls are cancelled. Later replies to the
    /// cancelled calls are counted as late.
    ///
    /// # Errors
    /// The future fails with [`CallError::NoQuorum`] as soon as `needed` replies are no longer possible. The error
    /// contains the answers that have arrived. If fewer than `needed` processes are called, the future fails without
    /// waiting and sends no request.
    pub fn quorum(self, needed: usize) -> MultiCall<N, T, Result<Vec<(Pid, T)>, CallError>> {
        self.ending(needed, quorum_of)
    }

    fn ending<O>(self, needed: usize, output: fn(Vec<Answer<T>>, usize) -> O) -> MultiCall<N, T, O> {
        let Self { host, unsent, calls, answers, replied, failed, limit, undelivered, pause, output: present, .. } =
            self;
        let (needed, output) = (Needed::Replies(needed), present.map(|_| output));
        MultiCall { host, unsent, calls, answers, replied, failed, needed, limit, undelivered, pause, output }
    }
}

impl<N: Send + 'static, T: Send + 'static, O> MultiCall<N, T, O> {
    /// Sets one time limit for all calls. The time limit starts when this method is called. At the time limit, the
    /// multi-call ends. The answer of each process that has not replied is then [`CallError::TimedOut`]. A second time
    /// limit replaces the first time limit. Default: no time limit.
    pub fn timeout(mut self, time: Duration) -> Self {
        if self.output.is_some() {
            self.limit = Some(Box::new(self.host.limit(time)));
            Pin::new(&mut self.calls).iter_pin_mut().for_each(|sent| sent.get_mut().call.record_limit());
        }
        self
    }

    /// Sends the requests immediately. Without `start`, the first poll of the future sends the requests.
    pub fn start(mut self) -> Self {
        if self.output.is_some() {
            self.send();
            self.update_counts(false);
        }
        self
    }

    /// Takes the requests that were not delivered, and the pids of their receivers. A request is not delivered if the
    /// receiver refuses the request. The answer of the receiver is then [`CallError::Send`] with the reason of the
    /// refusal. A request is also not delivered if the multi-call ends before the request is sent.
    ///
    /// To use this method, await a `&mut` reference to the future:
    /// ```
    /// # use procession::{CallError, Context, MailboxCapacity, Reply, Runtime, SendErrorKind};
    /// # let rt = Runtime::builder().workers(0).build()?;
    /// # let body = async |_: Context<(String, Reply<()>)>| std::future::pending::<()>().await;
    /// let full = rt.process().mailbox_capacity(MailboxCapacity::Reject(1)).spawn(body)?;
    /// let _first = full.call(|reply: Reply<()>| (String::from("first"), reply)).start();
    /// let mut call = rt.multi_call(&full, |reply| (String::from("request"), reply));
    /// let answers: Vec<(_, Result<(), _>)> = rt.block_on(&mut call);
    /// assert_eq!(answers, [(full.pid(), Err(CallError::Send(SendErrorKind::Full)))]);
    /// let (pid, (text, _)) = call.take_undelivered().remove(0);
    /// assert_eq!((pid, &*text), (full.pid(), "request"));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn take_undelivered(&mut self) -> Vec<(Pid, N)> {
        std::mem::take(&mut self.undelivered)
    }

    /// Returns true if the answers that have arrived already determine the output of the multi-call.
    fn is_decided(&self) -> bool {
        let called = self.answers.len();
        match self.needed {
            Needed::All => self.replied + self.failed == called,
            Needed::Replies(needed) => self.replied >= needed || called - self.failed < needed,
        }
    }

    /// Sends the requests that were not sent yet. If the output is decided before the first send, sends no request.
    fn send(&mut self) {
        if self.is_decided() {
            return;
        }
        for Unsent { position, to, call, request } in std::mem::take(&mut self.unsent) {
            match self.host.try_send_by(&to.destination(), request) {
                Ok(()) => self.calls.push(SentCall { position, call }),
                Err((refusal, request)) => {
                    self.host.shared().metrics.add(Counter::Refused, 1);
                    // The refused request contains a `Reply`. The call is closed first, because this `Reply` must not
                    // answer the call.
                    drop(call);
                    self.undelivered.push((self.answers[position].0, request));
                    self.answer(position, Err(CallError::Send(refusal)));
                }
            }
        }
    }

    fn answer(&mut self, position: usize, answer: Result<T, CallError>) {
        *(if answer.is_ok() { &mut self.replied } else { &mut self.failed }) += 1;
        self.answers[position].1 = Some(answer);
    }

    /// Ends the multi-call: cancels the calls in flight, and returns the output.
    fn end(&mut self, output: fn(Vec<Answer<T>>, usize) -> O) -> O {
        self.output = None;
        self.limit = None;
        self.calls.clear();
        for Unsent { position, call, request, .. } in std::mem::take(&mut self.unsent) {
            drop(call);
            self.undelivered.push((self.answers[position].0, request));
        }
        let needed = match self.needed {
            Needed::All => self.answers.len(),
            Needed::Replies(needed) => needed,
        };
        output(std::mem::take(&mut self.answers), needed)
    }

    /// Checks whether the calling process must count the calls, and updates the count: see [`Call::update_count`]. All
    /// calls have the same caller, so either all calls are counted or no call is counted. Therefore, if the count of
    /// the first call is correct, no call needs an update.
    fn update_counts(&mut self, is_polled: bool) {
        let (is_limited, mut calls) = (self.limit.is_some(), Pin::new(&mut self.calls).iter_pin_mut());
        while calls.next().is_some_and(|sent| sent.get_mut().call.update_count(is_polled, is_limited)) {}
    }
}

/// The future contains messages and replies, but never pins a message or a reply.
impl<N, T, O> Unpin for MultiCall<N, T, O> {}

impl<N: Send + 'static, T: Send + 'static, O> Future for MultiCall<N, T, O> {
    type Output = O;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O> {
        let this = &mut *self;
        let Some(output) = this.output else { return Poll::Pending };
        this.send();
        if this.is_decided() {
            // The multi-call does not wait. Without the budget, a body that repeats a multi-call without a wait would
            // never release its worker.
            ready!(this.pause.spend(cx));
        }
        this.update_counts(true);
        while !this.is_decided() {
            match this.calls.poll_next_unpin(cx) {
                Poll::Ready(Some((position, answer))) => this.answer(position, answer),
                Poll::Ready(None) => unreachable!("without a call in flight, the outcome is decided"),
                Poll::Pending => {
                    let Some(limit) = this.limit.as_deref_mut() else { return Poll::Pending };
                    ready!(Pin::new(limit).poll(cx));
                    let late = |(_, answer): &mut Answer<T>| _ = answer.get_or_insert(Err(CallError::TimedOut));
                    this.answers.iter_mut().for_each(late);
                    break;
                }
            }
        }
        Poll::Ready(this.end(output))
    }
}

impl<N: Send + 'static, T: Send + 'static, O> FusedFuture for MultiCall<N, T, O> {
    fn is_terminated(&self) -> bool {
        self.output.is_none()
    }
}

impl Host {
    /// Calls several processes at the same time. Returns a future that resolves to the answers of all processes. Use
    /// [`first`](MultiCall::first) to wait only for the first reply. Use [`quorum`](MultiCall::quorum) to wait for a
    /// given number of replies.
    ///
    /// This method immediately lists the processes, and calls `request` once for each process. The first poll of the
    /// future, or [`MultiCall::start`], sends the requests.
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::{CallError, Context, Exit, Group, Reply, Runtime};
    ///
    /// const REPLICAS: Group<Reply<u64>> = Group::new("replicas");
    ///
    /// async fn replica(mut ctx: Context<Reply<u64>>) -> Result<(), Exit> {
    ///     ctx.join_group(REPLICAS);
    ///     ctx.mark_started();
    ///     loop {
    ///         ctx.receive().await?.send(7);
    ///     }
    /// }
    /// let rt = Runtime::new()?;
    /// for _ in 0..3 {
    ///     let replica = rt.process().manual_start().spawn(replica)?;
    ///     rt.block_on(replica.started())?;
    /// }
    /// let second = Duration::from_secs(1);
    /// let answers = rt.block_on(rt.multi_call(REPLICAS, |reply| reply).timeout(second));
    /// assert!(answers.len() == 3 && answers.iter().all(|(_, answer)| *answer == Ok(7)));
    /// let replies = rt.block_on(rt.multi_call(REPLICAS, |reply| reply).quorum(2).timeout(second))?;
    /// assert_eq!(replies.len(), 2);
    /// let (_, reply) = rt.block_on(rt.multi_call(REPLICAS, |reply| reply).first())?;
    /// assert_eq!(reply, 7);
    /// let missed = rt.block_on(rt.multi_call(REPLICAS, |reply| reply).quorum(4)).unwrap_err();
    /// assert!(matches!(missed, CallError::NoQuorum(missed) if missed.needed() == 4));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[track_caller]
    pub fn multi_call<N: Send + 'static, T: Send + 'static>(
        &self,
        to: impl Callees<N>,
        request: impl FnMut(Reply<T>) -> N,
    ) -> MultiCall<N, T> {
        MultiCall::new(self, None, to, request)
    }
}
