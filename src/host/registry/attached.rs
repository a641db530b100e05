//! Attached receivers. An attached receiver is no process. The receiver gets the envelopes for its own pid, or for
//! all pids of another node.

use std::any::Any;

use crate::host::control::{AnyControl, Head, SpawnSettings, flag};
use crate::host::registry::receiver::{Deliver, Envelope};
use crate::host::{Host, Phase};
use crate::platform::sync::Arc;
use crate::process::catch::Held;
use crate::process::error::{Addressee, SendError, SendErrorKind};
use crate::process::event::{Answer, Signal, Tag};
use crate::process::exit::Exit;
use crate::process::mailbox::{MailboxFigures, Wakes};
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::state::{Ref, RefCounted, RunState};

impl Deliver for Host {
    fn deliver(&self, package: Envelope) -> Result<(), SendError<Envelope>> {
        let Envelope { from, to, payload } = package;
        let refuse = |kind, payload: Payload| {
            let value_type = payload.type_name_fn();
            let error = SendError::new(kind, Envelope { from, to, payload });
            Err(error.to(Addressee::Process(to)).value_type(value_type))
        };
        // If the envelope is for another node, this function refuses the envelope, although a receiver may be attached
        // for this node. Otherwise two hosts that are attached to each other could pass an envelope back and forth
        // without end.
        match self.shared().pid_table.get(to) {
            Some(control) => control.deliver_by(from, payload).or_else(|(refusal, payload)| refuse(refusal, payload)),
            None => refuse(self.gone(), payload),
        }
    }
}

impl Host {
    /// Sends a message to a pid that is not in the pid table. If a receiver is attached for the node of the pid, the
    /// receiver gets the message.
    pub(crate) fn deliver_away(&self, to: Pid, payload: Payload) -> Result<(), (SendErrorKind, Payload)> {
        let node = if self.shared().pid_table.is_here(to) {
            None
        } else {
            self.shared().nodes.lock().get(&to.node()).cloned()
        };
        match node {
            Some(receiver) => accepted(receiver.deliver(Envelope::new(to, payload))),
            None => Err((self.gone(), payload)),
        }
    }
}

fn accepted(delivered: Result<(), SendError<Envelope>>) -> Result<(), (SendErrorKind, Payload)> {
    delivered.map_err(|refused| (refused.kind(), refused.into_message().payload))
}

/// A receiver that is attached under a pid. The runtime delivers all messages for this pid to the receiver.
struct Attached {
    head: Head,
    /// The last reference to this value may be dropped anywhere in the runtime. Therefore a `Held` contains the
    /// receiver of the user, and catches a panic of the receiver's destructor.
    receiver: Held<Box<dyn Deliver>>,
}

impl AnyControl for RefCounted<Attached> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn head(&self) -> &Head {
        &self.head
    }

    fn deliver(&self, payload: Payload) -> Result<(), (SendErrorKind, Payload)> {
        let Envelope { from, payload, .. } = Envelope::new(self.head.pid(), payload);
        self.deliver_by(from, payload)
    }

    fn deliver_by(&self, from: Option<Pid>, payload: Payload) -> Result<(), (SendErrorKind, Payload)> {
        if self.head.has(flag::KILLED) {
            return Err((self.head.host().gone(), payload));
        }
        accepted(self.receiver.get().deliver(Envelope { from, to: self.head.pid(), payload }))
    }

    fn high_water(&self) -> usize {
        0
    }

    fn mailbox_figures(&self) -> MailboxFigures {
        MailboxFigures::default()
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

    fn wake_all(&self) {}

    fn wake(&self) {}

    fn is_closed(&self) -> bool {
        self.head.has(flag::KILLED)
    }

    fn close_outside(&self, exit: &Exit) {
        self.head.host().end_attached(&self.head, exit);
    }
}

impl Host {
    /// Attaches a receiver under a new pid. The runtime delivers messages for this pid to the receiver, as envelopes.
    ///
    /// A call of [`kill`](Self::kill) detaches the receiver. The end of the runtime also detaches the receiver. Returns
    /// `None` if the runtime has shut down or all pids are in use.
    pub fn attach(&self, receiver: impl Deliver) -> Option<Pid> {
        if self.phase() == Phase::Closed {
            return None;
        }
        let (place, host) = self.reserve_pid()?;
        let head = Head::new(RunState::over(), place, host, flag::OUTSIDE, None, SpawnSettings::default());
        let attached = Ref::counted(Attached { head, receiver: Held::new(Box::new(receiver)) });
        let pid = attached.head.pid();
        let attached: Ref<dyn AnyControl> = Ref::of(attached);
        self.publish_pid(place, attached.clone());
        // The runtime may end at the same time. The end of the runtime first sets the phase, and then kills all entries
        // of the pid table. This function first publishes the pid, and then reads the phase. Therefore either the end
        // of the runtime finds this receiver, or this function reads the new phase.
        if self.phase() == Phase::Closed {
            attached.kill();
            return None;
        }
        Some(pid)
    }

    /// Attaches the receiver for all pids of another node. If a receiver is already attached for `node`, the new
    /// receiver replaces the earlier receiver.
    ///
    /// The end of the runtime drops the receiver. If the runtime has shut down, this function drops `receiver`
    /// immediately.
    pub fn attach_node(&self, node: u32, receiver: impl Deliver) {
        let receiver: Arc<dyn Deliver> = Arc::new(receiver);
        let mut nodes = self.shared().nodes.lock();
        // The end of the runtime first sets the phase, and then empties the map. Therefore either the end of the
        // runtime finds this receiver, or this function reads the new phase.
        let dropped = if self.phase() == Phase::Closed { Some(receiver) } else { nodes.insert(node, receiver) };
        // The lock is released before the drop, because the drop runs user code.
        drop(nodes);
        drop(dropped);
    }
}
