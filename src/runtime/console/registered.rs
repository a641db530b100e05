//! The replies about the names, groups and handlers of the host, and about the timers of the runtime.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::host::Host;
use crate::host::dispatch::table::HandlerKey;
use crate::host::timer::WheelFigures;
use crate::observe::{GroupInfo, Listing, NameInfo};
use crate::platform::clock::Instant;
use crate::process::command::name_of;
use crate::process::pid::Pid;
use crate::runtime::console::encoding::list;
use crate::runtime::console::request::Prefix;

pub(super) fn names(host: &Host, Prefix { prefix, limit }: &Prefix) -> Value {
    let Listing { rows, count } = host.names(prefix, *limit);
    let row = |NameInfo { name, pid, type_name }: &NameInfo| {
        let pid = pid.to_string();
        json!({ "name": name, "pid": pid, "type_name": type_name })
    };
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

/// Returns the reply to the request `timers`. The reply lists only the timer wheels that contain timers.
pub(super) fn timers(host: &Host) -> Value {
    let wheels = host.shared().timers.wheels();
    let row = |WheelFigures { worker, timers, nearest }: &WheelFigures| {
        let nearest_ns = nearest.map(Instant::ns);
        json!({ "worker": worker, "timers": timers, "nearest_ns": nearest_ns })
    };
    json!({
        "now_ns": host.now().ns(),
        "timer_count": wheels.iter().map(|wheel| wheel.timers).sum::<usize>(),
        "wheel_count": wheels.len(),
        "wheels": list(wheels.iter().filter(|wheel| wheel.timers != 0).map(row)),
    })
}

/// Returns the reply to the request `handlers`, with one row for each handler. The commands of all hosts are counted by
/// type. All named commands have the same type. Therefore, the row of a handler for a named command has no count.
/// `others` contains the counts of the types without a row, for example the count of all named commands.
pub(super) fn handlers(host: &Host, limit: usize) -> Value {
    let mut counts = host.outstanding_commands();
    let mut row = |key| {
        let (kind, command, outstanding) = match key {
            HandlerKey::Type(command) => {
                ("type", name_of(command), Some(counts.remove(command).map_or(0, |one| one.count)))
            }
            HandlerKey::Name(name) => ("name", Cow::Borrowed(name), None),
            HandlerKey::StreamName(name) => ("stream_name", Cow::Borrowed(name), None),
        };
        json!({ "kind": kind, "command": command, "outstanding": outstanding })
    };
    // Each row takes the count of its type out of `counts`. Therefore, all rows are built, even if the reply contains
    // fewer rows. The number of handlers is bounded, because the number of handlers does not change after the build of
    // the host.
    let rows: Vec<Value> = host.namespace().dispatcher().handler_keys().map(&mut row).collect();
    let others =
        counts.iter().map(|(command, count)| json!({ "command": name_of(command), "outstanding": count.count }));
    json!({
        "now_ns": host.now().ns(),
        "handler_count": rows.len(),
        "rows": list(rows.into_iter().take(limit)),
        "other_count": counts.len(),
        "others": list(others.take(limit)),
    })
}
