//! What drives one process: takes what came, steps, dispatches what was yielded, and steps again while answers come in the
//! same turn; and its end.

use std::any::Any;
use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::clock::Instant;
use crate::control::{Control, Head, flag};
use crate::counted::Ref;
use crate::express::{self, Parcel};
use crate::home;
use crate::me::Me;
use crate::observe::{Counter, State};
use crate::process::exit::{Exit, Reason};
use crate::process::panic::{catch, drop_caught};
use crate::process::payload::Payload;
use crate::process::refusal::InitError;
use crate::process::{AnyProcess, Mail, Next, Process, Start, StepOutput, successor, turn};
use crate::realm::Realm;
use crate::sync::{planted, thread_local};
use crate::time::spare;
use crate::yields::{Kept, Yield, Yields};

/// How often a process is stepped again in one turn because its yields were answered at once.
const ANSWERED_IN_TURN: u32 = 32;

thread_local! {
    /// What commands are in on their way to their handlers; empty between turns.
    static BATCH: Cell<Vec<Yield>> = const { Cell::new(Vec::new()) };
}

/// What a task drives: a hand-written process, or an async body, which has to stay in its place.
pub(crate) trait Machine {
    type Message: Send + 'static;
    type Output: Send + 'static;

    /// Whether it keeps a reference to its own process.
    const KEEPS_ITSELF: bool;

    /// Gets that reference, before its first turn.
    fn keep(self: Pin<&mut Self>, own: Ref<Control<Self::Message>>);

    /// Whether it waits for its first turn.
    fn is_fresh(&self) -> bool;

    /// Its beginning; if that fails, there is no `close`.
    fn init(self: Pin<&mut Self>, me: &Me<Self::Message>) -> Result<(), InitError>;

    fn step(self: Pin<&mut Self>, me: &Me<Self::Message>, cx: &mut Context<'_>) -> Result<Next<Self::Output>, Exit>;

    fn close(self: Pin<&mut Self>);

    /// Drops the user's state, and hands out mail that was taken and not read.
    fn clear(self: Pin<&mut Self>, me: &Me<Self::Message>);

    /// Whether it was cleared.
    fn is_gone(&self) -> bool;

    /// It has ended like this, and those who know of it by tables have been told.
    #[inline]
    fn ended(self: Pin<&mut Self>, _: &Me<Self::Message>, _: &Exit) {}
}

/// A machine that is too large to lie in its process: that stays as long as anybody has its address, the machine until its
/// end.
impl<X: Machine> Machine for Pin<Box<X>> {
    type Message = X::Message;
    type Output = X::Output;

    const KEEPS_ITSELF: bool = X::KEEPS_ITSELF;

    fn keep(self: Pin<&mut Self>, own: Ref<Control<X::Message>>) {
        self.get_mut().as_mut().keep(own);
    }

    fn is_fresh(&self) -> bool {
        (**self).is_fresh()
    }

    fn init(self: Pin<&mut Self>, me: &Me<X::Message>) -> Result<(), InitError> {
        self.get_mut().as_mut().init(me)
    }

    fn step(self: Pin<&mut Self>, me: &Me<X::Message>, cx: &mut Context<'_>) -> Result<Next<X::Output>, Exit> {
        self.get_mut().as_mut().step(me, cx)
    }

    fn close(self: Pin<&mut Self>) {
        self.get_mut().as_mut().close();
    }

    fn clear(self: Pin<&mut Self>, me: &Me<X::Message>) {
        self.get_mut().as_mut().clear(me);
    }

    fn is_gone(&self) -> bool {
        (**self).is_gone()
    }

    fn ended(self: Pin<&mut Self>, me: &Me<X::Message>, exit: &Exit) {
        self.get_mut().as_mut().ended(me, exit);
    }
}

/// What a process is started with.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) method: std::borrow::Cow<'static, str>,
    pub(crate) input: Option<Payload>,
}

pin_project! {
    /// A hand-written process.
    pub(crate) struct Raw<P: Process> {
        life: Life<P>,
    }
}

/// Where a hand-written process is in its life.
enum Life<P: Process> {
    /// The entry is boxed and dropped at the first turn: most processes have no method and no input.
    Fresh {
        process: P,
        entry: Option<Box<Entry>>,
    },
    Alive {
        process: P,
        mail: Mail<P::Message>,
    },
    /// It was replaced.
    Upgraded(Box<Upgraded<P>>),
    /// Its `init` failed, or panicked.
    Failed {
        process: P,
    },
    Gone,
}

