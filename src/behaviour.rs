//! Ready-made behaviours, built on the public process API: servers, supervisors, worker pools and scopes. They use no
//! internals of the scheduler.

pub(crate) mod intensity;
pub(crate) mod pool;
pub(crate) mod scope;
pub(crate) mod server;
pub(crate) mod supervisor;
