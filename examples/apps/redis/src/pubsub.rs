//! Publish and subscribe. A channel is a process group: its members are the processes of the connections that have
//! subscribed. So no process owns a channel. When the process of a connection exits, it leaves all its channels.

use std::sync::Arc;
use std::time::Duration;

use procession::{Host, SendErrorKind};

use crate::commands::Answer;
use crate::resp::Encoder;
use crate::session::SessionCall;
use crate::store::Bytes;

/// Maximum number of unread messages of a subscriber. If a subscriber reads too slowly, it is disconnected.
pub(crate) const MOST_UNREAD: usize = 4_096;

/// Message of a channel, encoded for version 2 of the protocol. All subscribers share these bytes.
pub(crate) type Mail = Arc<[u8]>;

/// Appends a message. In version 3 of the protocol, only the first byte of a message differs.
pub(crate) fn push_mail(out: &mut Vec<u8>, mail: &Mail, resp3: bool) {
    let start = out.len();
    out.extend_from_slice(mail);
    if resp3 && let Some(kind) = out.get_mut(start) {
        *kind = b'>';
    }
}

/// Returns the name of the process group of a channel. A channel name may consist of any bytes, so each byte becomes
/// one character.
fn group(channel: &[u8]) -> String {
    "channel ".chars().chain(channel.iter().map(|byte| char::from(*byte))).collect()
}

pub(crate) fn publish(call: &mut SessionCall<'_>) -> Answer {
    let (channel, text) = (call.args.get(1), call.args.get(2));
    let receivers = send(call.me.host(), channel, text);
    call.reply().int(receivers as i64);
    Ok(())
}

/// Sends a message to the subscribers of a channel. Returns the number of subscribers that received the message.
fn send(host: &Host, channel: &[u8], text: &[u8]) -> usize {
    let subscribers = host.members::<Mail>(&*group(channel));
    if subscribers.is_empty() {
        return 0;
    }
    let mut encoded = Vec::with_capacity(channel.len() + text.len() + 64);
    let mut encoder = Encoder::new(&mut encoded, false);
    encoder.push(3);
    encoder.bulk("message");
    encoder.bulk(channel);
    encoder.bulk(text);
    let mail = Mail::from(encoded);
    let mut receivers = 0;
    for subscriber in subscribers {
        match subscriber.send(Arc::clone(&mail)) {
            Ok(()) => receivers += 1,
            Err(refused) if refused.kind() == SendErrorKind::Full => {
                let _ = host.cancel(subscriber.pid(), "it reads too slowly", Duration::ZERO);
            }
            // The subscriber is exiting.
            Err(_) => {}
        }
    }
    receivers
}

pub(crate) fn subscribe(call: &mut SessionCall<'_>) -> Answer {
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
    let mut channels: Vec<Bytes> = call.args.from(1).map(Into::into).collect();
    if channels.is_empty() {
        channels.extend(call.session.channels.iter().cloned());
    }
    if channels.is_empty() {
        confirm(call, "unsubscribe", None);
    }
    for channel in &channels {
        if call.session.channels.remove(channel) {
            call.me.leave_group(&*group(channel));
        }
        confirm(call, "unsubscribe", Some(channel));
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
