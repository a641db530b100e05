//! The supervision tree. The supervisors answer with messages, so the reply comes later, and needs a worker.

use std::time::Duration;

use serde_json::{Value, json};

use crate::behaviour::supervisor::tree::{ChildInfo, SupervisionTree};
use crate::host::Host;
use crate::runtime::console::later::Later;
use crate::runtime::console::request::MAX_ROWS;

/// Time in which all supervisors must answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum depth of the tree in a reply.
const DEEPEST: usize = 64;

/// Asks all supervisors of the runtime for their children.
pub(super) fn supervision_tree(host: Host) -> Later {
    let overdue = "the supervisors have not answered in time; no worker may be free";
    Later::new(&host.clone(), TIMEOUT, overdue, async move { Ok(ask(host).await) })
}

async fn ask(host: Host) -> Value {
    let mut rows = Rows::default();
    for root in host.root_supervisors() {
        // A supervisor that exits meanwhile is not listed.
        if let Ok(tree) = host.supervision_tree(root).await {
            let name = host.process_details(root).and_then(|details| details.info.name);
            rows.add(|| {
                json!({
                    "depth": 0, "pid": root.to_string(), "name": name, "state": "up", "restarts": 0, "last": null,
                    "supervisor": supervisor(&tree),
                })
            });
            add_children(&tree, 1, &mut rows);
        }
    }
    json!({ "now_ns": host.now().ns(), "rows": rows.rows, "row_count": rows.count })
}

/// The rows of the reply, and the number of all rows. If the list is full, a further row is only counted.
#[derive(Default)]
struct Rows {
    rows: Vec<Value>,
    count: usize,
}

impl Rows {
    fn add(&mut self, row: impl FnOnce() -> Value) {
        self.count += 1;
        if self.rows.len() < MAX_ROWS {
            self.rows.push(row());
        }
    }
}

/// Adds the rows below a supervisor. The rows of a child follow the row of the child.
fn add_children(tree: &SupervisionTree, depth: usize, rows: &mut Rows) {
    for ChildInfo { name, pid, state, restarts, last, below, .. } in &tree.children {
        rows.add(|| {
            json!({
                "depth": depth,
                "pid": pid.map(|pid| pid.to_string()),
                "name": name,
                "state": state.to_string(),
                "restarts": restarts,
                "last": last.as_ref().map(|exit| exit.to_string()),
                "supervisor": below.as_ref().map(supervisor),
            })
        });
        if let Some(below) = below.as_ref().filter(|_| depth < DEEPEST) {
            add_children(below, depth + 1, rows);
        }
    }
}

fn supervisor(tree: &SupervisionTree) -> Value {
    let within = u64::try_from(tree.within.as_nanos()).unwrap_or(u64::MAX);
    json!({ "strategy": tree.strategy, "max_restarts": tree.restarts, "within_ns": within })
}
