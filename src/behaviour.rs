//! (new folder)

pub(crate) mod intensity;
pub(crate) mod pool;
pub(crate) mod scope;
pub(crate) mod server;
pub(crate) mod supervisor;
