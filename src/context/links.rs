//! Links and monitors as a process sets them. What they do stands in `link/table.rs`; a page for users is
//! [`lives`](crate::guide::lives).

use crate::context::mailbox::Mailbox;
use crate::context::me::Me;
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
    /// Whom a process is to be tied to, or what it is told instead.
    fn other(&self, pid: Pid) -> Result<Ref<dyn AnyControl>, Exit> {
        let absent = || if pid.node() == self.node() { Exit::NoProcess } else { Exit::NodeDown };
        self.shared().pid_table.get(pid).ok_or_else(absent)
    }
}

macro_rules! ties {
    ($caller:ident) => {
        impl<M: Send + 'static> $caller<M> {
            /// Links this process and another one, in whichever host of the runtime: when one of them ends other than
            /// normally, the other one ends too, as [`Exit::Linked`], unless it [traps exits](Self::trap_exit). A link
            /// that is there already stays one; to itself, a process is not linked.
            ///
            /// # Errors
            /// No such process lives here. One that traps exits is told so by an [`Event::Exit`](crate::Event::Exit)
            /// instead: [`Exit::NoProcess`], or [`Exit::NodeDown`] for a pid of another node.
            pub fn link(&self, pid: Pid) -> Result<(), NoProcess> {
                let control = self.control();
                let other = control.head.host().other(pid);
                let caller: &dyn AnyControl = &**control;
                table::link(caller, control.any(), pid, other).map_err(|gone| match gone {
                    Gone::Caller => NoProcess(control.head.pid()),
                    Gone::Other => NoProcess(pid),
                })
            }

            /// Cuts the link to another process; nothing if there is none. Once this has returned, its end does nothing
            /// here any more; an [`Event::Exit`](crate::Event::Exit) that was there before is still to be read.
            pub fn unlink(&self, pid: Pid) {
                table::unlink::<dyn AnyControl>(&**self.control(), pid);
            }

            /// Whether the exits of linked processes come as [`Event::Exit`](crate::Event::Exit) from now on, normal
            /// ones too, in place of ending this process. Returns what held before.
            ///
            /// A kill can't be trapped; what it does to those that are linked can.
            pub fn trap_exit(&self, on: bool) -> bool {
                self.control().head.links().trap(on)
            }

            /// Has this process told by an [`Event::Down`](crate::Event::Down) when another one, in whichever host of the
            /// runtime, has ended: once for each monitor, after whatever the other one sent before. Such an event waits
            /// for [`event`](crate::Mailbox::event), a receive leaves it where it is.
            ///
            /// If no such process lives it is told so at once: [`Exit::NoProcess`], or [`Exit::NodeDown`] for a pid of
            /// another node. Nobody is told of its own end.
            pub fn monitor(&self, pid: Pid) -> MonitorRef {
                let control = self.control();
                let other = control.head.host().other(pid);
                let caller: &dyn AnyControl = &**control;
                monitor(caller, control.any(), pid, other)
            }

            /// Takes back a monitor of this process. True if its down has not come yet: then it never will. False if it
            /// has, read or not; or if there is no such monitor.
            ///
            /// Of a [group](Self::monitor_group) nothing comes any more, what was told and not read neither. True if there
            /// was such a monitor.
            pub fn demonitor(&self, monitor: MonitorRef) -> bool {
                let head = &self.control().head;
                if monitor.is_of_group() {
                    return monitor.is_of(head.pid())
                        && head.host().namespace().groups().forget(monitor, head.groups());
                }
                demonitor::<dyn AnyControl>(&**self.control(), monitor, false)
            }

            /// As [`demonitor`](Self::demonitor); a down that has come and was not read is gone too.
            pub fn demonitor_flush(&self, monitor: MonitorRef) -> bool {
                if monitor.is_of_group() {
                    return self.demonitor(monitor);
                }
                demonitor::<dyn AnyControl>(&**self.control(), monitor, true)
            }
        }
    };
}
ties!(Me);
ties!(Mailbox);