/// What a process was replaced by: in a box, for most are not, and would carry the room for it.
struct Upgraded<P: Process> {
    process: AnyProcess<P::Message, P::Output>,
    mail: Mail<P::Message>,
}

impl<P: Process> Life<P> {
    /// What was in its place is dropped; its mail stays.
    #[cold]
    fn succeed_by(&mut self, next: Box<dyn Any + Send>) {
        let Ok(next) = next.downcast::<AnyProcess<P::Message, P::Output>>() else {
            unreachable!("`upgrade` compared the types")
        };
        if let Some(mail) = self.mail() {
            let mail = std::mem::replace(mail, Mail::new());
            *self = Self::Upgraded(Box::new(Upgraded { process: *next, mail }));
        }
    }

    fn mail(&mut self) -> Option<&mut Mail<P::Message>> {
        match self {
            Self::Alive { mail, .. } => Some(mail),
            Self::Upgraded(upgraded) => Some(&mut upgraded.mail),
            _ => None,
        }
    }
}

impl<P: Process> Raw<P> {
    pub(crate) fn new(process: P, entry: Option<Box<Entry>>) -> Self {
        Self { life: Life::Fresh { process, entry } }
    }

    pub(crate) fn into_inner(self) -> Option<P> {
        match self.life {
            Life::Fresh { process, .. } | Life::Alive { process, .. } | Life::Failed { process } => Some(process),
            Life::Upgraded(_) | Life::Gone => None,
        }
    }
}

impl<P: Process> Machine for Raw<P> {
    type Message = P::Message;
    type Output = P::Output;

    const KEEPS_ITSELF: bool = false;

    fn keep(self: Pin<&mut Self>, _: Ref<Control<P::Message>>) {}

    fn is_fresh(&self) -> bool {
        matches!(self.life, Life::Fresh { .. })
    }

    fn init(self: Pin<&mut Self>, me: &Me<P::Message>) -> Result<(), InitError> {
        let life = self.project().life;
        let Life::Fresh { process, entry } = std::mem::replace(life, Life::Gone) else { return Ok(()) };
        *life = Life::Failed { process };
        let Life::Failed { process } = life else { unreachable!("set just now") };
        let Entry { method, input } = entry.map(|entry| *entry).unwrap_or_default();
        let head = &me.control().head;
        let input = input.unwrap_or_else(|| Payload::new(()));
        process.init(Start { method: &method, input, pid: head.pid(), context: head.inherited() })?;
        if let Life::Failed { process } = std::mem::replace(life, Life::Gone) {
            *life = Life::Alive { process, mail: Mail::new() };
        }
        Ok(())
    }

    fn step(self: Pin<&mut Self>, me: &Me<P::Message>, cx: &mut Context<'_>) -> Result<Next<P::Output>, Exit> {
        let life = self.project().life;
        let mut out = StepOutput::new::<P::Output>(me, cx.waker());
        let (next, mail) = match life {
            Life::Alive { process, mail } => (process.step(mail.events(me.control()), &mut out)?, mail),
            Life::Upgraded(upgraded) => {
                let Upgraded { process, mail } = &mut **upgraded;
                (process.step(mail.events(me.control()), &mut out)?, mail)
            }
            _ => unreachable!("it is stepped between its start and its end"),
        };
        let missed = matches!(next, Next::Wait) && mail.missed(me.control());
        if let Some(successor) = out.take_successor()
            && matches!(next, Next::Wait | Next::Again)
        {
            life.succeed_by(successor);
            return Ok(if planted!("upgrade_leaves_mail") { next } else { Next::Again });
        }
        Ok(if missed { Next::Again } else { next })
    }

    fn close(self: Pin<&mut Self>) {
        match self.project().life {
            Life::Alive { process, .. } => process.close(),
            Life::Upgraded(upgraded) => upgraded.process.close(),
            _ => {}
        }
    }

    fn clear(self: Pin<&mut Self>, me: &Me<P::Message>) {
        let mut life = std::mem::replace(self.project().life, Life::Gone);
        if let Some(mail) = life.mail() {
            let (unread, _unheard) = mail.take();
            me.control().leave(unread);
        }
    }

    fn is_gone(&self) -> bool {
        matches!(self.life, Life::Gone)
    }
}

