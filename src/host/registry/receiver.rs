//! What pids lead to that is no process: receivers of packages, under a pid of their own or for the pids of another node.

use std::any::Any;

use crate::host::control::{AnyControl, Head, SpawnSettings, flag};
use crate::host::{Host, Phase};
use crate::platform::sync::Arc;
use crate::process::error::{Refusal, SendError};
use crate::process::event::{Answer, Signal, Tag};
use crate::process::exit::Exit;
use crate::process::mailbox::Wakes;
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::state::current::Current;
use crate::process::state::{Ref, RefCounted, RunState};

/// A message on its way to a pid.
#[derive(Debug)]
#[non_exhaustive]
pub struct Package {
    /// Who sent it, where that is known.
    pub from: Option<Pid>,
    /// Whom it is for.
    pub to: Pid,
    /// The message.
    pub payload: Payload,
}

impl Package {
    /// A message for `to`, from whoever is being stepped on this thread.
    pub fn new(to: Pid, payload: Payload) -> Self {
        Self { from: Current::with(Current::pid), to, payload }
    }
}

/// The one routing interface: delivers a package to a pid.
///
/// A [`Host`] is one; others are attached for other nodes ([`Host::attach_node`]) or under a pid of this one
/// ([`Host::attach`]).
pub trait Receiver: Send + Sync + 'static {
    /// Takes the package, or hands it back. Must not block: it runs on the sender's thread.
    ///
    /// # Errors
    /// The package and why it was refused.
    fn deliver(&self, package: Package) -> Result<(), SendError<Package>>;
}

impl Receiver for Host {
    fn deliver(&self, package: Package) -> Result<(), SendError<Package>> {
        let Package { from, to, payload } = package;
        let refuse = |refusal, payload| Err(SendError::new(refusal, Package { from, to, payload }));
        if self.shared().pid_table.is_here(to) {
            return match self.shared().pid_table.get(to) {
                Some(control) => control.deliver(payload).or_else(|(refusal, payload)| refuse(refusal, payload)),
                None => refuse(self.gone(), payload),
            };
        }
        let node = self.shared().nodes.lock().get(&to.node()).cloned();
        match node {
            Some(receiver) => receiver.deliver(Package { from, to, payload }),
            None => refuse(Refusal::NoProcess, payload),
        }
    }
}

/// A receiver attached under a pid: what is sent there goes to it.
struct Attached {
    head: Head,
    receiver: Box<dyn Receiver>,
}

impl AnyControl for RefCounted<Attached> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn head(&self) -> &Head {
        &self.head
    }

    fn deliver(&self, payload: Payload) -> Result<(), (Refusal, Payload)> {
        if self.head.has(flag::KILLED) {
            return Err((self.head.host().gone(), payload));
        }
        self.receiver.deliver(Package::new(self.head.pid(), payload)).map_err(|refused| {
            let refusal = refused.refusal();
            (refusal, refused.into_message().payload)
        })
    }

    fn high_water(&self) -> usize {
        0
    }

    fn put(&self, signal: Signal) -> Result<Wakes, Signal> {
        Err(signal)
    }

    fn put_answer(&self, _: Tag, _: &mut Option<Answer>) -> Result<Wakes, ()> {
        Err(())
    }

    fn put_down(&self, _: u64, _: Pid, _: &Exit) -> Option<Wakes> {
        None
    }

    fn rouse(&self) {}

    fn wake(&self) {}

    fn is_closed(&self) -> bool {
        self.head.has(flag::KILLED)
    }

    fn close_outside(&self, exit: &Exit) {
        drop(self.head.host().forget(&self.head));
        self.head.set_exit(exit);
    }
}

impl Host {
    /// Attaches a receiver under a pid of its own: a way for pids to lead to whatever takes packages.
    ///
    /// It is detached by [`kill`](Self::kill), or with the runtime. `None` when the runtime has shut down.
    pub fn attach(&self, receiver: impl Receiver) -> Option<Pid> {
        if self.phase() == Phase::Closed {
            return None;
        }
        self.place(|place, host| {
            let (head, receiver) =
                (Head::new(RunState::over(), place, host, flag::OUTSIDE, SpawnSettings::default()), Box::new(receiver));
            let attached = Ref::counted(Attached { head, receiver });
            let pid = attached.head.pid();
            (Ref::of(attached), pid)
        })
    }

    /// Attaches the way to another node: what is sent to its pids goes to `receiver`. The last one attached holds.
    pub fn attach_node(&self, node: u32, receiver: impl Receiver) {
        let former = self.shared().nodes.lock().insert(node, Arc::new(receiver));
        drop(former);
    }
}
