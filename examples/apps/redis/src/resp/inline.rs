//! Inline commands. An inline command is a line of words that a user types in `telnet` or `nc`. A word may be quoted.

/// Splits a line into words, in the same way as the function `sdssplitargs` of Redis. The function removes the quotes
/// in place, because a word is never longer than its quoted form. The function calls `word` with the start and the end
/// of each word. The function returns false if a quote is not closed, or if a byte that is not a blank follows a
/// closing quote.
pub(super) fn split(line: &mut [u8], mut word: impl FnMut(usize, usize)) -> bool {
    let end = line.iter().position(|byte| *byte == 0).unwrap_or(line.len());
    let mut at = 0;
    loop {
        while at < end && is_blank(line[at]) {
            at += 1;
        }
        if at == end {
            return true;
        }
        let start = at;
        let mut to = at;
        let mut quote = None;
        while at < end && !(quote.is_none() && ends_word(line[at])) {
            let (byte, length) = match (quote, line[at]) {
                (None, b'"' | b'\'') => {
                    quote = Some(line[at]);
                    at += 1;
                    continue;
                }
                (Some(open), byte) if byte == open => {
                    if at + 1 < end && !is_blank(line[at + 1]) {
                        return false;
                    }
                    quote = None;
                    at += 1;
                    break;
                }
                (Some(b'"'), b'\\') => escaped(&line[at..end]),
                (Some(b'\''), b'\\') if line[at..end].starts_with(b"\\'") => (b'\'', 2),
                (_, byte) => (byte, 1),
            };
            line[to] = byte;
            to += 1;
            at += length;
        }
        if quote.is_some() {
            return false;
        }
        word(start, to);
    }
}

/// Returns true for each byte that the function `isspace` of C accepts. The bytes that `isspace` accepts may precede a
/// word. After a closing quote, the line must end, or one of these bytes must follow.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Returns true if the byte ends a word without quotes. A vertical tab and a form feed do not end a word without
/// quotes.
fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Returns the byte that an escape sequence in double quotes stands for, and the length of the sequence.
fn escaped(text: &[u8]) -> (u8, usize) {
    let hex = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    match *text {
        [_, b'x', high, low, ..] if hex(high).is_some() && hex(low).is_some() => {
            (hex(high).unwrap_or(0) << 4 | hex(low).unwrap_or(0), 4)
        }
        [_, b'n', ..] => (b'\n', 2),
        [_, b'r', ..] => (b'\r', 2),
        [_, b't', ..] => (b'\t', 2),
        [_, b'b', ..] => (8, 2),
        [_, b'a', ..] => (7, 2),
        [_, other, ..] => (other, 2),
        _ => (b'\\', 1),
    }
}
