//! A server for the Redis protocol, on processes: one process per client, and supervised processes as shards of the
//! keys. `redis-cli` and `redis-benchmark` work with it unchanged. The README describes the architecture.

mod commands;
mod connection;
mod pipeline;
mod pubsub;
mod resp;
mod server;
mod session;
mod shard;
mod store;
#[cfg(test)]
mod tests;

pub use resp::Limits;
pub use server::{Config, Listener, server};
