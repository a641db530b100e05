//! Serialization of rows about processes with serde. States and priorities are written as their names.

use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::observe::inspection::ProcessInfo;
use crate::observe::states::ProcessState;
use crate::platform::clock::Instant;
use crate::process::state::priority::Priority;

fn name_of_state(state: ProcessState) -> &'static str {
    match state {
        ProcessState::Ready => "Ready",
        ProcessState::Running => "Running",
        ProcessState::Blocked => "Blocked",
        ProcessState::Idle => "Idle",
        ProcessState::Complete => "Complete",
        ProcessState::Suspended => "Suspended",
    }
}

fn name_of_priority(priority: Priority) -> &'static str {
    match priority {
        Priority::Low => "Low",
        Priority::Normal => "Normal",
        Priority::High => "High",
    }
}

/// Writes a struct with the fields of the row, in the order of their declaration. The state is an optional string, and
/// the priority is a string. The fields `waiting_since` and `unread_since` become the fields `waiting_since_ns` and
/// `unread_since_ns`, in nanoseconds since the start of the runtime.
impl Serialize for ProcessInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_struct("ProcessInfo", 21)?;
        row.serialize_field("pid", &self.pid)?;
        row.serialize_field("name", &self.name)?;
        row.serialize_field("type_name", self.type_name)?;
        row.serialize_field("parent", &self.parent)?;
        row.serialize_field("state", &self.state.map(name_of_state))?;
        row.serialize_field("waiting_since_ns", &self.waiting_since.map(Instant::ns))?;
        row.serialize_field("priority", name_of_priority(self.priority))?;
        row.serialize_field("mailbox_len", &self.mailbox_len)?;
        row.serialize_field("signals", &self.signals)?;
        row.serialize_field("mailbox_peak", &self.mailbox_peak)?;
        row.serialize_field("unread_since_ns", &self.unread_since.map(Instant::ns))?;
        row.serialize_field("yields", &self.yields)?;
        row.serialize_field("waits", &self.waits)?;
        row.serialize_field("links", &self.links)?;
        row.serialize_field("monitors", &self.monitors)?;
        row.serialize_field("monitored_by", &self.monitored_by)?;
        row.serialize_field("steps", &self.steps)?;
        row.serialize_field("last_worker", &self.last_worker)?;
        row.serialize_field("checks_yield", &self.checks_yield)?;
        row.serialize_field("is_cancelled", &self.is_cancelled)?;
        row.serialize_field("is_killed", &self.is_killed)?;
        row.end()
    }
}
