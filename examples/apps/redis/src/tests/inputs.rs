//! Clients that send random commands and vanish, against the whole server.

use futures::AsyncWriteExt;
use proptest::collection::vec;
use proptest::prelude::*;

use super::random::{known_command, mutated, settings};
use super::{config, simulate};

proptest! {
    #![proptest_config(settings(32))]

    /// The client sends its bytes, reads no reply, and vanishes. The process of this client must exit, and a second
    /// client must get the replies to its commands.
    #[test]
    fn random_commands_affect_only_their_own_client(pieces in vec(mutated(known_command()), 1..4), shards in 1_usize..4) {
        simulate(&config(shards), async |world| {
            let mut client = world.connect();
            for bytes in &pieces {
                // The write fails if the server has closed the connection after an error.
                let _ = client.pipe.write_all(bytes).await;
                world.sleep(1).await;
            }
            drop(client);
            world.wait_for_clients(0).await;
            let mut other = world.connect();
            other.ask("FLUSHALL", "+OK\r\n").await;
            other.ask("SET a 1", "+OK\r\n").await;
            other.ask("GET a", "$1\r\n1\r\n").await;
        });
    }
}
