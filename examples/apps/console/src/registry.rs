//! The state of the view of names.

use serde_json::Value;

use crate::app::{ROWS, Request};
use crate::model::Names;

/// State of the view.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "the names of the fields are enough")]
pub struct Registry {
    /// Text with which the shown names begin.
    pub prefix: String,
    pub names: Names,
}

impl Registry {
    /// The request for the table.
    pub fn request(&self) -> Request {
        ("names", vec![("prefix", self.prefix.as_str().into()), ("limit", ROWS.into())])
    }

    /// Takes the reply to a request. Ignores the replies to other requests.
    ///
    /// # Errors
    /// Returns an error if a field has a wrong type.
    pub fn store(&mut self, request: &str, value: Value) -> Result<(), serde_json::Error> {
        if request == "names" {
            self.names = serde_json::from_value(value)?;
        }
        Ok(())
    }

    /// Number of rows of the table.
    pub fn rows(&self) -> usize {
        self.names.rows.len()
    }

    /// Pid of a row. `None` if there is no such row.
    pub fn pid(&self, row: usize) -> Option<&str> {
        self.names.rows.get(row).map(|row| row.pid.as_str())
    }
}