/// A turn of a process.
struct Turn<'a, X: Machine> {
    machine: Pin<&'a mut X>,
    me: &'a Me<X::Message>,
    /// It has ended, and what the table had of it is left to whoever has the right to run it, with the count.
    left: bool,
}

/// How a process ends, where whoever runs it has room for that: it is written there once, and most of it moved no more.
type End<T> = Option<Result<T, Exit>>;

/// What came of a turn.
#[derive(Debug)]
pub(crate) enum Turned {
    Waits,
    /// As that, for mail, with its mailbox's slot lent.
    WaitsOpen,
    /// It is to have another one.
    Again,
    /// How is said elsewhere; and whether what the table had of it is [left](Turn::left) to whoever runs it.
    Over(bool),
}

/// What came of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stepped {
    Waits,
    Again,
    Ended,
}

impl Stepped {
    fn ended<T>(end: &mut Option<T>, how: T) -> Self {
        *end = Some(how);
        Self::Ended
    }
}

impl<X: Machine> Turn<'_, X> {
    fn head(&self) -> &Head {
        &self.me.control().head
    }

    fn init(&mut self) -> Result<(), Exit> {
        match catch(|| self.machine.as_mut().init(self.me)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Exit::from(error)),
            Err(text) => Err(self.panicked(text)),
        }
    }

    /// Has it observed that the process runs, if this is where its turn begins; how it ends if it was killed.
    #[cold]
    fn may_not_run(&self, flags: u16, begins: bool) -> Option<Exit> {
        if begins {
            self.head().enter(flags, State::Running);
        }
        (flags & flag::KILLED != 0).then(|| self.head().fate())
    }

    /// Counts a step that is about to begin; when that was, if it is to be timed.
    #[cold]
    fn begin_metered(&self) -> Result<Option<Instant>, Exit> {
        let Some(meter) = self.head().meter() else { return Ok(None) };
        Ok(meter.begin()?.then(|| self.head().host().now()))
    }

    /// Counts what a step took.
    #[cold]
    fn end_metered(&self, begun: Instant) -> Result<(), Exit> {
        self.head().meter().map_or(Ok(()), |meter| meter.ran(self.head().host().now() - begun))
    }

    /// One step, within its limits, and the dispatch of what it yielded. If it was the last, how it ended is in `end`.
    #[inline]
    fn step(&mut self, flags: u16, cx: &mut Context<'_>, end: &mut End<X::Output>) -> Stepped {
        let begun = if flags & flag::LIMITED == 0 {
            None
        } else {
            match self.begin_metered() {
                Ok(begun) => begun,
                Err(exit) => return Stepped::ended(end, Err(exit)),
            }
        };
        // What it returned stays where it is: most steps end nothing.
        let stepped = catch(|| match self.machine.as_mut().step(self.me, cx) {
            Ok(Next::Wait) => Stepped::Waits,
            Ok(Next::Again) => Stepped::Again,
            Ok(Next::Done(output)) => Stepped::ended(end, Ok(output)),
            Err(exit) => Stepped::ended(end, Err(exit)),
        });
        let stepped = match stepped {
            Ok(stepped) => {
                self.tell_orphans(None);
                stepped
            }
            Err(text) => Stepped::ended(end, Err(self.unwound(text))),
        };
        self.head().count(Counter::Steps);
        self.dispatch();
        self.leave();
        match begun {
            Some(begun) if stepped != Stepped::Ended => match self.end_metered(begun) {
                Ok(()) => stepped,
                Err(exit) => Stepped::ended(end, Err(exit)),
            },
            _ => stepped,
        }
    }

    /// It waits for the first time: it has started, unless it says that itself.
    #[cold]
    fn has_begun(&self) {
        if !self.head().has(flag::STARTED | flag::BY_HAND) {
            self.head().started();
        }
    }

    /// A step has panicked.
    #[cold]
    fn unwound(&self, text: Reason) -> Exit {
        successor::forget();
        let exit = self.panicked(text);
        self.tell_orphans(Some(&exit));
        exit
    }

    /// Whoever waits for a reply that was dropped while its process unwound, or died, hears of that.
    #[inline]
    fn tell_orphans(&self, exit: Option<&Exit>) {
        if let Some(orphans) = turn::take_orphans() {
            orphans.into_iter().for_each(|orphan| orphan(exit));
        }
    }

    /// What futures let go of and no other has taken over goes.
    #[inline]
    fn leave(&self) {
        if turn::ends_keeping() {
            self.let_go();
        }
    }

    #[cold]
    fn let_go(&self) {
        let control = self.me.control();
        spare::leave(control.address(), &control.head);
        home::leave(control.address());
    }

    /// Keeps an answer that was not claimed in the turn in which it came, for whoever will.
    #[cold]
    fn keep(&self) {
        if let Some(Parcel::Answer(number, answer)) = express::take() {
            let _ = self.head().yields().keep(number, Kept::Answered(answer)).map_err(drop_caught);
        }
    }

    /// Sends what the step yielded to its handlers, in order.
    fn dispatch(&self) {
        if express::is_busy() {
            self.dispatch_first();
        }
        if let Some(yields) = self.head().yields_if_any() {
            self.dispatch_all(yields);
        }
    }

    /// The one that had nobody before it, if there is one.
    fn dispatch_first(&self) -> bool {
        if let Some((number, place)) = express::command() {
            self.dispatch_shortly(number, place);
        } else if let Some((tag, command)) = express::take_left() {
            let yields = self.head().yields();
            let realm = self.head().host().realm();
            Self::dispatch_one(realm, yields, Yield { tag, command }, self.me.control().clone());
            yields.forget_overtaken();
        } else {
            return false;
        }
        true
    }

    fn dispatch_shortly(&self, number: express::Number, place: u32) {
        let host = self.head().host();
        if host.realm().dispatcher().dispatch_shortly(number, place, &|| self.me.home()) {
            host.shared().metrics.add(Counter::Completions, 1);
            if number == 0 {
                let _ = drop_caught(express::take());
            } else {
                turn::answered();
            }
        }
    }

    fn dispatch_all(&self, yields: &Yields) {
        loop {
            if yields.has_pending() {
                self.dispatch_pending(yields);
            }
            // What a handler has polled that the process was to: it is its turn still.
            if !self.dispatch_first() {
                return;
            }
        }
    }

    fn dispatch_pending(&self, yields: &Yields) {
        // A handler that polls a process inside of this one's turn finds none, and makes its own.
        let mut batch = BATCH.try_with(Cell::take).unwrap_or_default();
        // Looked up once: those who answer on other cores write beside where that is said.
        let realm = self.head().host().realm();
        while yields.has_pending() {
            yields.take_pending(&mut batch);
            let homes = self.me.control().clones(batch.len() as u32);
            for (yielded, home) in batch.drain(..).zip(homes) {
                Self::dispatch_one(realm, yields, yielded, home);
            }
        }
        yields.forget_overtaken();
        let _ = BATCH.try_with(|kept| kept.set(batch));
    }

    #[inline(always)]
    fn dispatch_one(realm: &Realm, yields: &Yields, yielded: Yield, home: Ref<Control<X::Message>>) {
        let _ = if yields.is_overtaken(yielded.tag) {
            drop_caught(yielded)
        } else {
            catch(|| realm.dispatch(yielded, home.into_any()))
        };
    }

    /// The exit of a process that panicked, told to whoever the policy says.
    fn panicked(&self, text: Reason) -> Exit {
        let head = self.head();
        head.host().panicked(head.pid(), text.as_str());
        Exit::Panicked(text)
    }

    /// Buries the process: nobody hears of its end before its names are free and its pid names nothing, and that is when
    /// everything that it held has been let go. Returns how it really ended: a panic on the way is an end of its own.
    fn end(&mut self, mut exit: Exit) -> Exit {
        if let Err(text) = catch(|| self.machine.as_mut().close()) {
            exit = self.panicked(text);
        }
        let control = self.me.control();
        let remains = control.inbox.close();
        let trusts = planted!("end_trusts_a_bare_mailbox") && remains.is_none();
        self.head().host().release(self.head());
        // Replies that are dropped from here on are told how their process died as soon as that is settled.
        let dying = turn::dying();
        // It may be dropped inside the turn of another one.
        let in_turn = turn::is_of(self.me.control().address());
        if in_turn {
            turn::begins_keeping();
        }
        if let Err(text) = catch(|| self.machine.as_mut().clear(self.me)) {
            exit = self.panicked(text);
        }
        if in_turn {
            if express::is_busy() {
                let _ = drop_caught(express::take());
            }
            self.leave();
        }
        if let Some(remains) = remains {
            self.head().host().dead_letters_of(self.head(), remains.settle().into_iter());
        }
        self.left = self.head().host().forget(self.head()).map(std::mem::forget).is_some();
        self.tell_orphans(Some(&exit));
        drop(dying);
        self.head().host().bury(self.head(), &exit);
        self.machine.as_mut().ended(self.me, &exit);
        // A mailbox that was split off may be waited on elsewhere, also since it was closed: until its end is known. If nobody
        // else knows the process, it was not.
        if self.me.control().count() > 1 + usize::from(self.left) && !trusts {
            self.me.control().disperse();
        }
        exit
    }
}

