//! Methods that set the links and monitors of a process. The tables and the protocol are in `host::link`. The guide for
//! users is [`guide::lifecycle`](crate::guide::lifecycle).

use crate::context::mailbox::Mailbox;
use crate::context::me::SelfHandle;
use crate::host::Host;
use crate::host::control::AnyControl;
#[allow(unused_imports)]
use crate::host::link as table;
use crate::host::link::{Gone, demonitor, monitor};
use crate::process::error::NoProcess;
use crate::process::event::MonitorRef;
use crate::process::exit::Exit;
use crate::process::pid::Pid;
use crate::process::state::Ref;

impl Host {
    /// Returns the process with this pid, for a link or a monitor. If the pid table of this runtime does not contain
    /// the process, returns the exit to report.
    fn other(&self, pid: Pid) -> Result<Ref<dyn AnyControl>, Exit> {
        let absent = || if pid.node() == self.node() { Exit::NoProcess } else { Exit::NodeDown };
        self.shared().pid_table.get(pid).ok_or_else(absent)
    }
}

macro_rules! ties {
    ($caller:ident) => {
        impl<M: Send + 'static> $caller<M> {
            /// Links this process with another process, in any host of the runtime. If one of the two processes exits
            /// abnormally, the other process exits with [`Exit::Linked`]. If the other process [traps
            /// exits](Self::trap_exit), it does not exit. A second link between the same two processes has no effect. A
            /// link of a process with itself has no effect.
            ///
            /// # Errors
            /// Fails with [`NoProcess`], which contains `pid`, if the other process is not alive in this runtime.
            /// However, if this process traps exits, the call succeeds, and an [`Event::Exit`](crate::Event::Exit)
            /// arrives. For a pid of this node, the event contains [`Exit::NoProcess`]. For a pid of another node, the
            /// event contains [`Exit::NodeDown`].
            ///
            /// Fails with [`NoProcess`], which contains the pid of this process, if this process has exited.
            pub fn link(&self, pid: Pid) -> Result<(), NoProcess> {
                let control = self.control();
                let other = control.head.host().other(pid);
                let caller: &dyn AnyControl = &**control;
                table::link(caller, control.any(), pid, other).map_err(|gone| match gone {
                    Gone::Caller => NoProcess(control.head.pid()),
                    Gone::Other => NoProcess(pid),
                })
            }

            /// Removes the link with another process, if there is a link. After this call, the exit of the other
            /// process does not affect this process. An [`Event::Exit`](crate::Event::Exit) that is already in the
            /// mailbox stays there.
            pub fn unlink(&self, pid: Pid) {
                table::unlink::<dyn AnyControl>(&**self.control(), pid);
            }

            /// Sets whether this process traps exits. If this process traps exits, each exit of a linked process
            /// arrives as an [`Event::Exit`](crate::Event::Exit), and this process continues. A normal exit also
            /// arrives as an event. Returns the previous setting. Default: false.
            ///
            /// A process cannot trap its own kill. If a linked process is killed, this process can trap the exit of
            /// that process.
            pub fn trap_exit(&self, on: bool) -> bool {
                self.control().head.links().trap(on)
            }

            /// Monitors another process, in any host of the runtime. When that process has exited, one
            /// [`Event::Down`](crate::Event::Down) arrives for each monitor. The `Down` event arrives after all
            /// messages that the exited process sent. [`event`](crate::Mailbox::event) returns the `Down` event.
            /// [`receive`](crate::Mailbox::receive) skips the `Down` event, and the event stays in the mailbox.
            ///
            /// If the other process is not alive in this runtime, a `Down` event arrives immediately. For a pid of this
            /// node, the event contains [`Exit::NoProcess`]. For a pid of another node, the event contains
            /// [`Exit::NodeDown`]. If a process monitors itself, no event arrives.
            pub fn monitor(&self, pid: Pid) -> MonitorRef {
                let control = self.control();
                let other = control.head.host().other(pid);
                let caller: &dyn AnyControl = &**control;
                monitor(caller, control.any(), pid, other)
            }

            /// Removes a monitor of this process. Returns true if the `Down` event of the monitor had not arrived
            /// before this call. In this case, the `Down` event never arrives after this call. Returns false if the
            /// `Down` event had arrived before this call, even if the event is unread. Also returns false if this
            /// process has no monitor with this reference.
            ///
            /// For a monitor of a [group](Self::monitor_group), no further event of the monitor arrives, and the unread
            /// events of the monitor are discarded. For such a monitor, the method returns true if the monitor existed.
            pub fn demonitor(&self, monitor: MonitorRef) -> bool {
                let head = &self.control().head;
                if monitor.is_of_group() {
                    return monitor.is_of(head.pid())
                        && head.host().namespace().groups().forget(monitor, head.groups());
                }
                demonitor::<dyn AnyControl>(&**self.control(), monitor, false)
            }

            /// Same as [`demonitor`](Self::demonitor), but also discards an unread `Down` event.
            pub fn demonitor_flush(&self, monitor: MonitorRef) -> bool {
                if monitor.is_of_group() {
                    return self.demonitor(monitor);
                }
                demonitor::<dyn AnyControl>(&**self.control(), monitor, true)
            }
        }
    };
}
ties!(SelfHandle);
ties!(Mailbox);
