//! Random commands for property tests, and mutations of the bytes of such commands.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::RngSeed;

use crate::commands::TABLE;

/// Returns the settings of a property test. The seed is fixed, so that a test has the same result in each run. The
/// environment variables `PROPTEST_CASES` and `PROPTEST_RNG_SEED` select other cases.
pub(crate) fn settings(cases: u32) -> ProptestConfig {
    let is_set = |name| std::env::var_os(name).is_some();
    let mut settings = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if !is_set("PROPTEST_CASES") {
        settings.cases = cases;
    }
    if !is_set("PROPTEST_RNG_SEED") {
        settings.rng_seed = RngSeed::Fixed(1);
    }
    settings
}

/// Form in which a client sends a command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    Array,
    /// A line of quoted words.
    Inline,
}

/// A command: its form and its arguments.
pub(crate) type Sent = (Form, Vec<Vec<u8>>);

/// Commands with any bytes as arguments. The first argument is not the name of a command.
pub(crate) fn any_command() -> impl Strategy<Value = Sent> {
    let form = prop_oneof![3 => Just(Form::Array), 1 => Just(Form::Inline)];
    (form, vec(vec(any::<u8>(), 0..60), 1..6))
}

/// Options and subcommands.
const OPTIONS: &[&str] =
    &["EX", "PX", "NX", "XX", "GET", "KEEPTTL", "ID", "KILL", "LIST", "SETNAME", "COUNT", "maxmemory"];

/// Commands of the table. The arguments of these commands are keys, numbers and options. There are only four keys, so
/// that many commands use the same key.
pub(crate) fn known_command() -> impl Strategy<Value = Sent> {
    let names: Vec<_> = TABLE.iter().map(|spec| spec.name).collect();
    let argument = prop_oneof![
        4 => select(&["a", "b", "c", "d"][..]).prop_map(str::to_owned),
        2 => select(OPTIONS).prop_map(str::to_owned),
        2 => (-3_i64..10).prop_map(|number| number.to_string()),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        1 => select(vec![i64::MIN, i64::MAX]).prop_map(|number| number.to_string()),
    ];
    let words = (select(names), vec(argument, 0..6));
    words.prop_map(|(name, arguments)| {
        let words = std::iter::once(name.to_owned()).chain(arguments);
        (Form::Array, words.map(String::into_bytes).collect())
    })
}

pub(crate) fn encode((form, words): &Sent) -> Vec<u8> {
    let mut bytes = Vec::new();
    match form {
        Form::Array => {
            bytes.extend(format!("*{}\r\n", words.len()).bytes());
            for word in words {
                bytes.extend(format!("${}\r\n", word.len()).bytes());
                bytes.extend(word);
                bytes.extend(b"\r\n");
            }
        }
        Form::Inline => {
            for word in words {
                bytes.push(b'"');
                word.iter().for_each(|byte| bytes.extend(format!("\\x{byte:02x}").bytes()));
                bytes.extend(b"\" ");
            }
            bytes.extend(b"\r\n");
        }
    }
    bytes
}

/// A mutation of the bytes of commands.
#[derive(Debug, Clone)]
enum Mutation {
    Replace(Index, u8),
    Insert(Index, Vec<u8>),
    /// Removes at most this number of bytes.
    Remove(Index, usize),
    /// Appends a copy of the bytes from this position on.
    Repeat(Index),
    Truncate(Index),
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let at = |index: &Index| index.index(bytes.len() + 1);
        match self {
            Self::Replace(index, byte) => {
                let at = at(index);
                bytes.iter_mut().skip(at).take(1).for_each(|old| *old = *byte);
            }
            Self::Insert(index, new) => {
                let at = at(index);
                bytes.splice(at..at, new.iter().copied());
            }
            Self::Remove(index, count) => {
                let at = at(index);
                bytes.drain(at..bytes.len().min(at + count));
            }
            Self::Repeat(index) => bytes.extend_from_within(at(index)..),
            Self::Truncate(index) => bytes.truncate(at(index)),
        }
    }
}

/// Bytes of the protocol, and a few other bytes.
pub(crate) fn protocol_byte() -> impl Strategy<Value = u8> {
    prop_oneof![4 => select(&b"*$-\r\n0123456789"[..]), 2 => select(&b"'\"\\x \0a"[..]), 1 => any::<u8>()]
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let index = any::<Index>;
    prop_oneof![
        (index(), protocol_byte()).prop_map(|(index, byte)| Mutation::Replace(index, byte)),
        (index(), vec(protocol_byte(), 1..4)).prop_map(|(index, bytes)| Mutation::Insert(index, bytes)),
        (index(), 1_usize..4).prop_map(|(index, count)| Mutation::Remove(index, count)),
        index().prop_map(Mutation::Repeat),
        index().prop_map(Mutation::Truncate),
    ]
}

/// Bytes of some commands, with up to four mutations.
pub(crate) fn mutated(commands: impl Strategy<Value = Sent>) -> impl Strategy<Value = Vec<u8>> {
    (vec(commands, 1..8), vec(mutation(), 0..5)).prop_map(|(commands, mutations)| {
        let mut bytes = commands.iter().flat_map(encode).collect();
        mutations.iter().for_each(|mutation| mutation.apply(&mut bytes));
        bytes
    })
}
