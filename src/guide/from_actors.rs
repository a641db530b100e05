//! For users of actix, ractor or kameo. This page lists the terms for actors and their counterparts in this crate. The
//! page describes actix 0.13, ractor 0.16 and kameo 0.22.
//!
//! In this crate, an actor is called a process. The counterpart of a struct with message handlers is a
//! [`Server`](crate::Server):
//!
//! ```
//! use procession::{Context, Exit, Next, Reply, Runtime, Server};
//!
//! struct Counter {
//!     count: u64,
//! }
//!
//! enum Msg {
//!     Add(u64),
//!     Get(Reply<u64>),
//! }
//!
//! impl Server for Counter {
//!     type Message = Msg;
//!     type Output = ();
//!
//!     async fn handle(&mut self, message: Msg, _: &mut Context<Msg>) -> Result<Next<()>, Exit> {
//!         match message {
//!             Msg::Add(n) => self.count += n,
//!             Msg::Get(reply) => reply.send(self.count),
//!         }
//!         Ok(Next::Wait)
//!     }
//! }
//!
//! fn main() -> procession::Result {
//!     let rt = Runtime::new()?;
//!     let counter = rt.spawn(|ctx| Counter { count: 0 }.serve(ctx));
//!     counter.send(Msg::Add(2))?;
//!     assert_eq!(rt.block_on(counter.call(Msg::Get))?, 2);
//!     Ok(())
//! }
//! ```
//!
//! | | actix | ractor | kameo | here |
//! |---|---|---|---|---|
//! | state and handlers | `Actor`, `Handler<M>` | `Actor`, with a separate `State` | `Actor`, `Message<M>` | [`Server`](crate::Server), an async body, or [`Process`](crate::Process) |
//! | messages of an actor | one type for each `Handler` | one type | one type for each `Message` impl | one type, usually an enum |
//! | address | `Addr<A>` | `ActorRef<M>` | `ActorRef<A>` | [`Address<M>`](crate::Address) |
//! | address that accepts one kind of message | `Recipient<M>` | `DerivedActorRef` | `Recipient<M>` | [`Recipient<A>`](crate::Recipient) |
//! | send without an answer | `do_send`, `try_send` | `cast` | `tell` | [`send`](crate::Address::send) |
//! | send, and wait for free space in the mailbox | `send(…).await`, which also waits for the answer | – | `tell(…).await` | [`send_wait`](crate::Address::send_wait) |
//! | request with an answer | `send(…).await` | `call` | `ask(…).await` | [`call`](crate::Address::call); [`call_wait`](crate::Address::call_wait) also waits for free space |
//! | the answer | return value | `RpcReplyPort` | return value, `DelegatedReply` | [`Reply`](crate::Reply), now or later |
//! | let another actor answer | – | send the `RpcReplyPort` in a message | `Context::forward` | [`Reply::forward`](crate::Reply::forward) |
//! | time limit of a request | `timeout` | argument of `call` | `reply_timeout` | [`Call::timeout`](crate::future::Call::timeout) |
//! | spawn | `start` | `Actor::spawn` | `Actor::spawn` | [`Host::spawn`](crate::Host::spawn) |
//! | start and end | `started`, `stopping`, `stopped` | `pre_start`, `post_start`, `post_stop` | `on_start`, `on_stop` | [`init`](crate::Server::init), [`terminate`](crate::Server::terminate) |
//! | mailbox | 16 messages by default | unbounded | 64 messages by default | unbounded by default, [`MailboxCapacity`](crate::MailboxCapacity) |
//! | links | – | supervisor and child; `monitor` with the feature `monitors` | `link`, `on_link_died` | [`link`](crate::SelfHandle::link), [`monitor`](crate::SelfHandle::monitor) |
//! | restarts | `Supervisor` | by hand, in `handle_supervisor_evt` | `supervise`, strategies | [`Supervisor`](crate::Supervisor), strategies |
//! | lookup by name | `Registry`, by type | `registry::where_is` | `lookup` | [`Name`](crate::Name), [`Host::whereis`](crate::Host::whereis) |
//! | groups | – | `pg` | crate `kameo_actors` | [`Group`](crate::Group) |
//! | several actors that share one address | `SyncArbiter` | `factory` | crate `kameo_actors` | [`Pool`](crate::Pool) |
//! | timers | `run_later`, `run_interval` | `send_after`, `send_interval` | `send_after` | [`send_after`](crate::SelfHandle::send_after), [`send_interval`](crate::SelfHandle::send_interval), [`sleep`](crate::SelfHandle::sleep) |
//! | runs on | an arbiter, which is one thread | tokio | tokio | its own workers, or inside another runtime |
//! | tests in virtual time and in many orders | – | – | – | [`Simulation`](crate::Simulation), [`check`](crate::check()) |
//!
//! # What surprises users of actor libraries
//!
//! - **A process outlives its addresses.** An actor of actix or kameo stops when its last address is dropped. A process
//!   continues until it returns, fails, or is cancelled. To end a process, call [`cancel`](crate::Host::cancel), or
//!   spawn the process in a [`scope`](crate::SelfHandle::scope).
//! - **A body can receive anywhere.** A handler of an actor gets one message at a time. The body of a process calls
//!   [`receive`](crate::Context::receive) at each place where its protocol needs a message. Therefore a dialogue of
//!   several messages needs no state machine. A handler of a `Server` can also call `receive`.
//! - **Messages wait while a handler awaits.** This rule also applies to the actors of ractor and kameo. For concurrent
//!   work, spawn another process, or store the `Reply` and answer later. A hand-written [`Process`](crate::Process) can
//!   have many requests in flight.
//! - **A process performs I/O with commands or sockets.** A handler that is registered in the runtime answers a
//!   [`Command`](crate::Command). A test can register a different handler. With the feature `net`, a process can also
//!   await sockets directly.
//! - **A panic ends the process**, and callers get [`CallError::Died`](crate::CallError::Died) immediately.
