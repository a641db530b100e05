//! The replies about the names and groups of the host, and about the timers of the runtime.

use serde_json::{Value, json};

use crate::host::Host;
use crate::host::timer::WheelFigures;
use crate::observe::{GroupInfo, Listing, NameInfo};
use crate::platform::clock::Instant;
use crate::process::pid::Pid;
use crate::runtime::console::reply::list;
use crate::runtime::console::request::Prefix;

pub(super) fn names(host: &Host, Prefix { prefix, limit }: &Prefix) -> Value {
    let Listing { rows, count } = host.names(prefix, *limit);
    let row = |NameInfo { name, pid, type_name }: &NameInfo| json!({ "name": name, "pid": pid.to_string(), "type_name": type_name });
    json!({ "now_ns": host.now().ns(), "rows": list(rows.iter().map(row)), "name_count": count })
}

pub(super) fn groups(host: &Host, Prefix { prefix, limit }: &Prefix) -> Value {
    let Listing { rows, count } = host.groups(prefix, *limit);
    let row = |GroupInfo { name, members, first_members, monitors }: &GroupInfo| {
        json!({
            "name": name,
            "members": members,
            "first_members": list(first_members.iter().map(Pid::to_string)),
            "monitors": monitors,
        })
    };
    json!({ "now_ns": host.now().ns(), "rows": list(rows.iter().map(row)), "group_count": count })
}

/// The reply contains the wheels with timers.
pub(super) fn timers(host: &Host) -> Value {
    let wheels = host.shared().timers.wheels();
    let row = |WheelFigures { worker, timers, nearest }: &WheelFigures| json!({ "worker": worker, "timers": timers, "nearest_ns": nearest.map(Instant::ns) });
    json!({
        "now_ns": host.now().ns(),
        "timer_count": wheels.iter().map(|wheel| wheel.timers).sum::<usize>(),
        "wheel_count": wheels.len(),
        "wheels": list(wheels.iter().filter(|wheel| wheel.timers != 0).map(row)),
    })
}
