//! The tables of names, groups, timers and handlers.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::app::App;
use crate::model::{GroupRow, Groups, HandlerRow, Handlers, Names, Timers, Wheel};
use crate::registry::{Registry, Table};
use crate::views::{SELECTED, TITLE, draw_lines, duration, fit, number, offset, tail};

/// The lines of a table.
struct Lines {
    title: String,
    columns: String,
    rows: Vec<String>,
    /// Number of entries that the reply of the server leaves out.
    left_out: u64,
}

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let Lines { title, columns, rows, left_out } = match app.registry.table {
        Table::Names => names(&app.registry),
        Table::Groups => groups(&app.registry),
        Table::Timers => timers(&app.registry.timers),
        Table::Handlers => handlers(&app.registry.handlers),
    };
    let mut lines = vec![Line::raw(title), Line::styled(columns, TITLE)];
    let visible = usize::from(area.height).saturating_sub(3);
    for (index, text) in rows.into_iter().enumerate().skip(offset(app.selected, visible)).take(visible) {
        lines.push(if index == app.selected { Line::styled(text, SELECTED) } else { Line::raw(text) });
    }
    if left_out != 0 {
        let advice = if app.registry.table.has_prefix() { "; a prefix selects fewer" } else { "" };
        lines.push(Line::raw(format!("{} more left out{advice}", number(left_out))));
    }
    draw_lines(frame, area, lines);
}

/// Returns the part of a title that names the prefix.
fn beginning(prefix: &str) -> String {
    if prefix.is_empty() { String::new() } else { format!(" that begin with {prefix}") }
}

fn names(Registry { prefix, names: Names { rows, name_count }, .. }: &Registry) -> Lines {
    let row = |name: &str, pid: &str, type_name: &str| {
        format!("{:<28} {:<18} {}", tail(name, 28), tail(pid, 18), tail(type_name, 32))
    };
    Lines {
        title: format!("{} names{}", number(*name_count), beginning(prefix)),
        columns: row("NAME", "PID", "TYPE"),
        rows: rows.iter().map(|one| row(&one.name, &one.pid, &one.type_name)).collect(),
        left_out: name_count.saturating_sub(rows.len() as u64),
    }
}

fn groups(Registry { prefix, groups: Groups { rows, group_count }, .. }: &Registry) -> Lines {
    let line = |name: &str, members: &str, monitors: &str, first: &str| {
        format!("{:<28} {members:>7} {monitors:>8}  {first}", tail(name, 28))
    };
    let row = |GroupRow { name, members, first_members, monitors }: &GroupRow| {
        let more = if *members > first_members.len() as u64 { " …" } else { "" };
        let first = format!("{}{more}", first_members.join(" "));
        line(name, &number(*members), &number(*monitors), &fit(&first, 33))
    };
    Lines {
        title: format!("{} groups{}", number(*group_count), beginning(prefix)),
        columns: line("GROUP", "MEMBERS", "MONITORS", "FIRST MEMBERS"),
        rows: rows.iter().map(row).collect(),
        left_out: group_count.saturating_sub(rows.len() as u64),
    }
}

fn timers(Timers { now_ns, timer_count, wheel_count, wheels }: &Timers) -> Lines {
    let line = |wheel: &str, timers: &str, nearest: &str| format!("{wheel:<16} {timers:>12}  {nearest}");
    let row = |Wheel { worker, timers, nearest_ns }: &Wheel| {
        let wheel = worker.map_or_else(|| "other threads".to_owned(), |worker| format!("worker {worker}"));
        let nearest = match nearest_ns.map(|nearest| nearest.checked_sub(*now_ns)) {
            None => "never".to_owned(),
            Some(None) => "due".to_owned(),
            Some(Some(wait)) => format!("in {}", duration(Duration::from_nanos(wait))),
        };
        line(&wheel, &number(*timers), &nearest)
    };
    Lines {
        title: format!("{} timers in {} of {wheel_count} wheels", number(*timer_count), wheels.len()),
        columns: line("WHEEL", "TIMERS", "NEXT NOT BEFORE"),
        rows: wheels.iter().map(row).collect(),
        left_out: 0,
    }
}

