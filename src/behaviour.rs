//! Ready-made behaviours: servers, supervisors, worker pools and scopes.
//!
//! This folder imports `task` and all folders that `task` imports. This folder does not import `scheduler` or
//! `runtime`, because a behaviour consists of processes and uses no internals of the scheduler. Only `lib.rs`,
//! `supervisor.rs` and `runtime/console` import this folder. `lib.rs` and `supervisor.rs` export the public names of
//! this folder. `runtime/console` shows and controls the children of supervisors.

pub(crate) mod intensity;
pub(crate) mod join_set;
pub(crate) mod pool;
pub(crate) mod scope;
pub(crate) mod server;
pub(crate) mod supervisor;
