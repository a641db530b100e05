//! Methods of a process that set links and monitors. The tables and the protocol are in `host::link`; the guide for
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
    /// Returns the process to be linked or monitored. If this runtime's pid table does not contain the process, returns
    /// the exit to report.
    fn other(&self, pid: Pid) -> Result<Ref<dyn AnyControl>, Exit> {
        let absent = || if pid.node() == self.node() { Exit::NoProcess } else { Exit::NodeDown };
        self.shared().pid_table.get(pid).ok_or_else(absent)
    }
}

macro_rules! ties {
    ($caller:ident) => {
        impl<M: Send + 'static> $caller<M> {
            /// Links this process with another process, in any host of the runtime. If one of them exits abnormally,
            /// the other one exits with [`Exit::Linked`], unless it [traps exits](Self::trap_exit). A second link
            /// between the same processes has no effect. A link of a process with itself has no effect either.
            ///
            /// # Errors
            /// Fails with [`NoProcess`], which contains `pid`, if the other process is not alive in this runtime. If
            /// this process traps exits, the call succeeds instead, and an [`Event::Exit`](crate::Event::Exit) arrives.
            /// The event contains [`Exit::NoProcess`], or [`Exit::NodeDown`] for a pid of another node.
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

            /// Removes the link with another process, if there is one. After this returns, the exit of the other
            /// process does not affect this process. An [`Event::Exit`](crate::Event::Exit) that is already in the
            /// mailbox stays there.
            pub fn unlink(&self, pid: Pid) {
                table::unlink::<dyn AnyControl>(&**self.control(), pid);
            }

            /// Sets whether this process traps exits. If it does, the exit of a linked process, even a normal exit,
            /// arrives as an [`Event::Exit`](crate::Event::Exit) and does not end this process. Returns the former
            /// setting. Default: false.
            ///
            /// A kill of this process cannot be trapped. If a linked process is killed, this process can trap that
            /// exit.
            pub fn trap_exit(&self, on: bool) -> bool {
                self.control().head.links().trap(on)
            }

            /// Monitors another process, in any host of the runtime. When that process has exited, one
            /// [`Event::Down`](crate::Event::Down) arrives for each monitor. It arrives after all messages that the
            /// process sent before its exit. [`event`](crate::Mailbox::event) returns the `Down`. A receive skips the
            /// `Down`, and the `Down` stays in the mailbox.
            ///
            /// If the process is not alive in this runtime, a `Down` arrives immediately. It contains
            /// [`Exit::NoProcess`], or [`Exit::NodeDown`] for a pid of another node. If a process monitors itself, no
            /// event ever arrives.
            pub fn monitor(&self, pid: Pid) -> MonitorRef {
                let control = self.control();
                let other = control.head.host().other(pid);
                let caller: &dyn AnyControl = &**control;
                monitor(caller, control.any(), pid, other)
            }

            /// Removes a monitor of this process. Returns true if the `Down` of the monitor has not arrived; in this
            /// case the `Down` will never arrive. Returns false if the `Down` has arrived, read or unread, or if there
            /// is no such monitor.
            ///
            /// If the monitor is of a [group](Self::monitor_group), no further event of the monitor arrives, and its
            /// unread events are discarded. In this case, returns true if there was such a monitor.
            pub fn demonitor(&self, monitor: MonitorRef) -> bool {
                let head = &self.control().head;
                if monitor.is_of_group() {
                    return monitor.is_of(head.pid())
                        && head.host().namespace().groups().forget(monitor, head.groups());
                }
                demonitor::<dyn AnyControl>(&**self.control(), monitor, false)
            }

            /// Same as [`demonitor`](Self::demonitor), but also discards an unread `Down`.
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
