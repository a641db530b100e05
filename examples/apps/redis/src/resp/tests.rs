//! Tests of the parser with fixed inputs. The file `properties.rs` tests the parser with random inputs.

mod properties;

use super::check::{parse, parse_all, small};
use super::*;

#[test]
fn the_requests_in_the_input_are_found() {
    let table: &[(&str, &[&[&str]])] = &[
        ("", &[]),
        ("*1\r\n$4\r\nPING\r\n", &[&["PING"]]),
        ("*2\r\n$3\r\nGET\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n", &[&["GET", ""], &["PING"]]),
        ("*0\r\n*-1\r\n*1\r\n$1\r\na\r\n", &[&["a"]]),
        // The parser does not check the two bytes after an argument.
        ("*1\r\n$4\r\nPINGxx*1\r\n$1\r\na\r\n", &[&["PING"], &["a"]]),
        // These commands are incomplete.
        ("*2\r\n$3\r\nGET\r\n$5\r\nab", &[]),
        ("*1\r", &[]),
        ("PING", &[]),
        // These commands are inline commands.
        ("PING\r\n", &[&["PING"]]),
        ("PING\nPING\n", &[&["PING"], &["PING"]]),
        ("\r\n  \r\n\tSET  a\tb \r\n", &[&["SET", "a", "b"]]),
        (r#"SET "a b" 'c d' "\x41\n\"\\q" 'it\'s' x"y""#, &[]),
        (
            "SET \"a b\" 'c d' \"\\x41\\t\\\"\\q\\xg\" 'it\\'s\\n' x\"y\"\r\n",
            &[&["SET", "a b", "c d", "A\t\"qxg", "it's\\n", "xy"]],
        ),
        ("SET \"\" ''\r\n", &[&["SET", "", ""]]),
        // Between two words, a vertical tab or a form feed is a separator. Inside a word without quotes, a vertical tab
        // or a form feed is a part of the word.
        ("\x0b\x0cECHO \x0ba\x0bb\x0c\r\n", &[&["ECHO", "a\x0bb\x0c"]]),
        ("ECHO \"a\"\x0bb\r\n", &[&["ECHO", "a", "b"]]),
        ("ECHO x\x0b\"b\"\rc\r\n", &[&["ECHO", "x\x0bb", "c"]]),
    ];
    for (bytes, expected) in table {
        let expected = expected.iter().map(|args| args.iter().map(|arg| arg.as_bytes().to_vec()).collect()).collect();
        assert_eq!(parse_all(bytes.as_bytes(), &Limits::default()), (expected, None), "{bytes:?}");
    }
}

#[test]
fn the_parser_returns_the_earlier_commands_before_it_reports_an_error() {
    let long = "1".repeat(41);
    let table: &[(&str, &str)] = &[
        ("*x\r\n", "invalid multibulk length"),
        ("*01\r\n", "invalid multibulk length"),
        ("*+1\r\n", "invalid multibulk length"),
        ("*21\r\n", "invalid multibulk length"),
        ("*99999999999999999999\r\n", "invalid multibulk length"),
        ("*1\r\nPING\r\n", "expected '$', got 'P'"),
        ("*1\r\n$-1\r\n", "invalid bulk length"),
        ("*1\r\n$101\r\n", "invalid bulk length"),
        ("*1\r\n$4294967296\r\n", "invalid bulk length"),
        ("*1\r\n$\r\n", "invalid bulk length"),
        (&format!("*{long}"), "too big mbulk count string"),
        (&format!("*1\r\n${long}"), "too big bulk count string"),
        (&long, "too big inline request"),
        ("SET \"a\r\n", "unbalanced quotes in request"),
        ("SET 'a'b\r\n", "unbalanced quotes in request"),
    ];
    for (bytes, expected) in table {
        let (commands, error) = parse_all(format!("PING\r\n{bytes}").as_bytes(), &small());
        assert_eq!(commands, [[b"PING"]], "{bytes:?}");
        let text = error.and_then(ProtocolError::text);
        assert_eq!(text.as_deref(), Some(expected.as_bytes()), "{bytes:?}");
    }
    // The text contains the byte itself, even if the byte is no character.
    assert_eq!(parse_all(b"*1\r\n\xffa\r\n", &small()).1, Some(ProtocolError::NoLength(0xff)));
    assert_eq!(ProtocolError::NoLength(0xff).text().as_deref(), Some(&b"expected '$', got '\xff'"[..]));
}

#[test]
fn a_command_with_too_many_bytes_is_refused_without_an_error_text() {
    let bytes = [&b"*20\r\n"[..], &b"$20\r\naaaaaaaaaaaaaaaaaaaa\r\n".repeat(14)].concat();
    let (commands, error) = parse(&bytes, &small(), false, || 7);
    assert_eq!((commands, error), (vec![], Some(ProtocolError::LongQuery)));
    assert_eq!(ProtocolError::LongQuery.text(), None);
}

#[test]
fn a_large_buffer_is_freed_when_it_is_empty() {
    let mut batch = Batch::default();
    let bytes = [b"*1\r\n$500000\r\n".to_vec(), vec![b'a'; 500_000], b"\r\n*1\r\n$1".to_vec()].concat();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let space = batch.space();
        let count = space.len().min(rest.len());
        space[..count].copy_from_slice(&rest[..count]);
        batch.fill(count);
        batch.parse(&Limits::default());
        rest = &rest[count..];
    }
    assert_eq!(batch.requests().len(), 1);
    batch.clear();
    // The beginning of the next command must still be in the buffer.
    assert!(batch.data.len() >= 500_000);
    let end = b"\r\na\r\n";
    batch.space()[..end.len()].copy_from_slice(end);
    batch.fill(end.len());
    batch.parse(&Limits::default());
    assert_eq!(batch.args(batch.requests()[0]).get(0), b"a");
    batch.clear();
    assert_eq!(batch.data.len(), 0);
}

