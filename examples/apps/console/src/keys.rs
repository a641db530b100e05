//! The keys of the console. The table lists each key once, with the views that use the key and with the text at the
//! bottom of the screen.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::app::View;

/// Meaning of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Shows a view.
    Show(View),
    /// Shows the next view.
    NextView,
    /// Selects the previous row.
    Up,
    /// Selects the next row.
    Down,
    /// Shows the process of the selected row.
    Open,
    /// Leaves the view of one process, or the view of the trace of this process.
    Back,
    /// Sorts by the next column.
    NextColumn,
    /// Shows the next table of the view.
    NextTable,
    /// Reverses the order.
    Reverse,
    /// Opens the input of the filter.
    Filter,
    /// Stops or continues the refresh.
    Pause,
    /// Cancels the process.
    Cancel,
    /// Kills the process.
    Kill,
    /// Changes the priority of the process.
    Priority,
    /// Suspends the process, or resumes the process.
    Suspend,
    /// Starts the live trace of the process.
    Trace,
    /// Begins or ends the measurement of the messages of the process.
    Measure,
    /// Restarts the child of a supervisor.
    Restart,
    /// Writes a flight record.
    FlightRecord,
    /// Adds a worker.
    MoreWorkers,
    /// Removes a worker.
    FewerWorkers,
    /// Ends the console.
    Quit,
}

const LISTS: &[View] =
    &[View::Processes, View::Process, View::Waits, View::Workers, View::Exits, View::Tree, View::Registry];
const OPENED: &[View] = &[View::Processes, View::Waits, View::Workers, View::Tree, View::Registry];
const PROCESSES: &[View] = &[View::Processes, View::Process];
const CHILDREN: &[View] = &[View::Process, View::Tree];
const RUNTIME: &[View] = &[View::Overview, View::Workers];

/// Key, command, views (an empty list means all views), and the help text. A key without a text is not shown.
const KEYS: &[(KeyCode, Command, &[View], &str)] = &[
    (KeyCode::Char('1'), Command::Show(View::Overview), &[], ""),
    (KeyCode::Char('2'), Command::Show(View::Processes), &[], ""),
    (KeyCode::Char('3'), Command::Show(View::Process), &[], ""),
    (KeyCode::Char('4'), Command::Show(View::Waits), &[], ""),
    (KeyCode::Char('5'), Command::Show(View::Workers), &[], ""),
    (KeyCode::Char('6'), Command::Show(View::Explain), &[], ""),
    (KeyCode::Char('7'), Command::Show(View::Exits), &[], ""),
    (KeyCode::Char('8'), Command::Show(View::Tree), &[], ""),
    (KeyCode::Char('9'), Command::Show(View::Registry), &[], ""),
    (KeyCode::Tab, Command::NextView, &[], ""),
    (KeyCode::Char('q'), Command::Quit, &[], "q quit"),
    (KeyCode::Char('p'), Command::Pause, &[], "p pause"),
    (KeyCode::Up, Command::Up, LISTS, ""),
    (KeyCode::Down, Command::Down, LISTS, ""),
    (KeyCode::Up, Command::Up, &[View::Explain], "↑↓ scroll"),
    (KeyCode::Down, Command::Down, &[View::Explain], ""),
    (KeyCode::Enter, Command::Open, OPENED, "↑↓⏎ open"),
    (KeyCode::Char('s'), Command::NextColumn, &[View::Processes], "s sort"),
    (KeyCode::Char('r'), Command::Reverse, &[View::Processes], "r reverse"),
    (KeyCode::Char('/'), Command::Filter, &[View::Processes], "/ filter"),
    (KeyCode::Char('t'), Command::NextTable, &[View::Registry], "t next table"),
    (KeyCode::Char('/'), Command::Filter, &[View::Registry], "/ prefix"),
    (KeyCode::Char('c'), Command::Cancel, PROCESSES, "c cancel"),
    (KeyCode::Char('k'), Command::Kill, PROCESSES, "k kill"),
    (KeyCode::Char('P'), Command::Priority, PROCESSES, "P prio"),
    (KeyCode::Char('S'), Command::Suspend, &[View::Processes], ""),
    (KeyCode::Char('S'), Command::Suspend, &[View::Process], "S suspend/resume"),
    (KeyCode::Char('R'), Command::Restart, CHILDREN, "R restart"),
    (KeyCode::Char('+'), Command::MoreWorkers, &[View::Workers], "+ add worker"),
    (KeyCode::Char('-'), Command::FewerWorkers, &[View::Workers], "- remove worker"),
    (KeyCode::Char('t'), Command::Trace, &[View::Process], "t trace"),
    (KeyCode::Char('t'), Command::Trace, &[View::Trace], "t trace again"),
    (KeyCode::Char('m'), Command::Measure, &[View::Process], ""),
    (KeyCode::Char('F'), Command::FlightRecord, RUNTIME, "F flight record"),
    (KeyCode::Esc, Command::Back, &[View::Trace], "Esc back"),
    (KeyCode::Esc, Command::Back, &[View::Process], ""),
];

/// Returns whether the event is the press of a key. Some systems also report the release of a key.
pub fn is_press(key: &KeyEvent) -> bool {
    key.kind != KeyEventKind::Release
}

/// Returns whether the key ends the console in every state.
pub fn is_interrupt(key: &KeyEvent) -> bool {
    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}

/// Returns the command of a key in this view.
pub fn command(view: View, code: KeyCode) -> Option<Command> {
    let applies = |views: &[View]| views.is_empty() || views.contains(&view);
    KEYS.iter().find(|(key, _, views, _)| *key == code && applies(views)).map(|(_, command, ..)| *command)
}

/// The line at the bottom of the screen.
pub fn help(view: View) -> String {
    let applies = |views: &[View]| views.is_empty() || views.contains(&view);
    let texts = KEYS.iter().filter(|(_, _, views, text)| applies(views) && !text.is_empty()).map(|(.., text)| *text);
    texts.collect::<Vec<_>>().join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_help_line_fits_into_80_columns_and_a_key_has_one_meaning() {
        for view in View::ALL {
            let help = help(view);
            assert!(help.chars().count() <= 80, "{help}");
            for (key, ..) in KEYS {
                let meanings = KEYS
                    .iter()
                    .filter(|(other, _, views, _)| other == key && (views.is_empty() || views.contains(&view)));
                assert!(meanings.count() <= 1, "{key:?} in {view:?}");
            }
        }
    }

    #[test]
    fn a_key_has_an_effect_only_in_the_views_that_use_the_key() {
        assert_eq!(command(View::Processes, KeyCode::Char('k')), Some(Command::Kill));
        assert_eq!(command(View::Workers, KeyCode::Char('k')), None);
        assert_eq!(command(View::Workers, KeyCode::Char('q')), Some(Command::Quit));
    }
}
