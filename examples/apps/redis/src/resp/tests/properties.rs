//! Tests of the parser with random inputs. The documentation of `check` lists the properties.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::check::{check, parse, parse_all, small};
use super::super::{Limits, ProtocolError};
use crate::tests::random::{any_command, encode, mutated, protocol_byte, settings};

/// Sizes of reads.
fn sizes() -> impl Strategy<Value = Vec<usize>> {
    vec(1_usize..40, 1..8)
}

proptest! {
    #![proptest_config(settings(256))]

    #[test]
    fn the_parser_finds_encoded_commands(sent in vec(any_command(), 0..8), sizes in sizes()) {
        let bytes: Vec<u8> = sent.iter().flat_map(encode).collect();
        let expected: Vec<_> = sent.into_iter().map(|(_, words)| words).collect();
        let mut sizes = sizes.into_iter().cycle();
        let found = parse(&bytes, &Limits::default(), false, || sizes.next().unwrap_or(1));
        prop_assert_eq!(found, (expected, None));
    }

    #[test]
    fn the_parser_keeps_its_properties_for_random_bytes(bytes in vec(any::<u8>(), 0..400), sizes in sizes()) {
        check(&bytes, &sizes);
    }

    /// Most of these inputs contain lengths and ends of lines. Therefore these inputs reach more code of the parser
    /// than random bytes.
    #[test]
    fn the_parser_keeps_its_properties_for_random_bytes_of_the_protocol(bytes in vec(protocol_byte(), 0..400), sizes in sizes()) {
        check(&bytes, &sizes);
    }

    #[test]
    fn the_parser_keeps_its_properties_for_mutated_commands(bytes in mutated(any_command()), sizes in sizes()) {
        check(&bytes, &sizes);
    }

    #[test]
    fn a_number_of_arguments_above_the_limit_is_an_error(above in 21_u64.., zeros in 0_usize..16) {
        // Most of these numbers do not fit into 64 bits.
        let bytes = format!("PING\r\n*{above}{}\r\n$1\r\na\r\n", "0".repeat(zeros));
        let (commands, error) = parse_all(bytes.as_bytes(), &small());
        prop_assert_eq!((commands.len(), error), (1, Some(ProtocolError::Count)));
        check(bytes.as_bytes(), &[zeros + 1]);
    }

    #[test]
    fn a_length_above_the_limit_is_an_error(above in 101_u64.., before in 0_usize..3) {
        let bytes = format!("PING\r\n*4\r\n{}${above}\r\naaa", "$1\r\na\r\n".repeat(before));
        let (commands, error) = parse_all(bytes.as_bytes(), &small());
        prop_assert_eq!((commands.len(), error), (1, Some(ProtocolError::Length)));
        check(bytes.as_bytes(), &[above as usize % 40]);
    }

    #[test]
    fn a_negative_length_is_an_error(negative in ..0_i64) {
        let (commands, error) = parse_all(format!("*1\r\n${negative}\r\n").as_bytes(), &Limits::default());
        prop_assert_eq!((commands.len(), error), (0, Some(ProtocolError::Length)));
    }

    /// A request is an array of strings, so an array inside an array is an error at any depth.
    #[test]
    fn a_nested_array_is_an_error(depth in 2_usize..100, count in 1_usize..20) {
        let bytes = format!("*{count}\r\n").repeat(depth);
        let (commands, error) = parse_all(bytes.as_bytes(), &Limits::default());
        prop_assert_eq!((commands.len(), error), (0, Some(ProtocolError::NoLength(b'*'))));
        check(bytes.as_bytes(), &[depth]);
    }

    /// The client announces sizes within the limits, but sends few bytes. `check` compares the memory with the number
    /// of bytes that were sent.
    #[test]
    fn an_announced_size_alone_allocates_no_memory(count in 2..=i32::MAX, length in 1000..=512_i64 << 20, sent in 0_usize..1000) {
        let bytes = format!("*{count}\r\n$1\r\na\r\n${length}\r\n{}", "a".repeat(sent));
        prop_assert_eq!(parse_all(bytes.as_bytes(), &Limits::default()), (vec![], None));
        check(bytes.as_bytes(), &[sent + 1]);
    }
}
