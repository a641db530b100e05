//! A console for programs that are built with the crate `procession`. The console attaches to the socket of a running
//! program, and shows the processes, the wait-for graph and the workers of the program. The console also opens
//! recordings, and steps through their events.
//!
//! | file | contents |
//! |---|---|
//! | `client.rs` | the connection: one request, one reply |
//! | `model.rs` | the replies as data, rates and percentiles between two snapshots |
//! | `app.rs` | the state of the console: the view, the selection, the requests, and the actions |
//! | `actions.rs` | the question before an action, and its result |
//! | `keys.rs` | the keys of each view |
//! | `registry.rs` | the state of the view of names, groups, timers and handlers |
//! | `trace.rs` | the state and the texts of the live trace of a process |
//! | `rates.rs` | the rates of one process |
//! | `filter.rs` | the text that selects processes |
//! | `views.rs` | draws the state; the folder `views` has one file for each view |
//! | `terminal.rs` | the loop that reads keys, asks the server, and draws |
//! | `svg.rs` | renders a screen as an image for the documentation |
//! | `report.rs` | the output of `--once`, and the conditions of `--fail-if` |
//! | `recording.rs` | reads a recording: an execution trace, or a flight record |
//! | `player.rs` | steps through a recording |

mod actions;
pub mod app;
pub mod client;
pub mod filter;
pub mod keys;
pub mod model;
pub mod player;
pub mod rates;
pub mod recording;
pub mod registry;
pub mod report;
pub mod svg;
pub mod terminal;
pub mod trace;
pub mod views;
