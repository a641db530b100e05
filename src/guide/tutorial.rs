//! Tutorial in seven chapters. Each chapter builds on the previous chapter, and takes about five minutes.
//!
//! | chapter | contents |
//! |---|---|
//! | [`first_process`] | a runtime, a process, its result |
//! | [`messages`] | messages, calls, names, bounded mailboxes |
//! | [`commands`] | commands, handlers, and the path of a command |
//! | [`failure`] | exits, links, monitors, supervisors |
//! | [`time`] | timers, time limits, cancellation, shutdown |
//! | [`embedding`] | processes inside tokio, smol and axum |
//! | [`testing`] | tests in virtual time, with many orders of the processes |

pub mod commands;
pub mod embedding;
pub mod failure;
pub mod first_process;
pub mod messages;
pub mod testing;
pub mod time;
