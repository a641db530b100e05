//! The part of the receiver that takes urgent messages. The process has the flag `URGENT` while its mailbox contains
//! urgent messages. The receiver calls the functions of this file only if this flag is set. The queue of urgent
//! messages is in `process/mailbox/urgent.rs`.

use std::task::Poll;

use crate::context::mailbox::Mailbox;
use crate::host::control::{Control, flag};
use crate::process::exit::Exit;

impl<M: Send + 'static> Mailbox<M> {
    /// Takes the next urgent message, if there is one.
    #[cold]
    pub(super) fn take_urgent(&mut self) -> Option<M> {
        let control = self.me.control();
        control.inbox.pop_urgent(&mut self.front, || control.head.unset(flag::URGENT))
    }

    /// Passes the urgent messages to `pick`, starting with the oldest message. If `pick` returns the message in an
    /// `Err`, the message keeps its position in the queue.
    #[cold]
    pub(super) fn pick_urgent<T>(
        &mut self,
        looked_at: &mut usize,
        pick: &mut impl FnMut(M) -> Result<T, M>,
    ) -> Option<T> {
        let control = self.me.control();
        while let Some(message) = control.inbox.look_at_urgent(&mut self.front, *looked_at) {
            // If `pick` panics, the message is lost, and the drop of this value removes the place of the message from
            // the queue.
            let place = EmptyPlace { control, at: *looked_at };
            match pick(message) {
                Ok(picked) => return Some(picked),
                Err(message) => place.fill(message),
            }
            *looked_at += 1;
        }
        None
    }

    /// Checks for a cancel request and for an urgent message. Returns `None` if there is no cancel request and no
    /// urgent message. The caller has taken a unit from the budget.
    #[cold]
    pub(super) fn poll_disturbed(&mut self, message: &mut Option<M>) -> Option<Poll<Result<(), Exit>>> {
        if let Some((reason, _)) = self.me.control().head.cancel() {
            return Some(Poll::Ready(Err(Exit::Cancelled(reason))));
        }
        *message = Some(self.take_urgent()?);
        Some(Poll::Ready(Ok(())))
    }
}

/// Place of the urgent message that the receiver inspects. The drop of this value removes the place from the queue.
struct EmptyPlace<'a, M: Send + 'static> {
    control: &'a Control<M>,
    at: usize,
}

impl<M: Send + 'static> EmptyPlace<'_, M> {
    /// Puts the message back into its place.
    fn fill(self, message: M) {
        if let Err(message) = self.control.inbox.put_back_urgent(self.at, message) {
            self.control.drop_unread([message].into());
        }
        std::mem::forget(self);
    }
}

impl<M: Send + 'static> Drop for EmptyPlace<'_, M> {
    fn drop(&mut self) {
        self.control.inbox.drop_urgent_place(self.at, || self.control.head.unset(flag::URGENT));
    }
}
