//! The connection of one client: reads lines, and writes one reply for each line. This file knows neither the kind of
//! the socket nor the contents of the lines.
//!
//! The server has at most one unwritten or partly written reply for each client. The server reads the next request only
//! after the client has read this reply. Therefore the memory of a client is bounded by one request and one reply.

use std::io::{self, Read, Write};
use std::time::Duration;

use crate::platform::clock::Instant;

/// Maximum length of a request in bytes, without the line break.
pub(super) const MAX_REQUEST: usize = 16 << 10;

/// If a client has read no part of its reply for this time, the server closes the connection.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// If a client has not sent its token after this time, the server closes the connection.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Answer to a line that the client has sent.
pub(super) struct Answer {
    pub(super) reply: Vec<u8>,
    pub(super) then: Then,
}

/// State of the connection after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// The connection stays open.
    Continue,
    /// The client has sent the token, and may send requests.
    Trust,
    /// The server closes the connection after the reply.
    Close,
    /// The reply comes later, as the argument of [`Client::complete`].
    Wait,
}

/// Result of [`Client::turn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum TurnResult {
    /// The client may already have sent another request, so the caller calls `turn` again.
    Again,
    /// The next turn must wait until the client reads or writes, or until a reply that comes later is complete.
    Blocked,
    /// The connection has ended, and the caller must drop the client.
    Ended,
}

pub(super) struct Client<S> {
    pub(super) stream: S,
    /// Bytes that the client has sent and the server has not answered yet.
    input: Vec<u8>,
    /// The first `searched` bytes of `input` contain no line break.
    searched: usize,
    output: Vec<u8>,
    /// Number of bytes of `output` that the server has already written to `stream`.
    written: usize,
    is_trusted: bool,
    is_closing: bool,
    /// Whether the client waits for a reply that comes later.
    is_waiting: bool,
    /// Time at which the server closes the connection. The server removes the deadline when the client reads bytes of
    /// its reply, or sends its token.
    deadline: Option<Instant>,
}

impl<S: Read + Write> Client<S> {
    /// `is_trusted` is false if the client must send a token. The connection begins with the greeting.
    pub(super) fn new(stream: S, greeting: Vec<u8>, is_trusted: bool, now: Instant) -> Self {
        Self {
            stream,
            input: Vec::new(),
            searched: 0,
            output: greeting,
            written: 0,
            is_trusted,
            is_closing: false,
            is_waiting: false,
            deadline: (!is_trusted).then(|| now + TOKEN_TIMEOUT),
        }
    }

    /// Time at which the server closes the connection.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns whether the client needs no token, or has sent its token.
    pub(super) fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    /// Writes the pending reply, and then answers at most one request. Therefore a client with many requests does not
    /// delay other clients. `answer` receives a line, and a flag that is true if the client is trusted.
    pub(super) fn turn(&mut self, now: Instant, answer: impl FnOnce(&[u8], bool) -> Answer) -> TurnResult {
        match self.write(now) {
            Ok(true) if self.is_closing => TurnResult::Ended,
            Ok(true) if self.is_waiting => TurnResult::Blocked,
            Ok(true) => self.read(answer).unwrap_or(TurnResult::Ended),
            Ok(false) => TurnResult::Blocked,
            Err(_) => TurnResult::Ended,
        }
    }

    /// Sets the reply of a request whose answer was [`Then::Wait`]. The next turn writes the reply.
    pub(super) fn complete(&mut self, reply: Vec<u8>) {
        (self.output, self.is_waiting) = (reply, false);
    }

