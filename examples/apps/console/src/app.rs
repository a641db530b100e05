//! The state of the console. The state handles keys and replies, and returns the next requests. The state does no input
//! or output, so tests can call its methods without a terminal and without a server.

use std::collections::VecDeque;

use ratatui::crossterm::event::{KeyCode, KeyEvent};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client::Error;
use crate::filter;
use crate::keys::{self, Command};
use crate::model::{
    Details, Explanation, Graph, Hello, Interval, LastExits, Metrics, Overview, Processes, RunTimes, Tree, Workers,
};
use crate::rates::Rates;
use crate::registry::Registry;
use crate::trace::{self, Trace};
use crate::views;

/// Number of rows that the console asks for. A screen shows fewer rows.
pub(crate) const ROWS: u64 = 200;

/// Number of busiest processes that the console asks for.
const BUSIEST: u64 = 10;

/// Number of rates that the sparkline shows.
pub const HISTORY: usize = 120;

/// Number of intervals between two snapshots whose durations the overview shows.
const SNAPSHOTS: usize = 30;

/// A page of the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum View {
    /// Rates, delays, queues and memory.
    #[default]
    Overview,
    /// Table of processes.
    Processes,
    /// Details of one process.
    Process,
    /// Wait-for graph and deadlocks.
    Waits,
    /// Workers and the processes that they run.
    Workers,
    /// The reasons why processes do not run.
    Explain,
    /// The last abnormal exits.
    Exits,
    /// The supervision tree.
    Tree,
    /// The tables of names, groups, timers and handlers.
    Registry,
    /// The live trace of one process. The list of tabs does not contain this view.
    Trace,
}

impl View {
    /// All views with a tab, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Overview,
        Self::Processes,
        Self::Process,
        Self::Waits,
        Self::Workers,
        Self::Explain,
        Self::Exits,
        Self::Tree,
        Self::Registry,
    ];

    /// Name of the view.
    pub fn name(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Processes => "Processes",
            Self::Process => "Process",
            Self::Waits => "Waits",
            Self::Workers => "Workers",
            Self::Explain => "Explain",
            Self::Exits => "Exits",
            Self::Tree => "Tree",
            Self::Registry => "Registry",
            Self::Trace => "Trace",
        }
    }

    /// The view whose tab is selected.
    pub fn tab(self) -> Self {
        if self == Self::Trace { Self::Process } else { self }
    }
}

/// Columns by which the table can be sorted. Each entry contains the name of the column in the protocol. The flag is
/// true if the default order of the column is descending.
pub const COLUMNS: [(&str, bool); 17] = [
    ("mailbox_len", true),
    ("mailbox_peak", true),
    ("yields", true),
    ("waits", true),
    ("links", true),
    ("monitors", true),
    ("monitored_by", true),
    ("signals", true),
    ("steps", true),
    ("last_worker", true),
    ("pid", false),
    ("name", true),
    ("type_name", false),
    ("state", false),
    ("waiting_since_ns", false),
    ("unread_since_ns", false),
    ("priority", true),
];

/// A request: its name and its fields.
pub type Request = (&'static str, Vec<(&'static str, Value)>);

/// Input that receives all keys until it closes.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// The text of the filter.
    Filter(String),
    /// The question before an action.
    Confirm {
        /// Question for the user.
        question: String,
        /// Request that the console sends after the key `y`.
        action: Request,
    },
}

/// Action that the loop of the console performs after a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Draw the screen.
    Draw,
    /// Ask the server, then draw the screen.
    Refresh,
    /// Send this action, then ask the server.
    Act(Request),
    /// End the console.
    Quit,
}

