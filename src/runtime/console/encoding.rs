//! Encodes replies as lines, within the limits of the protocol.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::process::pid::Pid;
use crate::runtime::console::request::{Fault, FaultKind, MAX_ROWS};

/// Maximum length of a reply in bytes.
pub(super) const MAX_REPLY: usize = 1 << 20;

/// Maximum length of a text in a reply, in characters. Longer texts are shortened, for example the long name of a
/// process.
const LONGEST_TEXT: usize = 1_000;

pub(super) type Reply = Result<Value, Fault>;

/// Returns the line of an error without a request id. After this line, the server closes the connection.
pub(super) fn refusal(kind: FaultKind, message: impl Into<String>) -> Vec<u8> {
    refusal_of(Value::Null, kind, message)
}

/// Returns the line that reports an error to the client. `id` is the id of the request.
pub(super) fn refusal_of(id: Value, kind: FaultKind, message: impl Into<String>) -> Vec<u8> {
    encode(id, Err(Fault::new(kind, message)))
}

pub(super) fn no_process(pid: Pid) -> Fault {
    Fault::new(FaultKind::NoProcess, format!("process {pid} has exited or never existed"))
}

/// Collects at most [`MAX_ROWS`] values.
pub(super) fn list<T: Into<Value>>(values: impl IntoIterator<Item = T>) -> Value {
    values.into_iter().take(MAX_ROWS).map(Into::into).collect::<Vec<Value>>().into()
}

/// Returns the line of a reply.
pub(super) fn encode(id: Value, reply: Reply) -> Vec<u8> {
    let fault =
        |Fault { kind, message }| json!({ "id": id, "error": { "kind": kind.to_string(), "message": message } });
    let body = match reply {
        Ok(mut reply) => {
            shorten(&mut reply);
            json!({ "id": id, "ok": reply })
        }
        Err(found) => fault(found),
    };
    line(&body).unwrap_or_else(|| {
        let message = format!("the reply is longer than {MAX_REPLY} bytes; ask for fewer rows");
        line(&fault(Fault::new(FaultKind::ReplyTooLong, message))).unwrap_or_default()
    })
}

/// Returns the value as one line. Returns `None` if the line is too long.
pub(super) fn line(value: &Value) -> Option<Vec<u8>> {
    let mut bounded = Bounded(Vec::new());
    serde_json::to_writer(&mut bounded, value).ok()?;
    bounded.0.push(b'\n');
    Some(bounded.0)
}

/// Writer that refuses more than [`MAX_REPLY`] bytes.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_REPLY {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Shortens long texts, for example the name of a process.
fn shorten(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some((end, _)) = text.char_indices().nth(LONGEST_TEXT) {
                text.truncate(end);
                text.push('…');
            }
        }
        Value::Array(values) => values.iter_mut().for_each(shorten),
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_is_too_long_becomes_an_error() {
        let rows = |count| encode(7.into(), Ok(list(vec!["x".repeat(LONGEST_TEXT); count])));
        assert!(rows(1_000).starts_with(br#"{"id":7,"ok":["xx"#));
        let long =
            encode(7.into(), Ok(json!([list(vec!["x".repeat(900); 1_000]), list(vec!["x".repeat(900); 1_000])])));
        let text = String::from_utf8(long).unwrap();
        assert!(text.contains(r#""kind":"reply_too_long""#) && text.contains(r#""id":7"#), "{text}");
    }

    #[test]
    fn a_reply_is_one_line_and_long_texts_are_shortened() {
        let line = encode(Value::Null, Ok(json!({ "name": format!("a\nb{}", "é".repeat(2_000)) })));
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let text = String::from_utf8(line).unwrap();
        assert_eq!(text.matches('é').count(), LONGEST_TEXT - 3);
        assert!(text.contains("é…"));
    }
}
