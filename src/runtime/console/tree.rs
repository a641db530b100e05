//! The supervision tree. The supervisors answer with messages, so the reply comes later, and needs a worker.

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::behaviour::supervisor::tree::{ChildInfo, SupervisionTree, tree_until};
use crate::host::Host;
use crate::process::failure::CallError;
use crate::runtime::console::encoding::Reply;
use crate::runtime::console::later::Later;
use crate::runtime::console::request::{Fault, FaultKind, MAX_ROWS};

/// Time limit of the request. The calls to the supervisors have a shorter time limit, `SILENCE`. In a runtime with
/// workers, a thread of the runtime fires the timers of these calls. If all threads of the runtime are blocked, these
/// timers do not fire, and the request may take the whole `TIMEOUT`.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Time in which all supervisors must answer. If a supervisor does not answer in this time, its state is unknown.
const SILENCE: Duration = Duration::from_secs(1);

/// Maximum depth of the tree in a reply. Deeper rows are only counted.
const DEEPEST: usize = 64;

/// Error message if no supervisor answers.
const OVERDUE: &str = "the supervisors have not answered in time; perhaps no worker is free";

/// Asks all supervisors of the runtime for their children.
pub(super) fn supervision_tree(host: Host) -> Later {
    Later::new(&host.clone(), TIMEOUT, OVERDUE, ask(host))
}

async fn ask(host: Host) -> Reply {
    let until = host.now() + SILENCE;
    let roots = host.top_level_supervisors();
    let trees = join_all(roots.iter().map(|root| tree_until(&host, *root, Some(until)))).await;
    let is_silent = |tree: &Result<SupervisionTree, CallError>| matches!(tree, Err(CallError::TimedOut));
    if !trees.is_empty() && trees.iter().all(is_silent) {
        return Err(Fault::new(FaultKind::NoAnswer, OVERDUE));
    }
    let mut rows = Rows::default();
    for (root, tree) in roots.into_iter().zip(trees) {
        // A supervisor that exits during this request is not listed.
        if tree.is_err() && !is_silent(&tree) {
            continue;
        }
        let tree = tree.ok();
        let name = host.process_details(root).and_then(|details| details.info.name);
        let state = if tree.is_some() { "running" } else { "unknown" };
        rows.add(|| {
            json!({
                "depth": 0, "pid": root.to_string(), "name": name, "state": state, "is_supervisor": true,
                "restarts": 0, "last": null,
                "supervisor": tree.as_ref().map(supervisor),
            })
        });
        if let Some(tree) = tree {
            add_children(&tree, 1, &mut rows);
        }
    }
    Ok(json!({ "now_ns": host.now().ns(), "rows": rows.rows, "row_count": rows.count }))
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

/// Adds the rows below a supervisor. The rows below a child directly follow the row of this child.
fn add_children(tree: &SupervisionTree, depth: usize, rows: &mut Rows) {
    for ChildInfo { name, pid, state, restarts, last, below, is_supervisor, .. } in &tree.children {
        rows.add(|| {
            json!({
                "depth": depth,
                "pid": pid.map(|pid| pid.to_string()),
                "name": name,
                "state": state.to_string(),
                "is_supervisor": is_supervisor,
                "restarts": restarts,
                "last": last.as_ref().map(|exit| exit.to_string()),
                "supervisor": below.as_ref().map(supervisor),
            })
        });
        match below {
            Some(below) if depth < DEEPEST => add_children(below, depth + 1, rows),
            // Without this count, a client could not see that rows are missing in the reply.
            Some(below) => rows.count += descendants(below),
            None => {}
        }
    }
}

/// Number of all rows below a supervisor.
fn descendants(tree: &SupervisionTree) -> usize {
    let (mut count, mut next) = (0, vec![tree]);
    while let Some(tree) = next.pop() {
        count += tree.children.len();
        next.extend(tree.children.iter().filter_map(|child| child.below.as_ref()));
    }
    count
}

fn supervisor(tree: &SupervisionTree) -> Value {
    let within = u64::try_from(tree.within.as_nanos()).unwrap_or(u64::MAX);
    json!({
        "strategy": tree.strategy,
        "max_restarts": tree.max_restarts,
        "within_ns": within,
        "recent_restarts": tree.recent_restarts,
        "restarts_left": tree.restarts_left(),
    })
}