/// State of the console.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "the names of the fields are enough")]
pub struct App {
    pub target: String,
    pub hello: Hello,
    pub view: View,
    pub is_paused: bool,
    pub prompt: Option<Prompt>,
    /// Message about the last action or about the last key.
    pub message: Option<String>,
    /// Error of the last snapshot. The next successful reply to the request `hello` clears this field.
    pub error: Option<String>,
    pub overview: Overview,
    pub interval: Interval,
    /// The last snapshots, oldest first. Only a sample of the durations is measured, so there are few new durations in
    /// one snapshot. Therefore the overview shows the durations of all these snapshots.
    pub snapshots: VecDeque<Metrics>,
    /// Steps per second, oldest first.
    pub history: VecDeque<u64>,
    pub processes: Processes,
    /// Index in [`COLUMNS`].
    pub column: usize,
    pub is_reversed: bool,
    pub filter: String,
    /// Index of the selected row.
    pub selected: usize,
    /// Pid of the process that the view `Process` shows.
    pub pid: Option<String>,
    /// `None` if the process has exited.
    pub details: Option<Details>,
    /// Rates of the process that the view `Process` shows.
    pub rates: Rates,
    pub graph: Graph,
    pub workers: Workers,
    /// `None` while the server collects no run times for this console.
    pub run_times: Option<RunTimes>,
    pub explanation: Explanation,
    pub exits: LastExits,
    pub tree: Tree,
    pub registry: Registry,
    pub trace: Trace,
    /// An entry for each worker that runs a task. The entry contains the index of the worker, the pid of the process,
    /// the number of polls of the worker, and a time. At this time, the worker was certainly in its present poll. The
    /// console knows no earlier time for which this is certain.
    pub since: Vec<(u64, Option<String>, u64, u64)>,
}

impl App {
    /// Creates the state for a program.
    pub fn new(target: String) -> Self {
        Self { target, ..Self::default() }
    }

    /// The requests for the present view. `hello` comes first, because the program may have been restarted. After a
    /// restart, the reply to `hello` names the new program.
    pub fn requests(&self) -> Vec<Request> {
        let mut all = vec![("hello", Vec::new())];
        match self.view {
            View::Overview => all.push(("overview", Vec::new())),
            View::Processes => all.push(("processes", self.query())),
            View::Process => {
                all.extend(self.pid.clone().map(|pid| ("process", vec![("pid", pid.into())])));
                if self.measures_messages() {
                    all.extend(self.trace.requests());
                }
            }
            View::Waits => all.push(("wait_for_graph", vec![("limit", ROWS.into())])),
            View::Workers => {
                all.push(("workers", Vec::new()));
                // An older server does not know this request.
                if self.knows_run_times() {
                    all.push(("run_times", vec![("limit", BUSIEST.into())]));
                }
            }
            View::Explain => all.push(("explain", Vec::new())),
            View::Exits => all.push(("last_exits", vec![("limit", ROWS.into())])),
            View::Tree => all.push(("supervision_tree", Vec::new())),
            View::Registry => all.push(self.registry.request()),
            View::Trace => all.extend(self.trace.requests()),
        }
        if !self.needs_trace() {
            all.extend(self.trace.stop());
        }
        if self.view != View::Workers && self.run_times.is_some() {
            all.push(("stop_run_times", Vec::new()));
        }
        all
    }

    /// Returns the request for the further events of the live trace, if the present view shows the trace.
    pub fn further_request(&self) -> Option<Request> {
        self.needs_trace().then(|| self.trace.further_request()).flatten()
    }

    /// Whether the present view shows the live trace, or a number that is computed from the live trace.
    fn needs_trace(&self) -> bool {
        self.view == View::Trace || self.measures_messages()
    }

    /// Whether the view `Process` is open and measures the messages of its process with a live trace.
    fn measures_messages(&self) -> bool {
        self.view == View::Process && self.rates.messages.is_on && self.pid.as_ref() == Some(&self.trace.pid)
    }

    /// Whether the server knows the request `run_times`. A server that knows `run_times` also knows the time at which a
    /// process began to wait.
    fn knows_run_times(&self) -> bool {
        self.hello.requests.iter().any(|request| request == "run_times")
    }

    fn query(&self) -> Vec<(&'static str, Value)> {
        let (order, is_descending) = COLUMNS[self.column];
        let mut fields = filter::parse(&self.filter).unwrap_or_default();
        fields.push(("order", order.into()));
        fields.push(("descending", (is_descending != self.is_reversed).into()));
        fields.push(("limit", ROWS.into()));
        fields
    }

    /// Handles the reply to a request.
    pub fn handle_reply(&mut self, request: &str, reply: Result<Value, Error>) {
        match reply {
            Ok(value) => {
                if let Err(error) = self.store(request, value) {
                    self.error = Some(format!("{request}: {error}"));
                }
            }
            Err(Error::Refused { kind, .. }) if request == "process" && kind == "no_process" => self.details = None,
            Err(Error::Refused { message, .. }) if trace::is_trace(request) => self.trace.refuse(request, message),
            Err(error) => self.error = Some(error.to_string()),
        }
    }

