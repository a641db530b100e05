//! The state of the view of names, groups, timers and handlers. The view shows one table at a time.

use serde_json::Value;

use crate::app::{ROWS, Request};
use crate::model::{Groups, Handlers, Names, Timers};

/// A table of the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Table {
    /// The names of processes.
    #[default]
    Names,
    /// The groups of processes.
    Groups,
    /// The timer wheels.
    Timers,
    /// The command handlers.
    Handlers,
}

impl Table {
    /// Returns whether this table can show only the rows that begin with a given prefix.
    pub fn has_prefix(self) -> bool {
        matches!(self, Self::Names | Self::Groups)
    }

    /// Returns the table after this table. After the last table, this function returns the first table.
    pub fn next(self) -> Self {
        match self {
            Self::Names => Self::Groups,
            Self::Groups => Self::Timers,
            Self::Timers => Self::Handlers,
            Self::Handlers => Self::Names,
        }
    }
}

/// State of the view.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "the names of the fields are enough")]
pub struct Registry {
    pub table: Table,
    /// Text with which the shown names of processes and groups begin.
    pub prefix: String,
    pub names: Names,
    pub groups: Groups,
    pub timers: Timers,
    pub handlers: Handlers,
}

impl Registry {
    /// Returns the request for the present table.
    pub fn request(&self) -> Request {
        let prefix = vec![("prefix", self.prefix.as_str().into()), ("limit", ROWS.into())];
        match self.table {
            Table::Names => ("names", prefix),
            Table::Groups => ("groups", prefix),
            Table::Timers => ("timers", Vec::new()),
            Table::Handlers => ("handlers", vec![("limit", ROWS.into())]),
        }
    }

    /// Stores the reply to a request for one of the tables. Ignores the replies to all other requests.
    ///
    /// # Errors
    /// Returns an error if a field has a wrong type.
    pub fn store(&mut self, request: &str, value: Value) -> Result<(), serde_json::Error> {
        match request {
            "names" => self.names = serde_json::from_value(value)?,
            "groups" => self.groups = serde_json::from_value(value)?,
            "timers" => self.timers = serde_json::from_value(value)?,
            "handlers" => self.handlers = serde_json::from_value(value)?,
            _ => {}
        }
        Ok(())
    }

    /// Number of rows of the table.
    pub fn rows(&self) -> usize {
        match self.table {
            Table::Names => self.names.rows.len(),
            Table::Groups => self.groups.rows.len(),
            Table::Timers => self.timers.wheels.len(),
            Table::Handlers => self.handlers.rows.len() + self.handlers.others.len(),
        }
    }

    /// Pid of a row: the process with the name, or the first member of the group. `None` if no process belongs to the
    /// row.
    pub fn pid(&self, row: usize) -> Option<&str> {
        match self.table {
            Table::Names => self.names.rows.get(row).map(|row| row.pid.as_str()),
            Table::Groups => self.groups.rows.get(row)?.first_members.first().map(String::as_str),
            Table::Timers | Table::Handlers => None,
        }
    }
}