/// Gives a process a turn. If it was the last, how it ended is in `end`.
#[inline]
pub(crate) fn turn<X: Machine>(
    machine: Pin<&mut X>,
    me: &Me<X::Message>,
    cx: &mut Context<'_>,
    end: &mut End<X::Output>,
) -> Turned {
    let mut this = Turn { machine, me, left: false };
    let fresh = this.machine.is_fresh();
    let _turn = turn::enter(me.control().address(), this.head().pid(), cx.waker());
    match this.run(fresh, cx, end) {
        Poll::Ready(()) => Turned::Over(this.left),
        Poll::Pending => {
            if turn::is_ahead() {
                me.control().inbox.unwait();
            }
            if express::is_busy() {
                this.keep();
            }
            if turn::take_woken() {
                Turned::Again
            } else if turn::is_waiting_for_mail() {
                Turned::WaitsOpen
            } else {
                Turned::Waits
            }
        }
    }
}

/// The end of a process that never has a turn again: its runtime is gone. Returns whether what the table had
/// of it is left to the caller.
pub(crate) fn give_up<X: Machine>(machine: Pin<&mut X>, me: &Me<X::Message>) -> bool {
    let mut this = Turn { machine, me, left: false };
    if !this.machine.is_gone() {
        let _ = this.end(Exit::Cancelled(Reason::SHUTDOWN));
    }
    this.left
}