    fn store(&mut self, request: &str, value: Value) -> Result<(), serde_json::Error> {
        match request {
            "hello" => {
                let next: Hello = parse(value)?;
                if (next.program_pid, next.node) != (self.hello.program_pid, self.hello.node) {
                    // Another program has opened the socket.
                    self.forget();
                }
                (self.hello, self.error) = (next, None);
            }
            "overview" => {
                let next: Overview = parse(value)?;
                // In a container, the restarted program can have the same process id and node.
                if self.snapshots.back().is_some_and(|last| next.metrics.elapsed_ns < last.elapsed_ns) {
                    self.forget();
                }
                let times = Interval::between(self.snapshots.front(), &next.metrics);
                let rates = Interval::between(self.snapshots.back(), &next.metrics).rates;
                self.interval = Interval { rates, ..times };
                self.history.push_back(self.interval.rate("steps") as u64);
                self.history.drain(..self.history.len().saturating_sub(HISTORY));
                self.snapshots.push_back(next.metrics.clone());
                self.snapshots.drain(..self.snapshots.len().saturating_sub(SNAPSHOTS));
                self.overview = next;
            }
            "processes" => {
                self.processes = parse(value)?;
                self.clamp();
            }
            "process" => {
                let details = parse(value)?;
                self.rates.add(&details);
                self.details = Some(details);
                self.clamp();
            }
            "wait_for_graph" => {
                self.graph = parse(value)?;
                self.clamp();
            }
            "explain" => {
                self.explanation = parse(value)?;
                self.clamp();
            }
            "last_exits" => {
                self.exits = parse(value)?;
                self.clamp();
            }
            "supervision_tree" => {
                self.tree = parse(value)?;
                self.clamp();
            }
            "workers" => {
                self.workers = parse(value)?;
                self.note_tasks();
                self.clamp();
            }
            "run_times" => self.run_times = Some(parse(value)?),
            "stop_run_times" => self.run_times = None,
            _ if trace::is_trace(request) => {
                self.trace.store(request, value)?;
                self.measure(request);
            }
            _ => {
                self.registry.store(request, value)?;
                self.clamp();
            }
        }
        Ok(())
    }

    /// Computes the number of messages per second after a reply about the live trace.
    fn measure(&mut self, request: &str) {
        if !self.measures_messages() {
            return;
        }
        if request == "trace" {
            self.rates.messages.restart();
        } else if self.trace.unread == 0 {
            self.rates.messages.add(&self.trace);
        }
        // If the trace has ended at a limit, a new trace begins with the next refresh.
        if self.trace.has_reached_limit() {
            self.trace = Trace::to_measure(&self.trace.pid);
        }
    }

    /// Removes the snapshots of an earlier program. The counters of the new program begin at 0.
    fn forget(&mut self) {
        self.snapshots.clear();
        self.history.clear();
        self.since.clear();
        self.rates = Rates::default();
        self.run_times = None;
    }

    /// Records the time at which the console first saw each worker in its present task. If the number of polls is
    /// unchanged, the worker is in the same step.
    fn note_tasks(&mut self) {
        let now = self.workers.now_ns;
        let note = |worker: &crate::model::Worker| {
            let polls = worker.polls?;
            let blocked = worker.blocked_since_ns.unwrap_or(now);
            let known = self.since.iter().find(|(number, process, seen, _)| {
                (number, process, seen) == (&worker.worker, &worker.process, &polls)
            });
            let (.., since) = known.cloned().unwrap_or((worker.worker, None, polls, now));
            Some((worker.worker, worker.process.clone(), polls, since.min(blocked)))
        };
        self.since = self.workers.workers.iter().filter_map(note).collect();
    }

    /// The worker has run its present task for at least this time, in ns. `None` if the worker runs no task.
    pub fn busy_ns(&self, worker: u64) -> Option<u64> {
        let (.., since) = self.since.iter().find(|(number, ..)| *number == worker)?;
        Some(self.workers.now_ns.saturating_sub(*since))
    }

    /// Number of rows of the present view.
    fn rows(&self) -> usize {
        match self.view {
            View::Processes => self.processes.rows.len(),
            // The selected row is the first row on the screen.
            View::Process => self.details.as_ref().map_or(0, views::process::row_count),
            View::Explain => views::explain::row_count(&self.explanation),
            View::Waits => self.graph.edges.len(),
            View::Workers => self.workers.workers.len(),
            View::Exits => self.exits.exits.len(),
            View::Tree => self.tree.rows.len(),
            View::Registry => self.registry.rows(),
            _ => 0,
        }
    }

