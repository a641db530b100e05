//! Checks the properties of the parser for any input. The property tests and the fuzz target call [`check`] with random
//! bytes. If the parser violates a property, `check` panics.

use super::{Batch, Limits, ProtocolError, SMALLEST};

/// The commands and the error that the parser has found.
pub(super) type Found = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

/// Returns small limits, so that a short input reaches each limit.
pub(super) fn small() -> Limits {
    Limits { line: 40, bulk: 100, multibulk: 20, query: 300, batch: 4, ..Limits::default() }
}

/// Checks these properties of the parser:
///
/// - The parser never panics.
/// - The memory of the parser is proportional to the number of bytes that were read, even if the client announces large
///   sizes.
/// - Different sizes of the reads do not change the commands and the error that the parser finds.
/// - If a failed shard still holds a batch, a copy of the remaining bytes replaces the batch. The parser finds the same
///   commands in this copy.
///
/// The check parses the bytes several times, with different sizes of the reads. In some of these runs, the reads have
/// the sizes `sizes`.
pub(crate) fn check(bytes: &[u8], sizes: &[usize]) {
    for limits in [small(), Limits::default()] {
        check_limited(bytes, sizes, &limits);
    }
}

fn check_limited(bytes: &[u8], sizes: &[usize], limits: &Limits) {
    let whole = parse_all(bytes, &Limits { query: usize::MAX, ..limits.clone() });
    let first = bytes.iter().map(|byte| usize::from(byte % 16)).chain([usize::MAX]);
    for is_copied in [false, true] {
        let mut from_bytes = first.clone().cycle();
        let mut given = sizes.iter().copied().chain(std::iter::once(1)).cycle();
        let pieces: [&mut dyn FnMut() -> usize; 4] =
            [&mut || usize::MAX, &mut || 1, &mut || from_bytes.next().unwrap_or(1), &mut || given.next().unwrap_or(1)];
        for (way, piece) in pieces.into_iter().enumerate() {
            let (commands, error) = parse(bytes, limits, is_copied, piece);
            // For some sizes of the reads, the parser finds that an incomplete command exceeds the limit of bytes. For
            // other sizes, the parser first reads the end of the command or finds another error.
            if error == Some(ProtocolError::LongQuery) {
                assert!(bytes.len() > limits.query, "only {} bytes were read", bytes.len());
                assert!(whole.0.starts_with(&commands), "reads {way}: {commands:?} instead of {whole:?}");
            } else {
                assert_eq!((commands, error), whole, "way {way}");
            }
        }
    }
}

pub(super) fn parse_all(bytes: &[u8], limits: &Limits) -> Found {
    parse(bytes, limits, false, || usize::MAX)
}

/// Feeds bytes to a parser in the same way as a connection. Before each read, a call of `piece` returns the maximum
/// number of bytes of this read. If `is_copied` is true, each batch is replaced by the copy of its remainder.
pub(super) fn parse(bytes: &[u8], limits: &Limits, is_copied: bool, mut piece: impl FnMut() -> usize) -> Found {
    let (mut batch, mut commands, mut rest) = (Batch::default(), Vec::new(), bytes);
    loop {
        batch.parse(limits);
        assert!(batch.requests().len() <= limits.batch, "the batch has too many commands");
        let is_empty = batch.requests().is_empty();
        for request in batch.requests() {
            commands.push(batch.args(*request).from(0).map(<[u8]>::to_vec).collect());
        }
        if is_empty && (rest.is_empty() || batch.error().is_some()) {
            return (commands, batch.error());
        }
        if is_copied {
            batch = batch.remainder();
        } else {
            batch.clear();
        }
        if is_empty {
            assert!(batch.filled - batch.start() <= limits.query, "the connection keeps too many bytes");
            let space = batch.space();
            let count = piece().clamp(1, space.len()).min(rest.len());
            space[..count].copy_from_slice(&rest[..count]);
            batch.fill(count);
            rest = &rest[count..];
        }
        let read = bytes.len() - rest.len();
        // A large buffer grows by half of its length. When a vector allocates, the vector at least doubles its
        // capacity.
        assert!(batch.data.capacity() <= 3 * (read + SMALLEST), "the buffer outgrows the bytes that were read");
        let entries = batch.args.capacity() + batch.requests.capacity();
        assert!(entries <= 2 * read + 16, "the arguments outgrow the bytes that were read");
    }
}
