//! Chapter 2: messages, calls, names, and bounded mailboxes.
//!
//! The messages of a process usually form an enum. A message that expects an answer contains a [`Reply`](crate::Reply):
//!
//! ```
//! use procession::{Context, Exit, Reply, Runtime};
//! use std::time::Duration;
//!
//! enum Msg {
//!     Deposit(u64),
//!     Withdraw(u64, Reply<Result<u64, String>>),
//!     Balance(Reply<u64>),
//! }
//!
//! async fn account(mut ctx: Context<Msg>) -> Result<(), Exit> {
//!     let mut balance = 0;
//!     loop {
//!         match ctx.receive().await? {
//!             Msg::Deposit(amount) => balance += amount,
//!             Msg::Withdraw(amount, reply) if amount <= balance => {
//!                 balance -= amount;
//!                 reply.send(Ok(balance));
//!             }
//!             Msg::Withdraw(_, reply) => reply.send(Err(format!("the balance is {balance}"))),
//!             Msg::Balance(reply) => reply.send(balance),
//!         }
//!     }
//! }
//!
//! fn main() -> procession::Result {
//!     let rt = Runtime::new()?;
//!     let account = rt.spawn(account).address();
//!     account.send(Msg::Deposit(100))?;
//!
//!     let left = rt.block_on(account.call(|reply| Msg::Withdraw(30, reply)))?;
//!     assert_eq!(left, Ok(70));
//!     let refused = rt.block_on(account.call(|reply| Msg::Withdraw(80, reply)))?;
//!     assert_eq!(refused, Err("the balance is 70".into()));
//!     let balance = account.call(Msg::Balance).timeout(Duration::from_secs(1));
//!     assert_eq!(rt.block_on(balance)?, 70);
//!     Ok(())
//! }
//! ```
//!
//! - [`call`](crate::Address::call) creates the `Reply`, sends the request, and waits for the answer. The argument of
//!   `call` is a function that makes the message from the `Reply`. For example, the tuple variant `Msg::Balance` is a
//!   function that makes a message from a `Reply`.
//! - A call fails if the called process does not exist, exits before its reply, or drops the `Reply`. A call also fails
//!   if the mailbox is full or refuses the type of the message. The error is a [`CallError`](crate::CallError) and
//!   contains the reason.
//! - A call has no time limit by default. [`timeout`](crate::future::Call::timeout) sets a time limit.
//! - The called process may store the `Reply` and answer later, or send the `Reply` to another process.
//!
//! If two processes call each other at the same time, each process waits for the other process. To avoid this deadlock,
//! set time limits, or answer one of the two requests with a message instead of a reply.
//!
//! # How to address a process
//!
//! | address | type of the messages | lookup | obtained from |
//! |---|---|---|---|
//! | [`Address<M>`](crate::Address) | `M`, checked by the compiler | none | [`JoinHandle::address`](crate::JoinHandle::address), [`SelfHandle::address`](crate::SelfHandle::address) |
//! | [`Pid`](crate::Pid) | any; a wrong type is refused at run time | one array access | [`pid`](crate::Address::pid) of an address or a context |
//! | [`Name<M>`](crate::Name) | `M`, checked at run time | one table lookup for each send | a constant |
//! | [`Recipient<A>`](crate::Recipient) | `A`, converted into the message type of the process | none | [`Address::recipient`](crate::Address::recipient) |
//!
//! Messages from one process to another arrive in the order in which they were sent, except [urgent
//! messages](crate::Address::send_urgent). Messages of different senders may arrive in any order.
//!
//! A send to an exited process fails, and the error contains the message. If a process exits before it has read an
//! accepted message, this message becomes a *dead letter*. If the policy of a full mailbox drops a message, this
//! message also becomes a dead letter. [`Host::dead_letters`] receives the dead letters.
//!
//! [`Host::dead_letters`]: crate::Host::dead_letters
//!
//! # Names
//!
//! A name belongs to at most one process at a time. When a supervisor restarts a process, the new process gets the same
//! name. Therefore clients can send to the same name after the restart:
//!
//! ```
//! use procession::{Context, Exit, Name, Runtime};
//!
//! const LOG: Name<String> = Name::new("log");
//!
//! async fn log(mut ctx: Context<String>) -> Result<usize, Exit> {
//!     let mut lines = 0;
//!     while ctx.receive().await? != "end" {
//!         lines += 1;
//!     }
//!     Ok(lines)
//! }
//!
//! fn main() -> procession::Result {
//!     let rt = Runtime::new()?;
//!     let log = rt.process().name(LOG).spawn(log)?;
//!     rt.send(LOG, "one line".into())?;
//!     rt.send(LOG, "end".into())?;
//!     assert_eq!(rt.block_on(log)?, 1);
//!     Ok(())
//! }
//! ```
//!
//! [`Host::process`](crate::Host::process) returns a [`ProcessBuilder`](crate::ProcessBuilder), which sets the options
//! of a process, for example its name, the capacity of its mailbox, its limits, its priority, or its deadline.
//!
//! # Bounded mailboxes
//!
//! By default, a mailbox is unbounded. If the senders can be faster than the receiver, limit the mailbox:
//!
//! ```
//! use procession::{Context, Exit, MailboxCapacity, Runtime};
//!
//! async fn slow(mut ctx: Context<u32>) -> Result<u32, Exit> {
//!     let mut sum = 0;
//!     for _ in 0..3 {
//!         sum += ctx.receive().await?;
//!     }
//!     Ok(sum)
//! }
//!
//! fn main() -> procession::Result {
//!     // Without workers, the process runs only inside `block_on`, and the mailbox is still full at the third send.
//!     let rt = Runtime::builder().workers(0).build()?;
//!     let slow = rt.process().mailbox_capacity(MailboxCapacity::Reject(2)).spawn(slow)?;
//!     slow.send(1)?;
//!     slow.send(2)?;
//!     let refused = slow.send(3).expect_err("the mailbox is full");
//!     // The error contains the message. `send_wait` waits for free space.
//!     rt.block_on(slow.send_wait(refused.into_message()))?;
//!     assert_eq!(rt.block_on(slow)?, 6);
//!     Ok(())
//! }
//! ```
//!
//! The other variants of [`MailboxCapacity`](crate::MailboxCapacity) drop the oldest or the newest message.
//!
//! # Selective receive
//!
//! [`receive_where`](crate::Context::receive_where) takes the first message that a function accepts. The function
//! returns `Ok` with a value to accept a message, and returns `Err` with the message to leave the message in the
//! mailbox. The other messages stay in their order. [`stash`](crate::Context::stash) stores a message until
//! [`unstash`](crate::Context::unstash) moves the message back to the mailbox.
//!
//! # Without the loop
//!
//! Like OTP's `gen_server`, [`Server`](crate::Server) contains the receive loop. A server has a method for messages, a
//! method for timeouts, and a method that runs at the end. [`Process`](crate::Process) is the interface of a
//! hand-written state machine. The method `step` of a `Process` gets the events that arrived since the previous step.
//!
//! Next: [commands and handlers](super::commands).
