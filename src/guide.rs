//! Guide: a tutorial, comparisons with other runtimes, background, and troubleshooting. The programs in the guide are
//! compiled and run as tests.
//!
//! | page | contents |
//! |---|---|
//! | [`tutorial`] | seven chapters, from the first process to tests in virtual time |
//! | [`from_tokio`] | tokio's tasks, channels and utilities, and their counterparts here |
//! | [`from_actors`] | terms of actix, ractor and kameo, and their counterparts here |
//! | [`from_erlang`] | terms of Erlang/OTP and Elixir, and their counterparts here |
//! | [`from_go`] | terms of Go, and their counterparts here |
//! | [`lifecycle`] | the rules of exits, links, monitors, supervisors and cancellation, each with its test |
//! | [`scheduling`] | how workers choose the next process, and how long a process waits at most |
#![cfg_attr(
    feature = "console",
    doc = "| [`console`] | how to open a console socket in a program, its security, costs and protocol; needs the feature `console` |"
)]
#![cfg_attr(
    feature = "net",
    doc = "| [`sockets`] | servers and clients, time limits, TLS and other crates, files, costs; needs the feature `net` |"
)]
//! | [`tracing`] | how to record the steps of all processes, and how to read the trace in Perfetto |
//! | [`troubleshooting`] | symptoms, their causes, and what to do |
//!
//! The [map](crate#the-map) of the crate lists the types by purpose.

#[cfg(feature = "console")]
pub mod console;
pub mod from_actors;
pub mod from_erlang;
pub mod from_go;
pub mod from_tokio;
pub mod lifecycle;
pub mod scheduling;
#[cfg(feature = "net")]
pub mod sockets;
pub mod tracing;
pub mod troubleshooting;
pub mod tutorial;
