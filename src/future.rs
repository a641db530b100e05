//! Futures, streams and sinks that methods of this crate return. A program names these types only to store the values,
//! for example in a field of a struct. Each type is described beside the method that returns it. This file defines
//! nothing itself.

pub use crate::context::address::Exited;
pub use crate::context::address::send_wait::{AddressSink, SendWait};
pub use crate::context::call::Call;
pub use crate::context::call::wait::CallWait;
pub use crate::context::cooperative::Cooperative;
pub use crate::context::mailbox::Receive;
pub use crate::context::multi_call::MultiCall;
pub use crate::context::perform::Perform;
pub use crate::context::stream::ItemStream;
pub use crate::context::time::Sleep;
pub use crate::handler::blocking::Blocking;
pub use crate::host::cancel::Cancelled;
pub use crate::host::dispatch::attempt::HandlerCall;
pub use crate::host::dispatch::completion::Unwanted;
pub use crate::host::shutdown::Shutdown;
pub use crate::task::join::Started;
