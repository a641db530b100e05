//! The actions of the console: the question before an action, and the result of the action.

use serde_json::Value;

use crate::app::{App, Effect, Prompt, Request, View};
use crate::client::Error;
use crate::model::Row;

impl App {
    pub(crate) fn ask(&mut self, question: String, action: Request) -> Effect {
        if !self.hello.actions {
            return self.say("actions are off; the program turns them on with Builder::console_actions");
        }
        self.prompt = Some(Prompt::Confirm { question, action });
        Effect::Draw
    }

    pub(crate) fn ask_about_process(&mut self, action: &'static str, fields: &[(&'static str, &str)]) -> Effect {
        let Some(pid) = self.selected_pid().map(str::to_owned) else { return self.say("no process is selected") };
        let values: String = fields.iter().map(|(name, value)| format!(" {name} {value}")).collect();
        let question = format!("{action} {pid}{values}?");
        let mut all = vec![("pid", pid.into())];
        all.extend(fields.iter().map(|(name, value)| (*name, Value::from(*value))));
        self.ask(question, (action, all))
    }

    /// Returns the row of the process that the user has selected. An action changes this process.
    fn selected_row(&self) -> Option<&Row> {
        match self.view {
            View::Process => self.details.as_ref().map(|details| &details.info),
            _ => self.processes.rows.get(self.selected),
        }
    }

    /// Asks whether to give the process the next priority.
    pub(crate) fn ask_about_priority(&mut self) -> Effect {
        let next = match self.selected_row().map(|row| row.priority.as_str()) {
            Some("Low") => "Normal",
            Some("Normal") => "High",
            _ => "Low",
        };
        self.ask_about_process("set_priority", &[("priority", next)])
    }

    /// If the process is suspended, asks whether to resume the process. Otherwise asks whether to suspend the process.
    pub(crate) fn ask_about_suspension(&mut self) -> Effect {
        let is_suspended = self.selected_row().is_some_and(|row| row.state.as_deref() == Some("Suspended"));
        self.ask_about_process(if is_suspended { "resume" } else { "suspend" }, &[])
    }

    /// Asks about the restart of the selected child. A child that does not run has no pid, so the name of the child and
    /// the supervisor identify the child.
    pub(crate) fn ask_about_restart(&mut self) -> Effect {
        if self.view != View::Tree {
            return self.ask_about_process("restart_child", &[]);
        }
        match self.tree.child(self.selected) {
            Some((label, fields)) => self.ask(
                format!("restart_child {label}?"),
                ("restart_child", fields.map(|(name, text)| (name, text.into())).into()),
            ),
            None => self.say("no child is selected"),
        }
    }

    /// Shows the result of an action as a message.
    pub fn handle_action(&mut self, action: &str, result: Result<Value, Error>) {
        self.message = Some(match result {
            Err(error) => error.to_string(),
            Ok(reply) => match reply["path"].as_str().or(reply["pid"].as_str()) {
                Some(result) => format!("{action}: {result}"),
                None => format!("{action}: done"),
            },
        });
    }

    pub(crate) fn ask_about_workers(&mut self, count: u64) -> Effect {
        self.ask(format!("set the number of workers to {count}?"), ("set_workers", vec![("count", count.into())]))
    }
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::{KeyCode, KeyEvent};
    use serde_json::json;

    use super::*;

    fn press(app: &mut App, code: KeyCode) -> Effect {
        app.handle_key(KeyEvent::from(code))
    }

    #[test]
    fn the_same_key_suspends_and_resumes_a_process() {
        let mut app = App { view: View::Processes, ..App::new("socket".into()) };
        app.hello.actions = true;
        for (state, action) in [("Idle", "suspend"), ("Suspended", "resume"), ("Running", "suspend")] {
            app.handle_reply("processes", Ok(json!({ "rows": [{ "pid": "<1.0.1>", "state": state }] })));
            press(&mut app, KeyCode::Char('S'));
            let pressed = press(&mut app, KeyCode::Char('y'));
            assert_eq!(pressed, Effect::Act((action, vec![("pid", "<1.0.1>".into())])));
        }
    }

    #[test]
    fn a_child_is_restarted_by_its_supervisor() {
        let mut app = App { view: View::Tree, ..App::new("socket".into()) };
        app.hello.actions = true;
        let rows = json!([
            { "depth": 0, "pid": "<1.0.1>", "name": "top" },
            { "depth": 1, "pid": "<1.1.1>", "name": "below" },
            { "depth": 2, "pid": "<1.2.1>" },
            { "depth": 1, "pid": null, "name": "cache", "state": "stopped" },
            { "depth": 1, "pid": null, "state": "stopped" },
        ]);
        app.handle_reply("supervision_tree", Ok(json!({ "rows": rows, "row_count": 5 })));
        let mut restart = |row| {
            app.selected = row;
            press(&mut app, KeyCode::Char('R'));
            match press(&mut app, KeyCode::Char('y')) {
                Effect::Act((_, fields)) => json!(fields),
                _ => json!(null),
            }
        };
        assert_eq!(restart(1), json!([["supervisor", "<1.0.1>"], ["name", "below"]]));
        assert_eq!(restart(2), json!([["supervisor", "<1.1.1>"], ["pid", "<1.2.1>"]]));
        assert_eq!(restart(3), json!([["supervisor", "<1.0.1>"], ["name", "cache"]]));
        // The first row has no supervisor. The last row has neither a name nor a pid.
        assert_eq!((restart(0), restart(4)), (json!(null), json!(null)));
        (app.view, app.pid) = (View::Process, Some("<1.2.1>".into()));
        press(&mut app, KeyCode::Char('R'));
        let action = ("restart_child", vec![("pid", "<1.2.1>".into())]);
        assert_eq!(press(&mut app, KeyCode::Char('y')), Effect::Act(action));
        app.handle_action("restart_child", Ok(json!({ "pid": "<1.2.2>" })));
        assert_eq!(app.message.as_deref(), Some("restart_child: <1.2.2>"));
    }
}
