//! Methods that set and remove the links and the monitors of a process. The tables of links, and the protocol of these
//! tables, are in `host::link`. The guide for users is [`guide::lifecycle`](crate::guide::lifecycle).

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
    /// Returns the process to which a link or a monitor refers. If the pid table of this runtime does not contain the
    /// pid, returns the exit that the link or monitor must report.
    fn other(&self, pid: Pid) -> Result<Ref<dyn AnyControl>, Exit> {
        let absent = || if pid.node() == self.node() { Exit::NoProcess } else { Exit::NodeDown };
        self.shared().pid_table.get(pid).ok_or_else(absent)
    }
}

macro_rules! ties {
    ($caller:ident) => {
        impl<M: Send + 'static> $caller<M> {
            /// Links this process with another process in any host of the runtime. If one of the linked processes exits
            /// abnormally, the other linked process exits with [`Exit::Linked`]. A process that [traps
            /// exits](Self::trap_exit) receives an event instead. A second link between the same two processes has no
            /// effect. A link of a process with itself has no effect.
            ///
            /// # Errors
            /// If the other process is not alive in this runtime, the call fails with [`NoProcess`]. The error contains
            /// `pid`. If this process traps exits, the call succeeds instead, and an
            /// [`Event::Exit`](crate::Event::Exit) arrives. For a pid of this node, the event contains
            /// [`Exit::NoProcess`]. For a pid of another node, the event contains [`Exit::NodeDown`].
            ///
            /// If this process has exited, the call fails with [`NoProcess`]. The error contains the pid of this
            /// process.
            pub fn link(&self, pid: Pid) -> Result<(), NoProcess> {
                let control = self.control();
                let other = control.head.host().other(pid);
                let caller: &dyn AnyControl = &**control;
                table::link(caller, control.any(), pid, other).map_err(|gone| match gone {
                    Gone::Caller => NoProcess(control.head.pid()),
                    Gone::Other => NoProcess(pid),
                })
            }

            /// Removes the link with another process, if the two processes are linked. After this call, the exit of the
            /// other process does not affect this process. If an [`Event::Exit`](crate::Event::Exit) is already in the
            /// mailbox, this event stays in the mailbox.
            pub fn unlink(&self, pid: Pid) {
                table::unlink::<dyn AnyControl>(&**self.control(), pid);
            }

            /// Sets whether this process traps exits, and returns the previous setting. A process that traps exits does
            /// not exit when a linked process exits. Instead, the process receives each exit of a linked process,
            /// including a normal exit, as an [`Event::Exit`](crate::Event::Exit). Default: false.
            ///
            /// A process cannot trap its own kill. However, a process can trap the exit of a linked process that was
            /// killed.
            pub fn trap_exit(&self, on: bool) -> bool {
                self.control().head.links().trap(on)
            }

            /// Monitors another process in any host of the runtime. When the other process has exited, one
            /// [`Event::Down`](crate::Event::Down) arrives for each monitor. The `Down` event arrives after all
            /// messages that the exited process sent to this process. The method [`event`](crate::Mailbox::event) of
            /// the mailbox returns the `Down` event. The method [`receive`](crate::Mailbox::receive) leaves the `Down`
            /// event in the mailbox.
            ///
            /// If the other process is not alive in this runtime, the `Down` event arrives immediately. For a pid of
            /// this node, the event contains [`Exit::NoProcess`]. For a pid of another node, the event contains
            /// [`Exit::NodeDown`]. If a process monitors itself, no event arrives.
            pub fn monitor(&self, pid: Pid) -> MonitorRef {
                let control = self.control();
                let other = control.head.host().other(pid);
                let caller: &dyn AnyControl = &**control;
                monitor(caller, control.any(), pid, other)
            }

            /// Removes a monitor of this process. Returns true if the `Down` event of the monitor has not arrived yet.
            /// In this case, the `Down` event never arrives. Returns false if the `Down` event is already in the
            /// mailbox or was already read. Also returns false if this process has no monitor with this reference.
            ///
            /// The removed monitor can also be the monitor of a [group](Self::monitor_group). In this case, no further
            /// event of the monitor arrives, and the unread events of the monitor are discarded. For a group, the
            /// method returns true if the process had this monitor.
            pub fn demonitor(&self, monitor: MonitorRef) -> bool {
                let head = &self.control().head;
                if monitor.is_of_group() {
                    return monitor.is_of(head.pid())
                        && head.host().namespace().groups().forget(monitor, head.groups());
                }
                demonitor::<dyn AnyControl>(&**self.control(), monitor, false)
            }

            /// Removes a monitor of this process like [`demonitor`](Self::demonitor), and also discards an unread
            /// `Down` event of the monitor.
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
