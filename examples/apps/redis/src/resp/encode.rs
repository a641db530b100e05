//! The encoder of replies. With the command `HELLO`, a client selects version 2 or version 3 of the protocol.

/// Writes replies into a buffer.
#[derive(Debug)]
pub(crate) struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    resp3: bool,
}

impl<'a> Encoder<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>, resp3: bool) -> Self {
        Self { out, resp3 }
    }

    /// Writes a simple string. The text must have no line break.
    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    pub(crate) fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// Writes an error. The text begins with the code of the error, such as `ERR`. Each byte of a line break is
    /// replaced by a blank.
    pub(crate) fn error(&mut self, text: impl AsRef<[u8]>) {
        self.out.push(b'-');
        let clean = |byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte };
        self.out.extend(text.as_ref().iter().map(clean));
        self.out.extend_from_slice(b"\r\n");
    }

    pub(crate) fn int(&mut self, value: i64) {
        self.number(b':', value);
    }

    pub(crate) fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.number(b'$', bytes.len() as i64);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes a text. A client of version 3 shows this text without quotes.
    pub(crate) fn verbatim(&mut self, text: &str) {
        if self.resp3 {
            self.number(b'=', text.len() as i64 + 4);
            self.out.extend_from_slice(b"txt:");
            self.out.extend_from_slice(text.as_bytes());
            self.out.extend_from_slice(b"\r\n");
        } else {
            self.bulk(text);
        }
    }

    pub(crate) fn null(&mut self) {
        self.out.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    pub(crate) fn null_array(&mut self) {
        self.out.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// Writes the header of an array of `len` replies.
    pub(crate) fn array(&mut self, len: usize) {
        self.number(b'*', len as i64);
    }

    /// Writes the header of a map of `len` keys. The value of a key follows the key.
    pub(crate) fn map(&mut self, len: usize) {
        if self.resp3 { self.number(b'%', len as i64) } else { self.array(len * 2) }
    }

    /// Writes the header of a set of `len` replies.
    pub(crate) fn set(&mut self, len: usize) {
        self.number(if self.resp3 { b'~' } else { b'*' }, len as i64);
    }

    /// Writes the header of a channel message. A channel message answers no command.
    pub(crate) fn push(&mut self, len: usize) {
        self.number(if self.resp3 { b'>' } else { b'*' }, len as i64);
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    fn number(&mut self, kind: u8, value: i64) {
        if let digit @ 0..=9 = value {
            self.out.extend_from_slice(&[kind, b'0' + digit as u8, b'\r', b'\n']);
        } else {
            self.out.push(kind);
            push_int(self.out, value);
            self.out.extend_from_slice(b"\r\n");
        }
    }
}

/// Appends a number in decimal digits.
pub(crate) fn push_int(out: &mut Vec<u8>, value: i64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        start -= 1;
        digits[start] = b'-';
    }
    out.extend_from_slice(&digits[start..]);
}
