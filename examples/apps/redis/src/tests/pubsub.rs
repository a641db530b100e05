//! Publish and subscribe.

use futures::AsyncReadExt;

use super::{config, simulate};
use crate::resp::Limits;
use crate::server::Config;

const SUBSCRIBED: &str = "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
const MESSAGE: &str = "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n";

#[test]
fn a_subscriber_receives_messages_in_order() {
    simulate(&config(2), async |world| {
        let (mut one, mut two, mut publisher) = (world.connect(), world.connect(), world.connect());
        one.ask("SUBSCRIBE news", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n").await;
        two.ask("SUBSCRIBE news x", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n").await;
        two.expect("*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:2\r\n").await;
        publisher.send("PUBLISH news 1\r\nPUBLISH x 2\r\nPUBLISH y 3\r\nPUBLISH news 4\r\n").await;
        publisher.expect(":2\r\n:1\r\n:0\r\n:2\r\n").await;
        let message = |channel: &str, text: &str| {
            format!("*3\r\n$7\r\nmessage\r\n${}\r\n{channel}\r\n$1\r\n{text}\r\n", channel.len())
        };
        one.expect(message("news", "1") + &message("news", "4")).await;
        two.expect(message("news", "1") + &message("x", "2") + &message("news", "4")).await;
    });
}

/// In one pipeline, a `PUBLISH` follows a write. When the subscriber receives the message, the write is visible.
#[test]
fn a_publish_runs_after_the_earlier_commands_of_its_pipeline() {
    simulate(&config(3), async |world| {
        let (mut reader, mut subscriber, mut writer) = (world.connect(), world.connect(), world.connect());
        subscriber.ask("SUBSCRIBE c", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n").await;
        for n in 0..5 {
            writer.send(format!("SET a {n}\r\nSET b {n}\r\nPUBLISH c x\r\n")).await;
            subscriber.expect("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n").await;
            reader.ask("MGET a b", &format!("*2\r\n$1\r\n{n}\r\n$1\r\n{n}\r\n")).await;
            writer.expect("+OK\r\n+OK\r\n:1\r\n").await;
        }
    });
}

#[test]
fn a_client_of_version_2_may_only_use_some_commands_while_it_is_subscribed() {
    simulate(&config(1), async |world| {
        let mut client = world.connect();
        client.send("SUBSCRIBE a b a\r\nGET x\r\nPING\r\nPING x\r\nUNSUBSCRIBE a zz\r\nUNSUBSCRIBE\r\n").await;
        client.send("UNSUBSCRIBE\r\nGET x\r\nSUBSCRIBE a\r\nCLIENT GETNAME\r\n").await;
        // Redis 7.0.15 sends the same replies to these commands.
        client
            .expect(
                "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n\
                 *3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:2\r\n\
                 -ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
                 this context\r\n*2\r\n$4\r\npong\r\n$0\r\n\r\n*2\r\n$4\r\npong\r\n$1\r\nx\r\n\
                 *3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$11\r\nunsubscribe\r\n$2\r\nzz\r\n:1\r\n\
                 *3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:0\r\n*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n$-1\r\n\
                 *3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n\
                 -ERR Can't execute 'client|getname': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
                 allowed in this context\r\n",
            )
            .await;
    });
}

#[test]
fn a_client_of_version_3_receives_pushes_between_its_replies() {
    simulate(&config(1), async |world| {
        let mut client = world.connect();
        client.send("HELLO 3 SETNAME bob\r\n").await;
        let mut hello = [0; 4];
        client.pipe.read_exact(&mut hello).await.expect("the server replies");
        assert_eq!(&hello, b"%7\r\n");
        client.send("SUBSCRIBE a\r\nGET x\r\nPING\r\n").await;
        let mut received = Vec::new();
        let end = b">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n_\r\n+PONG\r\n";
        while !received.ends_with(end) {
            let mut byte = [0];
            client.pipe.read_exact(&mut byte).await.expect("the server replies");
            received.push(byte[0]);
        }
        let mut publisher = world.connect();
        publisher.ask("PUBLISH a hi", ":1\r\n").await;
        client.expect(">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n").await;
        client.ask("CLIENT GETNAME", "$3\r\nbob\r\n").await;
    });
}

#[test]
fn a_channel_name_can_contain_any_bytes() {
    simulate(&config(1), async |world| {
        let (mut subscriber, mut publisher) = (world.connect(), world.connect());
        subscriber.send(b"*2\r\n$9\r\nSUBSCRIBE\r\n$3\r\n\xff\0\n\r\n").await;
        subscriber.expect(b"*3\r\n$9\r\nsubscribe\r\n$3\r\n\xff\0\n\r\n:1\r\n").await;
        publisher.send(b"*3\r\n$7\r\nPUBLISH\r\n$3\r\n\xff\0\n\r\n$1\r\n\x80\r\n").await;
        publisher.expect(":1\r\n").await;
        subscriber.expect(b"*3\r\n$7\r\nmessage\r\n$3\r\n\xff\0\n\r\n$1\r\n\x80\r\n").await;
        // In UTF-8, the character U+00FF consists of two bytes. A name that contains these two bytes instead of the
        // byte 0xff is the name of another channel.
        publisher.send("*3\r\n$7\r\nPUBLISH\r\n$4\r\n\u{ff}\0\n\r\n$1\r\nx\r\n").await;
        publisher.expect(":0\r\n").await;
    });
}

#[test]
fn a_client_that_vanishes_leaves_its_channels() {
    simulate(&config(1), async |world| {
        let (mut subscriber, mut publisher) = (world.connect(), world.connect());
        subscriber.ask("SUBSCRIBE c", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n").await;
        publisher.ask("PUBLISH c x", ":1\r\n").await;
        drop(subscriber);
        world.wait_for_clients(1).await;
        publisher.ask("PUBLISH c x", ":0\r\n").await;
    });
}

/// If a subscriber does not read, and its unread messages exceed the limit, the server disconnects the subscriber. The
/// publisher does not wait.
#[test]
fn a_slow_subscriber_is_disconnected() {
    let limits = Limits { output: 10_000, mail: 100_000, ..Limits::default() };
    simulate(&Config { limits, ..config(1) }, async |world| {
        let (mut slow, mut publisher) = (world.connect_through(100), world.connect());
        slow.ask("SUBSCRIBE c", SUBSCRIBED).await;
        let text = "x".repeat(100);
        let mut received = 0;
        // Each message adds 196 bytes to the unread bytes, so the mailbox holds 510 messages. The write buffer holds
        // about 80 messages.
        while received < 1_000 {
            publisher.send(format!("PUBLISH c {text}\r\n")).await;
            let mut reply = [0; 4];
            publisher.pipe.read_exact(&mut reply).await.expect("the server replies");
            if &reply == b":0\r\n" {
                break;
            }
            received += 1;
        }
        assert!((510..600).contains(&received), "{received}");
        world.wait_for_clients(1).await;
    });
}

/// Some publishers send long pipelines, and a subscriber reads. The processes of the publishers must yield, so that the
/// process of the subscriber can run. The process of the subscriber must receive the messages of all publishers in the
/// turns of this process.
#[test]
fn a_reading_subscriber_gets_all_messages_of_several_pipelines() {
    const COUNT: usize = 10_000;
    let config = Config { limits: Limits { mail: 600_000, ..Limits::default() }, ..config(1) };
    for count in [1, 3] {
        simulate(&config, async |world| {
            let mut subscriber = world.connect();
            subscriber.ask("SUBSCRIBE c", SUBSCRIBED).await;
            let mut publishers: Vec<_> = (0..count).map(|_| world.connect_through(1 << 20)).collect();
            for publisher in &mut publishers {
                publisher.send("PUBLISH c x\r\n".repeat(COUNT)).await;
            }
            subscriber.expect(MESSAGE.repeat(count * COUNT)).await;
            for publisher in &mut publishers {
                publisher.expect(":1\r\n".repeat(COUNT)).await;
            }
        });
    }
}

/// The messages that were published before an `UNSUBSCRIBE` precede the confirmation of the `UNSUBSCRIBE`. No message
/// follows the confirmation.
#[test]
fn no_message_follows_the_end_of_a_subscription() {
    let limits = Limits { output: 100, ..Limits::default() };
    simulate(&Config { limits, ..config(1) }, async |world| {
        let (mut subscriber, mut publisher) = (world.connect_through(20), world.connect());
        for end in ["UNSUBSCRIBE", "UNSUBSCRIBE c"] {
            subscriber.ask("SUBSCRIBE c", SUBSCRIBED).await;
            for _ in 0..50 {
                publisher.ask("PUBLISH c x", ":1\r\n").await;
            }
            subscriber.send(format!("{end}\r\n")).await;
            subscriber.expect(MESSAGE.repeat(50)).await;
            subscriber.expect("*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n").await;
            subscriber.ask("GET a", "$-1\r\n").await;
        }
    });
}

/// The messages in the mailbox exceed the limit of the output. The client reads immediately, so each write sends the
/// whole output. The connection then continues with the messages that are still in the mailbox.
#[test]
fn if_a_client_reads_immediately_the_messages_may_exceed_the_limit_of_the_output() {
    let limits = Limits { output: 100, ..Limits::default() };
    simulate(&Config { limits, ..config(1) }, async |world| {
        let (mut subscriber, mut publisher) = (world.connect(), world.connect());
        subscriber.ask("SUBSCRIBE c", SUBSCRIBED).await;
        for _ in 0..3 {
            publisher.send("PUBLISH c x\r\n".repeat(50)).await;
            publisher.expect(":1\r\n".repeat(50)).await;
            subscriber.expect(MESSAGE.repeat(50)).await;
        }
    });
}