impl<X: Machine> Turn<'_, X> {
    #[inline]
    fn run(&mut self, mut fresh: bool, cx: &mut Context<'_>, end: &mut End<X::Output>) -> Poll<()> {
        let this = self;
        let mut answered = 0;
        loop {
            let mut flags = this.head().flags();
            // One question for both: those that nobody observes pay for what they are asked anyway.
            if flags & (flag::KILLED | flag::OBSERVED) == 0 {
                this.head().enter_unseen(State::Running);
            } else if let Some(fate) = this.may_not_run(flags, answered == 0) {
                *end = Some(Err(this.end(fate)));
                return Poll::Ready(());
            }
            if std::mem::take(&mut fresh) {
                if let Err(exit) = this.init() {
                    *end = Some(Err(this.end(exit)));
                    return Poll::Ready(());
                }
                flags = this.head().flags();
                if flags & flag::KILLED != 0 {
                    let fate = this.head().fate();
                    *end = Some(Err(this.end(fate)));
                    return Poll::Ready(());
                }
            }
            let stepped = this.step(flags, cx, end);
            if flags & (flag::STARTED | flag::BY_HAND) == 0 && stepped != Stepped::Ended {
                this.has_begun();
            }
            match stepped {
                Stepped::Ended => {
                    match end {
                        Some(Ok(_)) => match this.end(Exit::Normal) {
                            Exit::Normal => {}
                            exit => *end = Some(Err(exit)),
                        },
                        Some(Err(exit)) => *exit = this.end(std::mem::replace(exit, Exit::Normal)),
                        None => unreachable!("whoever says that it ended says how"),
                    }
                    return Poll::Ready(());
                }
                Stepped::Again => {
                    turn::woken();
                    return Poll::Pending;
                }
                Stepped::Waits if !turn::take_answered() => {
                    if !turn::wants_again() {
                        let head = this.head();
                        let state = if head.is_waiting() { State::Blocked } else { State::Idle };
                        head.enter(flags, state);
                    }
                    return Poll::Pending;
                }
                Stepped::Waits => {
                    answered += 1;
                    if answered == ANSWERED_IN_TURN {
                        this.head().host().count_budget_yield();
                        turn::woken();
                        return Poll::Pending;
                    }
                    turn::begins_keeping();
                }
            }
        }
    }
}
