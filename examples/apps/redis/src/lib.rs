//! A server for the Redis protocol. Each client has its own process, and supervised processes own the keys. The README
//! describes the architecture.
//!
//! `redis-cli` and `redis-benchmark` work with the server, but the server does not have all commands of Redis. The
//! server has no sorted sets. Therefore `redis-benchmark` needs the option
//! `-t ping,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,lrange,mset`. The server has no `SCAN`. Therefore the
//! options `--scan` and `--bigkeys` of `redis-cli` stop with an error.

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

/// Checks the properties of the parser for the input `bytes`. If the parser violates a property, the function panics.
/// Only the fuzz target `resp` calls this function.
#[cfg(fuzzing)]
pub fn check_parser(bytes: &[u8]) {
    resp::check::check(bytes, &[]);
}
pub use server::{Config, Listener, server};