#[test]
fn the_remainder_of_a_batch_begins_after_the_complete_commands() {
    let bytes = b"PING\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2\r\nb";
    for end in 0..=bytes.len() {
        let mut batch = Batch::default();
        for piece in [&bytes[..end], &bytes[end..], b"c\r\n"] {
            batch = batch.remainder();
            batch.space()[..piece.len()].copy_from_slice(piece);
            batch.fill(piece.len());
            batch.parse(&Limits::default());
        }
        let last = batch.args(*batch.requests().last().expect("the last piece completes a command"));
        assert_eq!(last.from(0).collect::<Vec<_>>(), [&b"SET"[..], b"a", b"bc"], "{end}");
    }
}

#[test]
fn integers_are_parsed_strictly() {
    for (text, expected) in [
        ("0", Some(0)),
        ("-1", Some(-1)),
        ("9223372036854775807", Some(i64::MAX)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("99999999999999999999", None),
        ("-0", None),
        ("00", None),
        ("01", None),
        ("+1", None),
        ("", None),
        ("-", None),
        (" 1", None),
        ("1 ", None),
        ("1a", None),
    ] {
        assert_eq!(parse_int(text.as_bytes()), expected, "{text:?}");
    }
}

#[test]
fn replies_are_encoded_for_both_versions() {
    let write = |reply: &mut Encoder<'_>| {
        reply.simple("hi");
        reply.error("ERR a\r\nb");
        reply.int(-12);
        reply.bulk("ab");
        reply.verbatim("text");
        reply.null();
        reply.null_array();
        reply.array(1);
        reply.map(2);
        reply.set(10);
        reply.push(3);
    };
    let encoded = |resp3| {
        let mut out = Vec::new();
        write(&mut Encoder::new(&mut out, resp3));
        String::from_utf8(out).expect("it is ASCII").replace("\r\n", " ")
    };
    assert_eq!(encoded(false), "+hi -ERR a  b :-12 $2 ab $4 text $-1 *-1 *1 *4 *10 *3 ");
    assert_eq!(encoded(true), "+hi -ERR a  b :-12 $2 ab =8 txt:text _ _ *1 %2 ~10 >3 ");
}

#[test]
fn numbers_are_written_in_decimal_digits() {
    for number in [0, 7, 10, -1, 1_234_567_890, i64::MAX, i64::MIN] {
        let mut out = Vec::new();
        push_int(&mut out, number);
        assert_eq!(out, number.to_string().into_bytes());
    }
}
