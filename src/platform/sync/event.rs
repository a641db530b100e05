//! `Event` for shuttle, with the interface of event-listener. The crate event-listener calls wakers while it holds an
//! internal lock. Shuttle does not observe this lock, and runs all threads on one system thread. If one thread waited
//! for the internal lock, the thread that holds the lock could not run, and shuttle would wait forever.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::platform::sync::{Arc, Mutex};

/// The waiting listeners in order of arrival, and the notified listeners that have not been polled after their
/// notification.
#[derive(Debug, Default)]
struct Listeners {
    next: u64,
    waiting: BTreeMap<u64, Option<Waker>>,
    notified: BTreeMap<u64, ()>,
}

#[derive(Debug, Default)]
pub(crate) struct Event(Arc<Mutex<Listeners>>);

impl Event {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn listen(&self) -> EventListener {
        let mut listeners = self.0.lock();
        let number = listeners.next;
        listeners.next += 1;
        listeners.waiting.insert(number, None);
        EventListener { event: Arc::clone(&self.0), number }
    }

    /// Notifies listeners, starting with the oldest listener. This function stops when the number of notified listeners
    /// is `count`. A listener that has taken its notification is not counted.
    pub(crate) fn notify(&self, count: usize) {
        let mut wakers = Vec::new();
        let mut listeners = self.0.lock();
        while listeners.notified.len() < count
            && let Some((number, waker)) = listeners.waiting.pop_first()
        {
            listeners.notified.insert(number, ());
            wakers.extend(waker);
        }
        drop(listeners);
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[derive(Debug)]
pub(crate) struct EventListener {
    event: Arc<Mutex<Listeners>>,
    number: u64,
}

impl Future for EventListener {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut listeners = self.event.lock();
        if listeners.notified.remove(&self.number).is_some() {
            return Poll::Ready(());
        }
        let former = listeners.waiting.insert(self.number, Some(waker));
        drop(listeners);
        drop(former);
        Poll::Pending
    }
}

impl Drop for EventListener {
    fn drop(&mut self) {
        let mut listeners = self.event.lock();
        let former = listeners.waiting.remove(&self.number);
        // If this listener did not take its notification, the notification passes to the next listener.
        let passes_on = listeners.notified.remove(&self.number).is_some();
        let next = if passes_on { listeners.waiting.pop_first() } else { None };
        let woken = next.and_then(|(number, waker)| {
            listeners.notified.insert(number, ());
            waker
        });
        drop(listeners);
        drop(former);
        woken.into_iter().for_each(Waker::wake);
    }
}
