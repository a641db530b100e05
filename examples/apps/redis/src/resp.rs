//! The Redis protocol: the parser of requests and the encoder of replies. The parser copies no argument, because an
//! argument is a range of the bytes that were read from the socket. This file uses no socket and contains no command.

#[cfg(any(test, fuzzing))]
pub(crate) mod check;
mod encode;
mod inline;
#[cfg(test)]
mod tests;

pub(crate) use encode::{Encoder, push_int};

/// True in tests. In tests, the buffers are small. Therefore a short input is enough to fill a buffer, to let the
/// buffer grow, and to free the buffer.
const IS_TEST: bool = cfg!(any(test, fuzzing));
/// Smallest size of a read buffer.
const SMALLEST: usize = if IS_TEST { 64 } else { 2 << 10 };
/// Maximum number of bytes by which a read buffer grows in one step, if the buffer has at most twice this size. A
/// larger buffer grows by half of its size.
const CHUNK: usize = if IS_TEST { 128 } else { 64 << 10 };
/// When a read buffer above this size is empty, the buffer is freed.
const KEPT: usize = if IS_TEST { 128 } else { 256 << 10 };

/// Limits of a connection. The defaults of `line`, `bulk`, `multibulk` and `query` are the defaults of Redis 7. The
/// default of `mail` is the hard limit of Redis for the unsent bytes of a subscriber. Redis does not have the last two
/// limits.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Maximum length in bytes of an inline command, and of a line that contains a length.
    pub line: usize,
    /// Maximum length of an argument in bytes.
    pub bulk: i64,
    /// Maximum number of arguments of a command.
    pub multibulk: i64,
    /// Maximum number of bytes that were read for an incomplete command. If a client exceeds this limit, the server
    /// disconnects the client. Redis counts only the bytes that Redis has not parsed yet. So Redis also accepts a
    /// command that exceeds this limit, if each argument is shorter than the limit. This server counts the whole
    /// command.
    pub query: usize,
    /// Maximum number of bytes of the unread messages in the mailbox of a subscriber. The size of a message is the
    /// number of encoded bytes of the message plus 64. If a message would exceed the limit, the server disconnects the
    /// subscriber.
    pub mail: usize,
    /// Maximum number of commands in one batch.
    pub batch: usize,
    /// Maximum number of unsent bytes of replies. At this limit, the connection executes no further command. The limit
    /// should be large, because some clients write a long pipeline before they read the first reply.
    pub output: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            line: 64 << 10,
            bulk: 512 << 20,
            multibulk: i32::MAX.into(),
            query: 1 << 30,
            mail: 32 << 20,
            batch: 1024,
            output: 32 << 20,
        }
    }
}

/// Error in the bytes of a client. The process of the connection sends the text of the error to the client, and then
/// closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProtocolError {
    LongInline,
    LongCount,
    LongLength,
    Count,
    Length,
    NoLength(u8),
    Quotes,
    /// The client has sent too many bytes without a complete command. If a client exceeds the limit of Redis, Redis
    /// also closes the connection and sends no error text.
    LongQuery,
}

impl ProtocolError {
    /// Returns the text for the client. Returns `None` if the server sends no error text before it closes the
    /// connection.
    pub(crate) fn text(self) -> Option<Vec<u8>> {
        let text = match self {
            Self::LongInline => "too big inline request",
            Self::LongCount => "too big mbulk count string",
            Self::LongLength => "too big bulk count string",
            Self::Count => "invalid multibulk length",
            Self::Length => "invalid bulk length",
            Self::NoLength(found) => return Some([b"expected '$', got '", &[found][..], b"'"].concat()),
            Self::Quotes => "unbalanced quotes in request",
            Self::LongQuery => return None,
        };
        Some(text.into())
    }
}

/// An argument, which is a range of the bytes of a [`Batch`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arg {
    start: u32,
    end: u32,
}

/// A command, which is a range of the arguments of a [`Batch`]. The first argument is the name of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// The read buffer of a connection, and the commands that were found in this buffer.
///
/// The connection reads into [`space`](Self::space), [parses](Self::parse) the bytes, executes the commands, and then
/// [removes](Self::clear) the commands from the batch. While shards execute commands, the shards share the batch with
/// the connection.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The first `filled` bytes were read from the socket. The other bytes are unused.
    data: Vec<u8>,
    filled: usize,
    /// True if the last read has filled the buffer. A larger buffer then reduces the number of reads.
    is_tight: bool,
    /// Position of the first byte that was not parsed yet.
    parsed: usize,
    args: Vec<Arg>,
    requests: Vec<Request>,
    /// State of the incomplete command: the index of its first argument, the number of its missing arguments, and, if
    /// known, the length of its next argument.
    first: usize,
    missing: u32,
    length: Option<u32>,
    error: Option<ProtocolError>,
}

