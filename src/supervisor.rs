//! Types for the children of a [`Supervisor`](crate::Supervisor), and for the messages that a supervisor receives. The
//! types to build a supervisor are at the root of the crate. This file contains only re-exports.

pub use crate::behaviour::supervisor::{
    ChildId, ChildInfo, ChildState, SupervisionTree, SupervisorError, SupervisorMessage,
};
