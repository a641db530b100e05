//! The replies about the names and groups of the host.

use serde_json::{Value, json};

use crate::host::Host;
use crate::observe::{GroupInfo, Listing, NameInfo};
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
