//! The process types: pids, exits, events, commands, payloads, limits, the mailbox, the yields and the counted
//! references.
//!
//! `host` owns the tables of processes, and `task` runs the processes.

pub(crate) mod catch;
pub(crate) mod command;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod exit;
pub(crate) mod failure;
pub(crate) mod limits;
pub(crate) mod mailbox;
pub(crate) mod payload;
pub(crate) mod pid;
pub(crate) mod state;
pub(crate) mod yields;
