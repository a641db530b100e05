//! The loop of the console: reads keys, asks the server, and draws the screen.

use std::io;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use crate::app::{App, Effect, Request};
use crate::client::{Client, Error, Target};
use crate::player::{Player, Reaction};
use crate::{keys, views};

/// Maximum number of additional requests for live trace events in one refresh. The server keeps at most 4,096 events,
/// and a request takes 1,000 events. Without this limit, the console would never draw the screen while a process causes
/// many events.
const MORE_PARTS: u32 = 4;

/// Connection that is opened again after an error.
#[derive(Debug)]
pub struct Connection {
    target: Target,
    client: Option<Client>,
}

impl Connection {
    /// Connects to a program.
    ///
    /// # Errors
    /// Returns the error of [`Client::connect`].
    pub fn open(target: Target) -> Result<Self, Error> {
        let client = Client::connect(&target)?;
        Ok(Self { target, client: Some(client) })
    }

    /// Sends a request. If the previous request has ended the connection, this method first connects again.
    ///
    /// # Errors
    /// Returns the error of the connection or of the request.
    pub fn request(&mut self, (request, fields): Request) -> Result<serde_json::Value, Error> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(&self.target)?,
        };
        let reply = client.request(request, fields);
        if reply.as_ref().err().is_none_or(Error::is_refusal) {
            self.client = Some(client);
        }
        reply
    }
}

/// Runs the console until the user quits.
///
/// # Errors
/// Returns an error of the terminal.
pub fn run(connection: &mut Connection, app: &mut App, interval: Duration) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let result = drive(&mut terminal, connection, app, interval);
    ratatui::restore();
    result
}

fn drive(
    terminal: &mut DefaultTerminal,
    connection: &mut Connection,
    app: &mut App,
    interval: Duration,
) -> io::Result<()> {
    refresh(connection, app);
    let mut next = Instant::now() + interval;
    loop {
        terminal.draw(|frame| views::draw(frame, app))?;
        if !event::poll(next.saturating_duration_since(Instant::now()))? {
            if !app.is_paused {
                refresh(connection, app);
            }
            next = Instant::now() + interval;
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        if !keys::is_press(&key) {
            continue;
        }
        match app.handle_key(key) {
            Effect::Quit => return Ok(()),
            Effect::Draw => {}
            Effect::Refresh => refresh(connection, app),
            Effect::Act(action) => {
                let name = action.0;
                let result = connection.request(action);
                refresh(connection, app);
                app.handle_action(name, result);
            }
        }
    }
}

/// Shows a recording until the user quits.
///
/// # Errors
/// Returns an error of the terminal.
pub fn play(player: &mut Player) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let result = step_through(&mut terminal, player);
    ratatui::restore();
    result
}

fn step_through(terminal: &mut DefaultTerminal, player: &mut Player) -> io::Result<()> {
    loop {
        terminal.draw(|frame| views::recording::draw(frame, player))?;
        if let Event::Key(key) = event::read()?
            && keys::is_press(&key)
            && player.handle_key(&key) == Reaction::Quit
        {
            return Ok(());
        }
    }
}

/// Requests the data of the present view. If the connection is lost, the function sends no further requests.
pub fn refresh(connection: &mut Connection, app: &mut App) {
    refresh_with(app, |request| connection.request(request));
}

/// Sends the requests of a refresh with the function `ask`.
pub fn refresh_with(app: &mut App, mut ask: impl FnMut(Request) -> Result<serde_json::Value, Error>) {
    // Returns whether the connection exists.
    let mut send = |app: &mut App, request: Request| {
        let name = request.0;
        let reply = ask(request);
        let is_lost = reply.as_ref().is_err_and(|error| !error.is_refusal());
        app.handle_reply(name, reply);
        !is_lost
    };
    for request in app.requests() {
        if !send(app, request) {
            return;
        }
    }
    for _ in 0..MORE_PARTS {
        let Some(request) = app.further_request() else { return };
        if !send(app, request) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::app::View;
    use crate::trace::Trace;

    /// Refreshes the view of a trace while the server has this number of unread events. Returns the number of events
    /// that the server still has, and the number of requests for events.
    fn refreshed(mut unread: u64) -> (u64, u32) {
        let mut app = App { view: View::Trace, trace: Trace::of("<1.0.1>"), ..App::default() };
        let mut requests = 0;
        refresh_with(&mut app, |(name, fields)| {
            if name == "trace_events" {
                let part = unread.min(fields[0].1.as_u64().unwrap());
                (unread, requests) = (unread - part, requests + 1);
                let events: Vec<_> = (0..part).map(|at| json!({ "at_ns": at, "event": "received" })).collect();
                return Ok(json!({ "events": events, "unread": unread }));
            }
            Ok(json!({}))
        });
        (unread, requests)
    }

    #[test]
    fn a_refresh_reads_all_unread_events_of_the_trace() {
        assert_eq!(refreshed(0), (0, 1));
        assert_eq!(refreshed(1_000), (0, 1));
        assert_eq!(refreshed(4_095), (0, 5));
        // The server still has events after each request. Nevertheless, the refresh ends, so that the console can draw
        // the screen.
        assert_eq!(refreshed(10_000), (5_000, 5));
    }
}
