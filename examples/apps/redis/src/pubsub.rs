//! Publish and subscribe. A channel is a process group: its members are the processes of the connections that have
//! subscribed. So no process owns a channel. When the process of a connection exits, the process leaves all its
//! channels.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use procession::{Address, Mailbox, Pid};

use crate::commands::Answer;
use crate::resp::Encoder;
use crate::session::{Session, SessionCall};
use crate::store::Bytes;

/// Number of bytes that each message adds to the unread bytes, in addition to the encoded bytes of the message. So the
/// limit of unread bytes also limits the number of unread messages.
const OVERHEAD: usize = 64;

/// Message of a channel. All subscribers share the message.
pub(crate) type Mail = Arc<Message>;

#[derive(Debug)]
pub(crate) struct Message {
    channel: Bytes,
    /// The message in version 2 of the protocol.
    encoded: Vec<u8>,
}

impl Message {
    fn new(channel: &[u8], text: &[u8]) -> Self {
        let mut encoded = Vec::with_capacity(channel.len() + text.len() + 64);
        let mut encoder = Encoder::new(&mut encoded, false);
        encoder.push(3);
        encoder.bulk("message");
        encoder.bulk(channel);
        encoder.bulk(text);
        Self { channel: channel.into(), encoded }
    }

    /// Number of bytes that this message adds to the unread bytes of a subscriber.
    fn size(&self) -> usize {
        self.encoded.len() + OVERHEAD
    }
}

/// The number of unread bytes of each subscriber. Publishers add to the number of a subscriber, and the subscriber
/// subtracts from this number.
#[derive(Debug, Default)]
pub(crate) struct Unread(RwLock<HashMap<Pid, Arc<AtomicUsize>>>);

impl Unread {
    fn insert(&self, pid: Pid, count: &Arc<AtomicUsize>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(pid, Arc::clone(count));
    }

    /// Removes a client that has left its last channel.
    pub(crate) fn remove(&self, pid: Pid) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&pid);
    }

    /// Returns each subscriber with the counter of its unread bytes. The result does not contain a subscriber without
    /// an entry, because this subscriber has left the channel or is exiting. The caller sends messages only after this
    /// function has released the lock.
    fn with_counts(&self, subscribers: Vec<Address<Mail>>) -> Vec<(Address<Mail>, Arc<AtomicUsize>)> {
        let counts = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let with_count =
            |subscriber: Address<_>| counts.get(&subscriber.pid()).cloned().map(|count| (subscriber, count));
        subscribers.into_iter().filter_map(with_count).collect()
    }
}

/// Appends a message that the process of this connection has received in its mailbox. A message in version 3 of the
/// protocol differs from a message in version 2 only in its first byte.
///
/// If the client has left the channel, the message is dropped. A publisher on another worker can send a message of this
/// channel after the confirmation of `UNSUBSCRIBE`. A client of version 2 would read this message as the reply to its
/// next command.
pub(crate) fn push_mail(out: &mut Vec<u8>, mail: &Message, session: &Session) {
    session.unread.fetch_sub(mail.size(), Ordering::Relaxed);
    if !session.channels.contains(&mail.channel) {
        return;
    }
    let start = out.len();
    out.extend_from_slice(&mail.encoded);
    if session.resp3
        && let Some(kind) = out.get_mut(start)
    {
        *kind = b'>';
    }
}

/// Takes messages from the mailbox and appends these messages to `out`. The function ends when the mailbox is empty, or
/// when the total size of the taken messages has reached `most` bytes. The size of a message counts even if
/// [`push_mail`] drops the message. This function takes no unit of the budget.
pub(crate) fn push_unread(out: &mut Vec<u8>, mailbox: &mut Mailbox<Mail>, session: &Session, most: usize) {
    let mut count = 0;
    while count < most
        && let Some(mail) = mailbox.try_receive()
    {
        count += mail.size();
        push_mail(out, &mail, session);
    }
}

/// Returns the name of the process group of a channel. A channel name may consist of any bytes, so each byte becomes
/// one character.
fn group(channel: &[u8]) -> String {
    "channel ".chars().chain(channel.iter().map(|byte| char::from(*byte))).collect()
}

pub(crate) fn publish(call: &mut SessionCall<'_>) -> Answer {
    let (channel, text) = (call.args.get(1), call.args.get(2));
    let receivers = send(call, channel, text);
    call.reply().int(receivers);
    Ok(())
}

/// Sends a message to the subscribers of a channel. Returns the number of subscribers whose mailboxes have accepted the
/// message.
///
/// A subscriber with too many unread bytes is disconnected, as in Redis. So a publisher never waits for a slow
/// subscriber, and the memory for unread messages is bounded.
fn send(call: &SessionCall<'_>, channel: &[u8], text: &[u8]) -> i64 {
    let host = call.me.host();
    let subscribers = host.members::<Mail>(&*group(channel));
    if subscribers.is_empty() {
        return 0;
    }
    let mail = Mail::new(Message::new(channel, text));
    let limit = call.server.config().limits.mail;
    let mut receivers = 0;
    for (subscriber, count) in call.server.unread().with_counts(subscribers) {
        if count.fetch_add(mail.size(), Ordering::Relaxed) + mail.size() > limit {
            let _ = host.cancel(subscriber.pid(), "it reads too slowly", Duration::ZERO);
        } else if subscriber.send(Arc::clone(&mail)).is_ok() {
            receivers += 1;
        }
    }
    receivers
}

pub(crate) fn subscribe(call: &mut SessionCall<'_>) -> Answer {
    if call.session.channels.is_empty() {
        call.server.unread().insert(call.me.pid(), &call.session.unread);
    }
    for channel in call.args.from(1) {
        if call.session.channels.insert(channel.into()) {
            call.me.join_group(&*group(channel));
        }
        confirm(call, "subscribe", Some(channel));
    }
    call.server.update_client(call.session);
    Ok(())
}

pub(crate) fn unsubscribe(call: &mut SessionCall<'_>) -> Answer {
    let was_subscribed = !call.session.channels.is_empty();
    let mut channels: Vec<Bytes> = call.args.from(1).map(Into::into).collect();
    if channels.is_empty() {
        channels.extend(call.session.channels.iter().cloned());
    }
    if channels.is_empty() {
        confirm(call, "unsubscribe", None);
    }
    for channel in channels.iter().filter(|channel| call.session.channels.contains(*channel)) {
        call.me.leave_group(&*group(channel));
    }
    // The messages that were sent before this command precede the confirmations, as in Redis. Publishers may still send
    // messages to the other channels of this client. Without the bound `unread`, this step would not end while the
    // publishers send messages.
    let unread = call.session.unread.load(Ordering::Relaxed);
    push_unread(call.out, call.mailbox, call.session, unread);
    for channel in &channels {
        call.session.channels.remove(channel);
        confirm(call, "unsubscribe", Some(channel));
    }
    if was_subscribed && call.session.channels.is_empty() {
        call.server.unread().remove(call.me.pid());
    }
    call.server.update_client(call.session);
    Ok(())
}

/// Writes a confirmation that contains the number of channels to which the client is now subscribed.
fn confirm(call: &mut SessionCall<'_>, what: &str, channel: Option<&[u8]>) {
    let count = call.session.channels.len() as i64;
    let mut reply = call.reply();
    reply.push(3);
    reply.bulk(what);
    match channel {
        Some(channel) => reply.bulk(channel),
        None => reply.null(),
    }
    reply.int(count);
}
