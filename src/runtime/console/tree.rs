//! The supervision tree. The supervisors answer with messages, so the reply comes later, and needs a worker. Meanwhile,
//! the server answers other clients.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::behaviour::supervisor::tree::{ChildInfo, SupervisionTree};
use crate::host::Host;
use crate::platform::clock::Instant;
use crate::runtime::console::reply::{encode, refusal_of};
use crate::runtime::console::request::{FaultKind, MAX_ROWS};

/// Time in which all supervisors must answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum depth of the tree in a reply.
const DEEPEST: usize = 64;

/// A reply that comes later.
pub(super) struct Later {
    id: Value,
    reply: BoxFuture<'static, Value>,
    pub(super) deadline: Instant,
}

impl Later {
    /// Begins to ask all supervisors of the runtime.
    pub(super) fn supervision_tree(id: Value, host: Host) -> Self {
        let deadline = host.now() + TIMEOUT;
        Self { id, reply: supervision_tree(host).boxed(), deadline }
    }

    /// Returns the line of the reply, or of an error after the deadline. Returns `None` if the reply must still be
    /// waited for.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, now: Instant) -> Option<Vec<u8>> {
        if let Poll::Ready(reply) = Pin::new(&mut self.reply).poll(cx) {
            return Some(encode(self.id.take(), Ok(reply)));
        }
        (now >= self.deadline).then(|| {
            let message = "the supervisors have not answered in time; no worker may be free";
            refusal_of(self.id.take(), FaultKind::NoAnswer, message)
        })
    }
}

async fn supervision_tree(host: Host) -> Value {
    let mut rows = Vec::new();
    for root in host.root_supervisors() {
        // A supervisor that exits meanwhile is not listed.
        if let Ok(tree) = host.supervision_tree(root).await {
            let name = host.process_details(root).and_then(|details| details.info.name);
            rows.push(json!({
                "depth": 0, "pid": root.to_string(), "name": name, "state": "up", "restarts": 0, "last": null,
                "supervisor": supervisor(&tree),
            }));
            add_children(&tree, 1, &mut rows);
        }
    }
    let count = rows.len();
    rows.truncate(MAX_ROWS);
    json!({ "now_ns": host.now().ns(), "rows": rows, "row_count": count })
}

/// Adds the rows below a supervisor. The rows of a child follow the row of the child.
fn add_children(tree: &SupervisionTree, depth: usize, rows: &mut Vec<Value>) {
    for ChildInfo { name, pid, state, restarts, last, below, .. } in &tree.children {
        rows.push(json!({
            "depth": depth,
            "pid": pid.map(|pid| pid.to_string()),
            "name": name,
            "state": state.to_string(),
            "restarts": restarts,
            "last": last.as_ref().map(|exit| exit.to_string()),
            "supervisor": below.as_ref().map(supervisor),
        }));
        if let Some(below) = below.as_ref().filter(|_| depth < DEEPEST) {
            add_children(below, depth + 1, rows);
        }
    }
}

fn supervisor(tree: &SupervisionTree) -> Value {
    let within = u64::try_from(tree.within.as_nanos()).unwrap_or(u64::MAX);
    json!({ "strategy": tree.strategy, "max_restarts": tree.restarts, "within_ns": within })
}