    fn clamp(&mut self) {
        self.selected = self.selected.min(self.rows().saturating_sub(1));
    }

    /// Pid of the process to which the actions and the key Enter apply.
    pub fn selected_pid(&self) -> Option<&str> {
        match self.view {
            View::Processes => self.processes.rows.get(self.selected).map(|row| row.pid.as_str()),
            View::Waits => self.graph.edges.get(self.selected).map(|edge| edge.pid.as_str()),
            View::Process | View::Trace => self.pid.as_deref(),
            View::Tree => self.tree.rows.get(self.selected)?.pid.as_deref(),
            View::Registry => self.registry.pid(self.selected),
            View::Workers => self.workers.workers.get(self.selected)?.process.as_deref(),
            View::Overview | View::Explain | View::Exits => None,
        }
    }

    /// Handles a key.
    pub fn handle_key(&mut self, key: KeyEvent) -> Effect {
        if keys::is_interrupt(&key) {
            return Effect::Quit;
        }
        // The console shows a message until the user presses the next key.
        self.message = None;
        match self.prompt.take() {
            Some(Prompt::Filter(text)) => self.edit_filter(text, key.code),
            Some(Prompt::Confirm { action, .. }) => match key.code {
                KeyCode::Char('y' | 'Y') => Effect::Act(action),
                _ => self.say("nothing was done"),
            },
            None => match keys::command(self.view, key.code) {
                Some(command) => self.perform(command),
                None => Effect::Draw,
            },
        }
    }

    fn edit_filter(&mut self, mut text: String, code: KeyCode) -> Effect {
        match code {
            KeyCode::Enter if self.view == View::Registry => {
                (self.registry.prefix, self.selected) = (text, 0);
                return Effect::Refresh;
            }
            KeyCode::Enter => match filter::parse(&text) {
                Ok(_) => {
                    self.filter = text;
                    self.selected = 0;
                    return Effect::Refresh;
                }
                Err(error) => self.message = Some(error),
            },
            KeyCode::Esc => return Effect::Draw,
            KeyCode::Backspace => _ = text.pop(),
            KeyCode::Char(letter) => text.push(letter),
            _ => {}
        }
        self.prompt = Some(Prompt::Filter(text));
        Effect::Draw
    }

    pub(crate) fn say(&mut self, text: &str) -> Effect {
        self.message = Some(text.to_owned());
        Effect::Draw
    }

    fn perform(&mut self, command: Command) -> Effect {
        match command {
            Command::Quit => return Effect::Quit,
            Command::Show(view) => return self.show(view),
            Command::NextView => {
                let at = View::ALL.iter().position(|view| *view == self.view.tab()).unwrap_or_default();
                return self.show(View::ALL[(at + 1) % View::ALL.len()]);
            }
            Command::Up => self.selected = self.selected.saturating_sub(1),
            Command::Down => {
                self.selected += 1;
                self.clamp();
            }
            Command::Open => {
                if let Some(pid) = self.selected_pid() {
                    self.pid = Some(pid.to_owned());
                    return self.show(View::Process);
                }
            }
            Command::Back if self.view == View::Trace => return self.show(View::Process),
            Command::Back if self.view == View::Process => return self.show(View::Processes),
            Command::Back => {}
            Command::NextColumn => {
                let is_unknown = |column: usize| {
                    matches!(COLUMNS[column].0, "waiting_since_ns" | "unread_since_ns") && !self.knows_run_times()
                };
                let mut next = (self.column + 1) % COLUMNS.len();
                while is_unknown(next) {
                    next = (next + 1) % COLUMNS.len();
                }
                (self.column, self.is_reversed, self.selected) = (next, false, 0);
                return Effect::Refresh;
            }
            Command::Reverse => {
                (self.is_reversed, self.selected) = (!self.is_reversed, 0);
                return Effect::Refresh;
            }
            Command::Filter if self.view == View::Registry => {
                if !self.registry.table.has_prefix() {
                    return self.say("only names and groups are selected by a prefix");
                }
                self.prompt = Some(Prompt::Filter(self.registry.prefix.clone()));
            }
            Command::Filter => self.prompt = Some(Prompt::Filter(self.filter.clone())),
            Command::NextTable => {
                (self.registry.table, self.selected) = (self.registry.table.next(), 0);
                return Effect::Refresh;
            }
            Command::Pause => self.is_paused = !self.is_paused,
            Command::Cancel => return self.ask_about_process("cancel", &[]),
            Command::Kill => return self.ask_about_process("kill", &[]),
            Command::Priority => return self.ask_about_priority(),
            Command::Suspend => return self.ask_about_suspension(),
            Command::Trace => {
                let Some(pid) = &self.pid else { return self.say("no process is selected") };
                self.trace = Trace::of(pid);
                return self.show(View::Trace);
            }
            Command::Measure => {
                let Some(pid) = &self.pid else { return self.say("no process is selected") };
                self.rates.messages.toggle();
                if self.rates.messages.is_on {
                    self.trace = Trace::to_measure(pid);
                }
                return Effect::Refresh;
            }
            Command::Restart => return self.ask_about_restart(),
            Command::FlightRecord => return self.ask("write a flight record?".into(), ("write_flight_record", vec![])),
            Command::MoreWorkers => return self.ask_about_workers(self.workers.requested + 1),
            Command::FewerWorkers => return self.ask_about_workers(self.workers.requested.saturating_sub(1)),
        }
        Effect::Draw
    }

