//! A server for the Redis protocol. Each client has its own process, and supervised processes own the keys. `redis-cli`
//! and `redis-benchmark` work with the server unchanged. The README describes the architecture.

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
