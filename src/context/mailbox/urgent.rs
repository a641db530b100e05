//! The part of the receiver that takes urgent messages. The process has the flag `URGENT` while its mailbox contains
//! urgent messages. The receiver calls the functions of this file only if this flag is set. The queue of urgent
//! messages is in `process/mailbox/urgent.rs`.

use std::task::Poll;

use crate::context::mailbox::Mailbox;
use crate::host::control::flag;
use crate::process::exit::Exit;

impl<M: Send + 'static> Mailbox<M> {
    /// Takes the next urgent message, if there is one.
    #[cold]
    pub(super) fn take_urgent(&mut self) -> Option<M> {
        let control = self.me.control();
        control.inbox.pop_urgent(&mut self.front, || control.head.unset(flag::URGENT))
    }

    /// Passes the urgent messages to `pick`, starting with the oldest message. A message that `pick` returns keeps its
    /// position in the queue.
    #[cold]
    pub(super) fn pick_urgent<T>(
        &mut self,
        looked_at: &mut usize,
        pick: &mut impl FnMut(M) -> Result<T, M>,
    ) -> Option<T> {
        let control = self.me.control();
        while let Some(message) = control.inbox.look_at_urgent(&mut self.front, *looked_at) {
            match pick(message) {
                Ok(picked) => {
                    control.inbox.settle_urgent(|| control.head.unset(flag::URGENT));
                    return Some(picked);
                }
                Err(message) => {
                    if let Err(message) = control.inbox.put_back_urgent(*looked_at, message) {
                        control.drop_unread([message].into());
                    }
                    *looked_at += 1;
                }
            }
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