    fn show(&mut self, view: View) -> Effect {
        if view != self.view {
            (self.view, self.selected) = (view, 0);
        }
        if view == View::Process {
            self.details = None;
        }
        if !self.measures_messages() {
            self.rates.messages.is_on = false;
        }
        Effect::Refresh
    }
}

fn parse<T: DeserializeOwned>(value: Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(value)
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyModifiers;
    use serde_json::json;

    use super::*;

    fn press(app: &mut App, code: KeyCode) -> Effect {
        app.handle_key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn with_rows() -> App {
        let mut app = App::new("socket".into());
        app.hello.actions = true;
        press(&mut app, KeyCode::Char('2'));
        let rows = json!({ "rows": [{ "pid": "<1.0.1>", "priority": "Normal" }, { "pid": "<1.1.1>" }] });
        app.handle_reply("processes", Ok(rows));
        app
    }

    #[test]
    fn the_selection_stays_inside_the_rows() {
        let mut app = with_rows();
        assert_eq!(app.selected_pid(), Some("<1.0.1>"));
        (0..5).for_each(|_| drop(press(&mut app, KeyCode::Down)));
        assert_eq!(app.selected_pid(), Some("<1.1.1>"));
        app.handle_reply("processes", Ok(json!({ "rows": [{ "pid": "<1.0.1>" }] })));
        assert_eq!(app.selected_pid(), Some("<1.0.1>"));
        app.handle_reply("processes", Ok(json!({ "rows": [] })));
        assert_eq!(app.selected_pid(), None);
        assert_eq!(press(&mut app, KeyCode::Enter), Effect::Draw);
    }

    #[test]
    fn an_action_needs_a_confirmation() {
        let mut app = with_rows();
        assert_eq!(press(&mut app, KeyCode::Char('k')), Effect::Draw);
        assert_eq!(press(&mut app, KeyCode::Char('n')), Effect::Draw);
        assert_eq!((app.prompt.take(), app.message.as_deref()), (None, Some("nothing was done")));
        press(&mut app, KeyCode::Char('k'));
        assert_eq!(press(&mut app, KeyCode::Char('y')), Effect::Act(("kill", vec![("pid", "<1.0.1>".into())])));
        press(&mut app, KeyCode::Char('P'));
        let fields = vec![("pid", "<1.0.1>".into()), ("priority", "High".into())];
        assert_eq!(press(&mut app, KeyCode::Char('y')), Effect::Act(("set_priority", fields)));
        app.hello.actions = false;
        assert_eq!(press(&mut app, KeyCode::Char('k')), Effect::Draw);
        assert!(app.prompt.is_none() && app.message.unwrap().contains("actions are off"));
    }

    #[test]
    fn the_filter_is_edited_and_sent() {
        let mut app = with_rows();
        press(&mut app, KeyCode::Char('/'));
        "colour=r".chars().for_each(|letter| _ = press(&mut app, KeyCode::Char(letter)));
        assert_eq!(press(&mut app, KeyCode::Enter), Effect::Draw);
        assert_eq!(app.message.as_deref(), Some("colour is none of name, type, state"));
        (0.."colour=r".len()).for_each(|_| _ = press(&mut app, KeyCode::Backspace));
        "q state=idle".chars().for_each(|letter| _ = press(&mut app, KeyCode::Char(letter)));
        assert_eq!(press(&mut app, KeyCode::Enter), Effect::Refresh);
        let (_, fields) = &app.requests()[1];
        assert!(fields.contains(&("name", "q".into())) && fields.contains(&("state", "Idle".into())), "{fields:?}");
        assert_eq!(press(&mut app, KeyCode::Char('q')), Effect::Quit);
    }

    #[test]
    fn the_keys_of_the_order_change_the_request() {
        let mut app = with_rows();
        let order = |app: &App| {
            let (_, fields) = app.requests().remove(1);
            let field = |name| fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.clone());
            (field("order").unwrap(), field("descending").unwrap())
        };
        assert_eq!(order(&app), (json!("mailbox_len"), json!(true)));
        press(&mut app, KeyCode::Char('r'));
        assert_eq!(order(&app), (json!("mailbox_len"), json!(false)));
        let columns = |app: &mut App| -> Vec<_> {
            std::iter::repeat_with(|| {
                press(app, KeyCode::Char('s'));
                order(app).0
            })
            .take_while(|column| *column != "mailbox_len")
            .collect()
        };
        // An older server does not know all columns.
        assert_eq!(columns(&mut app).len(), COLUMNS.len() - 3);
        app.hello.requests = vec!["run_times".into()];
        let all = columns(&mut app);
        assert_eq!(all.len(), COLUMNS.len() - 1);
        assert!(
            all.contains(&json!("pid"))
                && all.contains(&json!("waiting_since_ns"))
                && all.contains(&json!("unread_since_ns"))
        );
    }

    #[test]
    fn the_busy_time_of_a_worker_in_one_step_begins_at_the_first_reply() {
        let mut app = App::new("socket".into());
        let mut reply = |now: u64, polls: u64| {
            let worker = json!({ "worker": 3, "process": "<1.0.1>", "polls": polls });
            app.handle_reply("workers", Ok(json!({ "now_ns": now, "workers": [worker, { "worker": 4 }] })));
            (app.busy_ns(3), app.busy_ns(4))
        };
        assert_eq!(reply(1_000, 7), (Some(0), None));
        assert_eq!(reply(3_000, 7), (Some(2_000), None));
        assert_eq!(reply(4_000, 8), (Some(0), None));
    }

    #[test]
    fn a_new_program_starts_a_new_history() {
        let mut app = App::new("socket".into());
        let mut read = |pid: u32, seconds: u64, steps: u64| {
            app.handle_reply("hello", Ok(json!({ "program_pid": pid, "node": 1 })));
            let metrics = json!({ "elapsed_ns": seconds * 1_000_000_000, "counters": { "steps": steps } });
            app.handle_reply("overview", Ok(json!({ "now_ns": 1, "metrics": metrics })));
            (app.interval.rate("steps"), app.history.len())
        };
        assert_eq!(read(7, 10, 1_000), (100.0, 1));
        assert_eq!(read(7, 11, 1_500), (500.0, 2));
        assert_eq!(read(8, 2, 100), (50.0, 1));
        // A restarted program may have the same process id.
        assert_eq!(read(8, 3, 200), (100.0, 2));
        assert_eq!(read(8, 2, 50), (25.0, 1));
    }

    #[test]
    fn an_error_of_the_connection_lasts_until_the_next_snapshot() {
        let mut app = App::new("socket".into());
        app.handle_reply("hello", Err(Error::Protocol("no console".into())));
        assert_eq!(app.error.as_deref(), Some("protocol: no console"));
        app.handle_reply("hello", Ok(json!({})));
        assert_eq!(app.error, None);
        app.handle_reply("overview", Ok(json!({ "now_ns": "a text" })));
        assert!(app.error.is_some_and(|error| error.starts_with("overview: ")));
    }

    #[test]
    fn a_process_that_exits_is_no_error() {
        let mut app = with_rows();
        press(&mut app, KeyCode::Enter);
        assert_eq!(app.requests()[1], ("process", vec![("pid", "<1.0.1>".into())]));
        app.handle_reply("process", Ok(json!({ "names": ["a"] })));
        assert!(app.details.is_some());
        app.handle_reply("process", Err(Error::Refused { kind: "no_process".into(), message: "gone".into() }));
        assert_eq!((&app.details, &app.error), (&None, &None));
        press(&mut app, KeyCode::Esc);
        assert_eq!(app.view, View::Processes);
    }
}