    /// Writes the pending reply. Returns false if the client must read first.
    fn write(&mut self, now: Instant) -> io::Result<bool> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.written += count;
                    self.relax();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.deadline.get_or_insert(now + WRITE_TIMEOUT);
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // The buffer is replaced, so that the memory of a long reply is released.
        (self.output, self.written) = (Vec::new(), 0);
        Ok(true)
    }

    /// Removes the deadline, because the client makes progress. If the client must still send its token, the deadline
    /// stays.
    fn relax(&mut self) {
        if self.is_trusted {
            self.deadline = None;
        }
    }

    /// Reads until the input contains a line, and answers this line. If the client ends its input without a line feed,
    /// the rest of the input is the last line.
    fn read(&mut self, answer: impl FnOnce(&[u8], bool) -> Answer) -> io::Result<TurnResult> {
        let mut has_ended = false;
        loop {
            let found = self.input[self.searched..].iter().position(|byte| *byte == b'\n');
            let end = found.map_or(self.input.len(), |at| self.searched + at);
            if found.is_some() || end > MAX_REQUEST || has_ended {
                let Answer { reply, then } = answer(&self.input[..end], self.is_trusted);
                self.output = reply;
                // After a line that is too long, the start of the next request is unknown.
                self.is_closing = then == Then::Close || end > MAX_REQUEST;
                self.is_waiting = then == Then::Wait;
                if then == Then::Trust {
                    self.is_trusted = true;
                    self.deadline = None;
                }
                self.input.drain(..(end + 1).min(self.input.len()));
                self.searched = 0;
                return Ok(TurnResult::Again);
            }
            self.searched = end;
            let mut buffer = [0; 4 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) if self.input.is_empty() => return Ok(TurnResult::Ended),
                Ok(0) => has_ended = true,
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(TurnResult::Blocked),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Connection in memory. A read blocks if `input` is empty. A write blocks after `room` bytes were written.
    #[derive(Default)]
    struct Pipe {
        input: VecDeque<Vec<u8>>,
        has_ended: bool,
        output: Vec<u8>,
        room: usize,
    }

    impl Read for Pipe {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some(mut first) = self.input.pop_front() else {
                return if self.has_ended { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
            };
            let count = first.len().min(buffer.len());
            buffer[..count].copy_from_slice(&first[..count]);
            if count < first.len() {
                self.input.push_front(first.split_off(count));
            }
            Ok(count)
        }
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room);
            if count == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.room -= count;
            self.output.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const START: Instant = Instant::from_ns(0);

    fn client(is_trusted: bool) -> Client<Pipe> {
        Client::new(Pipe { room: usize::MAX, ..Pipe::default() }, b"hi\n".to_vec(), is_trusted, START)
    }

    /// Replies with the line in brackets.
    fn echo(line: &[u8], _: bool) -> Answer {
        Answer { reply: [b"[", line, b"]"].concat(), then: Then::Continue }
    }

    /// Runs turns until the client blocks or ends. Returns the last result, and the output.
    fn run(client: &mut Client<Pipe>) -> (TurnResult, String) {
        loop {
            let turn = client.turn(START, echo);
            if turn != TurnResult::Again {
                return (turn, String::from_utf8(std::mem::take(&mut client.stream.output)).unwrap());
            }
        }
    }

    #[test]
    fn lines_are_answered_in_order_no_matter_how_the_bytes_arrive() {
        let mut client = client(true);
        assert_eq!(run(&mut client), (TurnResult::Blocked, "hi\n".into()));
        for piece in ["on", "e\ntwo\nth", "r", "ee\n", "four"] {
            client.stream.input.push_back(piece.into());
        }
        assert_eq!(run(&mut client), (TurnResult::Blocked, "[one][two][three]".into()));
        client.stream.has_ended = true;
        assert_eq!(run(&mut client), (TurnResult::Ended, "[four]".into()));
    }

    #[test]
    fn a_turn_answers_one_request() {
        let mut client = client(true);
        client.stream.input.push_back(b"a\nb\n".to_vec());
        let mut answered = 0;
        assert_eq!(client.turn(START, |line, trusted| (answered += 1, echo(line, trusted)).1), TurnResult::Again);
        assert_eq!(answered, 1);
    }

    #[test]
    fn a_request_that_is_too_long_ends_the_connection_after_the_reply() {
        let mut client = client(true);
        client.stream.input.push_back(vec![b'x'; MAX_REQUEST]);
        assert_eq!(run(&mut client), (TurnResult::Blocked, "hi\n".into()));
        client.stream.input.push_back(vec![b'x'; 10 * MAX_REQUEST]);
        let (turn, reply) = run(&mut client);
        assert_eq!(turn, TurnResult::Ended);
        assert!(reply.len() > MAX_REQUEST && reply.len() < MAX_REQUEST + (8 << 10), "{}", reply.len());
        assert!(client.input.len() <= MAX_REQUEST);
    }

    #[test]
    fn if_a_client_reads_no_reply_the_client_gets_a_deadline_and_its_requests_stay_unread() {
        let mut client = client(true);
        client.stream.room = 0;
        client.stream.input.push_back(b"a\n".to_vec());
        assert_eq!(run(&mut client), (TurnResult::Blocked, String::new()));
        assert_eq!((client.deadline(), client.stream.input.len()), (Some(START + WRITE_TIMEOUT), 1));
        // Each write of at least one byte restarts the time limit of the client.
        client.stream.room = 1;
        let later = START + Duration::from_secs(1);
        assert_eq!(client.turn(later, echo), TurnResult::Blocked);
        assert_eq!(client.deadline(), Some(later + WRITE_TIMEOUT));
        client.stream.room = 100;
        assert_eq!(run(&mut client), (TurnResult::Blocked, "hi\n[a]".into()));
        assert_eq!(client.deadline(), None);
    }

    #[test]
    fn only_the_token_removes_the_deadline_for_the_token() {
        let mut client = client(false);
        let end = Some(START + TOKEN_TIMEOUT);
        assert_eq!((run(&mut client).0, client.deadline()), (TurnResult::Blocked, end));
        client.stream.input.push_back(b"request\n".to_vec());
        assert_eq!((run(&mut client).0, client.deadline()), (TurnResult::Blocked, end));
        client.stream.input.push_back(b"token\n".to_vec());
        let turn = client.turn(START, |_, is_trusted| {
            assert!(!is_trusted);
            Answer { reply: b"ok".to_vec(), then: Then::Trust }
        });
        assert_eq!((turn, client.deadline()), (TurnResult::Again, None));
        client.stream.input.push_back(b"request\n".to_vec());
        let seen = client.turn(START, |line, is_trusted| {
            assert!(is_trusted);
            echo(line, is_trusted)
        });
        assert_eq!(seen, TurnResult::Again);
    }

    #[test]
    fn a_client_waits_for_a_reply_that_comes_later() {
        let mut client = client(true);
        client.stream.input.push_back(b"later\nnext\n".to_vec());
        let turn = client.turn(START, |_, _| Answer { reply: Vec::new(), then: Then::Wait });
        assert_eq!(turn, TurnResult::Again);
        assert_eq!(run(&mut client), (TurnResult::Blocked, "hi\n".into()));
        client.complete(b"reply".to_vec());
        assert_eq!(run(&mut client), (TurnResult::Blocked, "reply[next]".into()));
    }

    #[test]
    fn the_connection_ends_after_the_last_reply() {
        let mut client = client(false);
        client.stream.input.push_back(b"a\nb\n".to_vec());
        let turn = client.turn(START, |_, _| Answer { reply: b"bye".to_vec(), then: Then::Close });
        assert_eq!(turn, TurnResult::Again);
        assert_eq!(run(&mut client), (TurnResult::Ended, "hi\nbye".into()));
    }
}
