//! The machine of a hand-written process. `body.rs` contains the machine of an async body.

use std::any::Any;
use std::pin::Pin;
use std::task::Context;

use pin_project_lite::pin_project;

use crate::context::me::SelfHandle;
use crate::context::step::{AnyProcess, Mail, Next, Process, Start, StepOutput};
use crate::host::control::Control;
use crate::platform::sync::planted;
use crate::process::error::InitError;
use crate::process::exit::Exit;
use crate::process::payload::Payload;
use crate::process::state::Ref;
use crate::process::state::current::Current;
use crate::task::{Entry, Machine, Progress};

pin_project! {
    /// A [`Machine`] that runs a hand-written process.
    pub(crate) struct Raw<P: Process> {
        phase: LifecyclePhase<P>,
    }
}

/// Stage of the life cycle of a hand-written process.
enum LifecyclePhase<P: Process> {
    /// The process has not had its first turn. The entry is boxed, because most processes have no entry point and no
    /// input. The entry is dropped in the first turn.
    Fresh {
        process: P,
        entry: Option<Box<Entry>>,
    },
    Alive {
        process: P,
        mail: Mail<P::Message>,
    },
    /// The process was replaced by an upgrade.
    Upgraded(Box<Upgraded<P>>),
    /// The process is in its `init`, or its `init` has failed or has panicked.
    Failed {
        process: P,
    },
    Gone,
}

/// A process that has replaced another process by an upgrade. Most processes are never replaced. Therefore, the enum
/// contains this type in a box, and the other variants stay small.
struct Upgraded<P: Process> {
    process: AnyProcess<P::Message, P::Output>,
    mail: Mail<P::Message>,
}

impl<P: Process> LifecyclePhase<P> {
    /// Drops the present process and stores `next` instead. The process `next` gets the unread events of the present
    /// process.
    #[cold]
    fn replace_by(&mut self, next: Box<dyn Any + Send>) {
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
        Self { phase: LifecyclePhase::Fresh { process, entry } }
    }

    pub(crate) fn into_inner(self) -> Option<P> {
        match self.phase {
            LifecyclePhase::Fresh { process, .. }
            | LifecyclePhase::Alive { process, .. }
            | LifecyclePhase::Failed { process } => Some(process),
            LifecyclePhase::Upgraded(_) | LifecyclePhase::Gone => None,
        }
    }
}

impl<P: Process> Machine for Raw<P> {
    type Message = P::Message;
    type Output = P::Output;

    const KEEPS_ITSELF: bool = false;

    fn name() -> &'static str {
        std::any::type_name::<P>()
    }

    fn entry_name(&self) -> &str {
        match &self.phase {
            LifecyclePhase::Fresh { entry: Some(entry), .. } => &entry.name,
            _ => "",
        }
    }

    fn keep(self: Pin<&mut Self>, _: Ref<Control<P::Message>>) {}

    fn progress(self: Pin<&mut Self>) -> Progress {
        match self.phase {
            LifecyclePhase::Fresh { .. } => Progress::NeedsInit,
            LifecyclePhase::Gone => Progress::Gone,
            _ => Progress::Begun,
        }
    }

    fn init(self: Pin<&mut Self>, me: &SelfHandle<P::Message>) -> Result<(), InitError> {
        let phase = self.project().phase;
        let LifecyclePhase::Fresh { process, entry } = std::mem::replace(phase, LifecyclePhase::Gone) else {
            return Ok(());
        };
        *phase = LifecyclePhase::Failed { process };
        let LifecyclePhase::Failed { process } = phase else { unreachable!("set just now") };
        let Entry { name, input } = entry.map(|entry| *entry).unwrap_or_default();
        let head = &me.control().head;
        let input = input.unwrap_or_else(|| Payload::new(()));
        process.init(Start { entry: &name, input, pid: head.pid(), inherited: head.inherited() })?;
        if let LifecyclePhase::Failed { process } = std::mem::replace(phase, LifecyclePhase::Gone) {
            *phase = LifecyclePhase::Alive { process, mail: Mail::new() };
        }
        Ok(())
    }

    fn step(
        self: Pin<&mut Self>,
        current: &Current,
        me: &SelfHandle<P::Message>,
        cx: &mut Context<'_>,
    ) -> Result<Next<P::Output>, Exit> {
        let phase = self.project().phase;
        let mut out = StepOutput::new::<P::Output>(me, cx.waker());
        let Some(turn) = current.in_step(me.control().address()) else { unreachable!("it is stepped in its turn") };
        let (next, mail) = match phase {
            LifecyclePhase::Alive { process, mail } => (process.step(mail.events(me.control()), &mut out)?, mail),
            LifecyclePhase::Upgraded(upgraded) => {
                let Upgraded { process, mail } = &mut **upgraded;
                (process.step(mail.events(me.control()), &mut out)?, mail)
            }
            _ => unreachable!("it is stepped between its start and its end"),
        };
        if current.upgrade.is_pending() {
            // The step has polled a future that requests an upgrade of an async body. The task of a hand-written
            // process cannot grant this request. The request must not stay on the thread. Otherwise the next body that
            // runs on this thread would be replaced because of this request.
            current.upgrade.forget();
        }
        let missed = matches!(next, Next::Wait) && mail.missed(me.control(), turn);
        if let Some(successor) = out.take_successor()
            && matches!(next, Next::Wait | Next::Again)
        {
            phase.replace_by(successor);
            return Ok(if planted!("upgrade_does_not_step_again") { next } else { Next::Again });
        }
        Ok(if missed { Next::Again } else { next })
    }

    fn close(self: Pin<&mut Self>) {
        match self.project().phase {
            LifecyclePhase::Alive { process, .. } => process.close(),
            LifecyclePhase::Upgraded(upgraded) => upgraded.process.close(),
            _ => {}
        }
    }

    fn clear(self: Pin<&mut Self>, me: &SelfHandle<P::Message>) {
        let mut phase = std::mem::replace(self.project().phase, LifecyclePhase::Gone);
        if let Some(mail) = phase.mail() {
            let (unread, _unheard) = mail.take();
            me.control().drop_unread(unread);
        }
    }
}
