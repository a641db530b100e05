//! The replies about the names of the host.

use serde_json::{Value, json};

use crate::host::Host;
use crate::observe::{Listing, NameInfo};
use crate::runtime::console::reply::list;
use crate::runtime::console::request::Prefix;

pub(super) fn names(host: &Host, Prefix { prefix, limit }: &Prefix) -> Value {
    let Listing { rows, count } = host.names(prefix, *limit);
    let row = |NameInfo { name, pid, type_name }: &NameInfo| json!({ "name": name, "pid": pid.to_string(), "type_name": type_name });
    json!({ "now_ns": host.now().ns(), "rows": list(rows.iter().map(row)), "name_count": count })
}