fn handlers(Handlers { rows, handler_count, others, other_count }: &Handlers) -> Lines {
    let line =
        |outstanding: &str, kind: &str, command: &str| format!("{outstanding:>11}  {kind:<12} {}", tail(command, 54));
    let row = |HandlerRow { kind, command, outstanding }: &HandlerRow| {
        let outstanding = outstanding.map_or_else(|| "-".to_owned(), number);
        let kind = match kind.as_str() {
            // A command type may have a handler although the list of handlers does not contain this type. There are
            // three possible reasons: all commands with a name are counted as one type, the runtime itself answers
            // built-in commands, or another host has the handler.
            "" => "not listed",
            "stream_name" => "stream name",
            kind => kind,
        };
        line(&outstanding, kind, command)
    };
    Lines {
        title: format!("{} handlers, with the number of commands without an answer", number(*handler_count)),
        columns: line("OUTSTANDING", "HANDLER OF", "COMMAND"),
        rows: rows.iter().chain(others).map(row).collect(),
        left_out: (handler_count + other_count).saturating_sub((rows.len() + others.len()) as u64),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::{KeyCode, KeyEvent};
    use serde_json::json;

    use crate::app::{App, Effect, View};
    use crate::views::tests::screen;

    fn press(app: &mut App, code: KeyCode) -> Effect {
        app.handle_key(KeyEvent::from(code))
    }

    #[test]
    fn names_are_selected_by_a_prefix() {
        let mut app = App::new("socket".into());
        assert_eq!(press(&mut app, KeyCode::Char('9')), Effect::Refresh);
        assert_eq!(app.requests()[1], ("names", vec![("prefix", "".into()), ("limit", 200.into())]));
        press(&mut app, KeyCode::Char('/'));
        press(&mut app, KeyCode::Char('s'));
        assert_eq!(screen(&app)[22], "prefix of the names: s_");
        assert_eq!(press(&mut app, KeyCode::Enter), Effect::Refresh);
        assert_eq!((app.requests()[1].1[0].clone(), app.filter.as_str()), (("prefix", "s".into()), ""));
        let rows = json!([
            { "name": "shop", "pid": "<1.0.1>", "type_name": "app::Shop" },
            { "name": "stock", "pid": "<1.1.1>", "type_name": "app::Stock" },
        ]);
        app.handle_reply("names", Ok(json!({ "rows": rows, "name_count": 1_002 })));
        let expected = [
            "1,002 names that begin with s",
            "NAME                         PID                TYPE",
            "shop                         <1.0.1>            app::Shop",
            "stock                        <1.1.1>            app::Stock",
            "1,000 more left out; a prefix selects fewer",
        ];
        assert_eq!(screen(&app)[2..7], expected);
        press(&mut app, KeyCode::Down);
        assert_eq!(app.selected_pid(), Some("<1.1.1>"));
        press(&mut app, KeyCode::Enter);
        assert_eq!((app.view, app.pid.as_deref()), (View::Process, Some("<1.1.1>")));
    }

    #[test]
    fn groups_are_shown_with_their_first_members() {
        let mut app = App { view: View::Registry, ..App::new("socket".into()) };
        assert_eq!(press(&mut app, KeyCode::Char('t')), Effect::Refresh);
        assert_eq!(app.requests()[1].0, "groups");
        let many: Vec<_> = (0..8).map(|number| format!("<1.{number}.1>")).collect();
        let rows = json!([
            { "name": "jobs", "members": 1_200, "first_members": many, "monitors": 1 },
            { "name": "none", "members": 0, "first_members": [], "monitors": 2 },
            { "name": "pair", "members": 2, "first_members": ["<1.3.1>", "<1.1.1>"], "monitors": 0 },
        ]);
        app.handle_reply("groups", Ok(json!({ "rows": rows, "group_count": 3 })));
        let expected = [
            "3 groups",
            "GROUP                        MEMBERS MONITORS  FIRST MEMBERS",
            "jobs                           1,200        1  <1.0.1> <1.1.1> <1.2.1> <1.3.1> …",
            "none                               0        2",
            "pair                               2        0  <1.3.1> <1.1.1>",
            "",
        ];
        assert_eq!(screen(&app)[2..8], expected);
        assert_eq!(app.selected_pid(), Some("<1.0.1>"));
        press(&mut app, KeyCode::Down);
        assert_eq!(app.selected_pid(), None);
        press(&mut app, KeyCode::Char('t'));
        assert_eq!((app.selected, app.requests()[1].0), (0, "timers"));
    }

    #[test]
    fn each_timer_wheel_has_its_number_of_timers_and_its_next_deadline() {
        let mut app = App { view: View::Registry, ..App::new("socket".into()) };
        (0..2).for_each(|_| _ = press(&mut app, KeyCode::Char('t')));
        assert_eq!(app.requests()[1], ("timers", vec![]));
        let wheels = json!([
            { "worker": 0, "timers": 1_000, "nearest_ns": 3_500_000_000_u64 },
            { "worker": 1, "timers": 1, "nearest_ns": 1_000_000_000 },
            { "worker": null, "timers": 2, "nearest_ns": null },
        ]);
        let reply = json!({ "now_ns": 2_000_000_000, "timer_count": 1_003, "wheel_count": 5, "wheels": wheels });
        app.handle_reply("timers", Ok(reply));
        let expected = [
            "1,003 timers in 3 of 5 wheels",
            "WHEEL                  TIMERS  NEXT NOT BEFORE",
            "worker 0                1,000  in 1.5 s",
            "worker 1                    1  due",
            "other threads               2  never",
            "",
        ];
        assert_eq!(screen(&app)[2..8], expected);
        assert_eq!(app.selected_pid(), None);
    }

    #[test]
    fn handlers_are_shown_with_their_outstanding_commands() {
        let mut app = App { view: View::Registry, ..App::new("socket".into()) };
        (0..3).for_each(|_| _ = press(&mut app, KeyCode::Char('t')));
        assert_eq!(app.requests()[1], ("handlers", vec![("limit", 200.into())]));
        let rows = json!([
            { "kind": "type", "command": "app::Query", "outstanding": 1_200 },
            { "kind": "name", "command": "print", "outstanding": null },
            { "kind": "stream_name", "command": "lines", "outstanding": null },
        ]);
        let others = json!([{ "command": "procession::NamedCommand", "outstanding": 3 }]);
        let reply = json!({ "rows": rows, "handler_count": 4, "others": others, "other_count": 1 });
        app.handle_reply("handlers", Ok(reply));
        let expected = [
            "4 handlers, with the number of commands without an answer",
            "OUTSTANDING  HANDLER OF   COMMAND",
            "      1,200  type         app::Query",
            "          -  name         print",
            "          -  stream name  lines",
            "          3  not listed   procession::NamedCommand",
            "1 more left out",
        ];
        assert_eq!(screen(&app)[2..9], expected);
        press(&mut app, KeyCode::Char('/'));
        assert_eq!((&app.prompt, &*screen(&app)[22]), (&None, "only names and groups are selected by a prefix"));
        press(&mut app, KeyCode::Char('t'));
        assert_eq!(app.requests()[1].0, "names");
    }

    #[test]
    fn the_last_row_and_the_number_of_missing_rows_fit_on_the_screen() {
        let mut app = App { view: View::Registry, ..App::new("socket".into()) };
        let rows: Vec<_> = (0..200).map(|number| json!({ "name": format!("n{number:03}") })).collect();
        app.handle_reply("names", Ok(json!({ "rows": rows, "name_count": 201 })));
        app.selected = 199;
        let rows = screen(&app);
        assert!(rows[20] == "n199" && rows[21].starts_with("1 more left out"), "{rows:#?}");
    }
}