impl Batch {
    /// Returns the buffer for the next read. The buffer grows only after a read has filled the buffer. So the size of
    /// the buffer is proportional to the number of bytes that the client has sent, not to the lengths that the client
    /// has announced.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        debug_assert!(self.requests.is_empty(), "the arguments of a command move when the buffer is compacted");
        let size = self.data.len();
        if self.filled == size {
            self.compact();
        }
        if self.filled == size || (self.is_tight && size < CHUNK) {
            self.data.resize(size + size.clamp(SMALLEST, CHUNK.max(size / 2)), 0);
        }
        &mut self.data[self.filled..]
    }

    /// Records that a read has filled the next `count` bytes.
    pub(crate) fn fill(&mut self, count: usize) {
        self.filled += count;
        self.is_tight = self.filled == self.data.len();
    }

    /// Returns the position of the first byte that belongs to no complete command.
    fn start(&self) -> usize {
        self.args.get(self.first).map_or(self.parsed, |arg| arg.start as usize)
    }

    /// Moves the arguments of the incomplete command, and the bytes that are not parsed yet, to the front of the
    /// buffer.
    fn compact(&mut self) {
        let start = self.start();
        if start == 0 {
            return;
        }
        self.data.copy_within(start..self.filled, 0);
        self.filled -= start;
        self.parsed -= start;
        for arg in &mut self.args {
            arg.start -= start as u32;
            arg.end -= start as u32;
        }
    }

    /// Finds complete commands, up to the limit of the batch. If the parser finds an error, the error is
    /// [kept](Self::error) until the connection has executed the earlier commands.
    pub(crate) fn parse(&mut self, limits: &Limits) {
        if self.error.is_some() {
            return;
        }
        if let Err(error) = self.find_requests(limits) {
            self.error = Some(error);
        } else if self.requests.is_empty() && self.filled - self.start() > limits.query {
            self.error = Some(ProtocolError::LongQuery);
        }
    }

    /// Returns the error that follows the commands of this batch.
    pub(crate) fn error(&self) -> Option<ProtocolError> {
        self.error
    }

    pub(crate) fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Returns the arguments of a command. The first argument is the name of the command.
    pub(crate) fn args(&self, request: Request) -> Args<'_> {
        let first = request.first as usize;
        Args { data: &self.data, args: &self.args[first..first + request.count as usize] }
    }

    /// Removes the commands. The bytes of an incomplete command stay in the buffer.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.args.drain(..self.first);
        self.first = 0;
        if self.parsed == self.filled && self.args.is_empty() {
            (self.parsed, self.filled) = (0, 0);
            if self.data.len() > KEPT {
                *self = Self { error: self.error, missing: self.missing, length: self.length, ..Self::default() };
            }
        }
    }

    /// Returns a new batch without commands. The new batch contains a copy of the bytes that follow the commands of the
    /// old batch. If a failed shard still holds the old batch, the connection continues with the copy.
    pub(crate) fn remainder(&self) -> Self {
        let start = self.start();
        let shift = |arg: &Arg| Arg { start: arg.start - start as u32, end: arg.end - start as u32 };
        Self {
            data: self.data[start..self.filled].to_vec(),
            filled: self.filled - start,
            is_tight: false,
            parsed: self.parsed - start,
            args: self.args[self.first..].iter().map(shift).collect(),
            requests: Vec::new(),
            first: 0,
            missing: self.missing,
            length: self.length,
            error: self.error,
        }
    }

    fn find_requests(&mut self, limits: &Limits) -> Result<(), ProtocolError> {
        while self.requests.len() < limits.batch {
            if self.missing == 0 {
                match self.data[..self.filled].get(self.parsed) {
                    None => return Ok(()),
                    Some(b'*') => match self.number(limits.line, ProtocolError::LongCount, ProtocolError::Count)? {
                        None => return Ok(()),
                        Some(count) if count > limits.multibulk => return Err(ProtocolError::Count),
                        Some(count) => self.missing = u32::try_from(count).unwrap_or(0),
                    },
                    Some(_) => {
                        if !self.find_inline(limits)? {
                            return Ok(());
                        }
                    }
                }
            } else if !self.find_argument(limits)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Finds the next argument of the incomplete command. Returns false if the argument is not complete.
    fn find_argument(&mut self, limits: &Limits) -> Result<bool, ProtocolError> {
        let length = match self.length {
            Some(length) => length,
            None => {
                let Some(end) = self.line_end(limits.line, ProtocolError::LongLength)? else { return Ok(false) };
                let found = self.data[self.parsed];
                if found != b'$' {
                    return Err(ProtocolError::NoLength(found));
                }
                let length = parse_int(&self.data[self.parsed + 1..end]).filter(|length| *length <= limits.bulk);
                let length = length.and_then(|length| u32::try_from(length).ok()).ok_or(ProtocolError::Length)?;
                self.parsed = end + 2;
                self.length = Some(length);
                length
            }
        };
        let end = self.parsed + length as usize;
        if self.filled < end + 2 {
            return Ok(false);
        }
        // Like Redis, the parser does not check the two bytes after an argument.
        self.args.push(Arg { start: self.parsed as u32, end: end as u32 });
        self.parsed = end + 2;
        self.length = None;
        self.missing -= 1;
        if self.missing == 0 {
            self.complete();
        }
        Ok(true)
    }

    fn complete(&mut self) {
        self.requests.push(Request { first: self.first as u32, count: (self.args.len() - self.first) as u32 });
        self.first = self.args.len();
    }

    fn find_inline(&mut self, limits: &Limits) -> Result<bool, ProtocolError> {
        let rest = &self.data[self.parsed..self.filled];
        let Some(length) = rest.iter().take(limits.line + 1).position(|byte| *byte == b'\n') else {
            return if rest.len() > limits.line { Err(ProtocolError::LongInline) } else { Ok(false) };
        };
        let start = self.parsed;
        self.parsed += length + 1;
        let line = &mut self.data[start..start + length];
        if !inline::split(line, |from, to| {
            self.args.push(Arg { start: (start + from) as u32, end: (start + to) as u32 })
        }) {
            self.args.truncate(self.first);
            return Err(ProtocolError::Quotes);
        }
        if self.args.len() > self.first {
            self.complete();
        }
        Ok(true)
    }

    /// Parses a line that consists of a type byte and a number. Returns `None` if the line is not complete.
    fn number(
        &mut self,
        longest: usize,
        long: ProtocolError,
        wrong: ProtocolError,
    ) -> Result<Option<i64>, ProtocolError> {
        let Some(end) = self.line_end(longest, long)? else { return Ok(None) };
        let number = parse_int(&self.data[self.parsed + 1..end]).ok_or(wrong)?;
        self.parsed = end + 2;
        Ok(Some(number))
    }

    /// Returns the end of the line that begins at the first unparsed byte, or `None` if the line is not complete.
    fn line_end(&self, longest: usize, long: ProtocolError) -> Result<Option<usize>, ProtocolError> {
        let rest = &self.data[self.parsed..self.filled];
        match rest.iter().take(longest + 1).position(|byte| *byte == b'\r') {
            Some(length) if length + 2 <= rest.len() => Ok(Some(self.parsed + length)),
            Some(_) => Ok(None),
            None if rest.len() > longest => Err(long),
            None => Ok(None),
        }
    }
}

/// The arguments of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Args<'a> {
    data: &'a [u8],
    args: &'a [Arg],
}

impl<'a> Args<'a> {
    pub(crate) fn len(self) -> usize {
        self.args.len()
    }

    /// Returns an argument.
    ///
    /// # Panics
    /// Panics if the command has no argument at `index`. The server checks the number of arguments before the server
    /// runs a command.
    pub(crate) fn get(self, index: usize) -> &'a [u8] {
        let arg = self.args[index];
        &self.data[arg.start as usize..arg.end as usize]
    }

    /// Returns the argument at `index` and all later arguments.
    pub(crate) fn from(self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + DoubleEndedIterator {
        self.args[index..].iter().map(move |arg| &self.data[arg.start as usize..arg.end as usize])
    }

    /// Returns true if an argument equals `word`. The comparison ignores case.
    pub(crate) fn is(self, index: usize, word: &str) -> bool {
        self.get(index).eq_ignore_ascii_case(word.as_bytes())
    }
}

/// Parses an integer as strictly as Redis: a sign `+`, leading zeros, and blanks are errors.
pub(crate) fn parse_int(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value = 0_i64;
    for digit in digits {
        let digit = i64::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
        // The loop uses negative numbers, because the range of negative numbers is larger.
        value = value.checked_mul(10)?.checked_sub(digit)?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}
