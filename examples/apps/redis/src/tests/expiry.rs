//! Keys that expire, in virtual time.

use super::{config, simulate};

#[test]
fn a_key_expires_after_its_time_to_live() {
    simulate(&config(1), async |world| {
        let mut client = world.connect();
        client.ask("SET a 1 PX 100", "+OK\r\n").await;
        client.ask("SET b 1 EX 10", "+OK\r\n").await;
        client.ask("SET c 1", "+OK\r\n").await;
        client.ask("EXPIRE c 20", ":1\r\n").await;
        client.ask("EXPIRE nokey 20", ":0\r\n").await;
        client.ask("TTL b", ":10\r\n").await;
        client.ask("PTTL a", ":100\r\n").await;
        world.sleep(99).await;
        client.ask("GET a", "$1\r\n1\r\n").await;
        world.sleep(2).await;
        client.ask("GET a", "$-1\r\n").await;
        client.ask("TTL a", ":-2\r\n").await;
        world.sleep(9_000).await;
        client.ask("TTL b", ":1\r\n").await;
        client.ask("EXISTS b c", ":2\r\n").await;
        world.sleep(1_000).await;
        client.ask("EXISTS b c", ":1\r\n").await;
        client.ask("PERSIST c", ":1\r\n").await;
        client.ask("PERSIST c", ":0\r\n").await;
        world.sleep(100_000).await;
        client.ask("TTL c", ":-1\r\n").await;
        client.ask("EXISTS c", ":1\r\n").await;
    });
}

/// The timer of the shard removes an expired key, even if no command uses this key.
#[test]
fn an_expired_key_is_removed_without_a_command() {
    simulate(&config(2), async |world| {
        let mut client = world.connect();
        for n in 0..1_000 {
            client.ask(&format!("SET key{n} 1 PX {}", 100 + n % 7), "+OK\r\n").await;
        }
        client.ask("SET stays 1 EX 1000", "+OK\r\n").await;
        client.ask("DBSIZE", ":1001\r\n").await;
        assert!(client.info().await.contains("db0:keys=1001,expires=1001"));
        world.sleep(2_000).await;
        client.ask("DBSIZE", ":1\r\n").await;
        assert!(client.info().await.contains("db0:keys=1,expires=1"));
    });
}

#[test]
fn a_write_keeps_or_removes_the_time_to_live() {
    simulate(&config(1), async |world| {
        let mut client = world.connect();
        for (write, ttl) in [
            ("SET a 2", ":-1\r\n"),
            ("SET a 2 KEEPTTL", ":50\r\n"),
            ("SET a 2 EX 70", ":70\r\n"),
            ("APPEND a x", ":50\r\n"),
            ("EXPIRE a 60", ":60\r\n"),
            ("EXPIRE a 60 NX", ":50\r\n"),
            ("EXPIRE a 60 XX", ":60\r\n"),
            ("EXPIRE a 60 GT", ":60\r\n"),
            ("EXPIRE a 60 LT", ":50\r\n"),
            ("EXPIRE a 0", ":-2\r\n"),
            ("PEXPIRE a -1", ":-2\r\n"),
            ("DEL a", ":-2\r\n"),
        ] {
            client.ask("SET a 1 EX 50", "+OK\r\n").await;
            client.send(format!("{write}\r\nECHO end\r\n")).await;
            let mut reply = String::new();
            while !reply.ends_with("$3\r\nend\r\n") {
                let mut byte = [0];
                futures::AsyncReadExt::read_exact(&mut client.pipe, &mut byte).await.expect("the server replies");
                reply.push(byte[0].into());
            }
            client.ask("TTL a", ttl).await;
        }
    });
}

/// If a time to live exceeds the range of the runtime's clock, the time to live still stays exact.
#[test]
fn a_time_to_live_of_a_million_years_is_exact() {
    simulate(&config(1), async |world| {
        let mut client = world.connect();
        client.ask("SET a 1 EX 31536000000000", "+OK\r\n").await;
        client.ask("TTL a", ":31536000000000\r\n").await;
        world.sleep(1_000).await;
        client.ask("TTL a", ":31535999999999\r\n").await;
    });
}
