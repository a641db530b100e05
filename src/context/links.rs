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
    /// Returns the process to be linked or monitored, or the exit that is reported if it is not in this runtime's pid
    /// table.
    fn other(&self, pid: Pid) -> Result<Ref<dyn AnyControl>, Exit> {
        let absent = || if pid.node() == self.node() { Exit::NoProcess } else { Exit::NodeDown };
        self.shared().pid_table.get(pid).ok_or_else(absent)
    }
}

macro_rules! ties {
    ($caller:ident) => {
        impl<M: Send + 'static> $caller<M> {
            /// Links this process and another process, in any host of the runtime. If one of them exits abnormally, the
            /// other one exits with [`Exit::Linked`], unless it [traps exits](Self::trap_exit). A second link between
            /// the same processes has no effect, nor does a link of a process with itself.
            ///
            /// # Errors
            /// Fails with [`NoProcess`] and `pid` if the other process is not alive in this runtime. If this process
            /// traps exits, the call succeeds instead, and an [`Event::Exit`](crate::Event::Exit) arrives: with
            /// [`Exit::NoProcess`], or with [`Exit::NodeDown`] for a pid of another node.
            ///
            /// Fails with [`NoProcess`] and this process's own pid if this process has exited.
            pub fn link(&self, pid: Pid) -> Result<(), NoProcess> {
                let control = self.control();
                let other = control.head.host().other(pid);
                let caller: &dyn AnyControl = &**control;
                table::link(caller, control.any(), pid, other).map_err(|gone| match gone {
                    Gone::Caller => NoProcess(control.head.pid()),
                    Gone::Other => NoProcess(pid),
                })
            }

            /// Removes the link to another process, if there is one. After this returns, the exit of the other process
            /// has no effect here. An [`Event::Exit`](crate::Event::Exit) that is already in the mailbox stays there.
            pub fn unlink(&self, pid: Pid) {
                table::unlink::<dyn AnyControl>(&**self.control(), pid);
            }

            /// Sets whether exits of linked processes, normal ones too, arrive as [`Event::Exit`](crate::Event::Exit)
            /// instead of ending this process. Returns the former setting. Default: false.
            ///
            /// A kill of this process cannot be trapped. A process linked with a killed process can trap that exit.
            pub fn trap_exit(&self, on: bool) -> bool {
                self.control().head.links().trap(on)
            }

            /// Monitors another process, in any host of the runtime. When that process has exited, an
            /// [`Event::Down`](crate::Event::Down) arrives, once per monitor, after everything that it sent before.
            /// [`event`](crate::Mailbox::event) returns this event; a receive skips it, and it stays in the mailbox.
            ///
            /// If the process is not alive in this runtime, the event arrives immediately, with [`Exit::NoProcess`], or
            /// with [`Exit::NodeDown`] for a pid of another node. A monitor of the process itself never reports.
            pub fn monitor(&self, pid: Pid) -> MonitorRef {
                let control = self.control();
                let other = control.head.host().other(pid);
                let caller: &dyn AnyControl = &**control;
                monitor(caller, control.any(), pid, other)
            }

            /// Removes a monitor of this process. Returns true if its `Down` has not arrived: then it never will.
            /// Returns false if the `Down` has arrived, read or unread, or if there is no such monitor.
            ///
            /// If the monitor is of a [group](Self::monitor_group), no further event of it arrives, and its unread
            /// events are discarded. Returns true if there was such a monitor.
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
