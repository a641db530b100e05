//! The data of one process: its pid, events, commands, exit, errors, limits and payloads, its mailbox, the table of its
//! commands, its run state and its reference counts.
//!
//! The files of this folder import only from this folder and from `platform`. The tables that connect processes are in
//! `host`, and the code that runs processes is in `task`. The trait `Process`, which users implement, is in
//! `context/step.rs`.

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
pub(crate) mod sparse_slab;
pub(crate) mod state;
pub(crate) mod watchers;
pub(crate) mod yields;
