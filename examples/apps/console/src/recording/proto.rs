//! Reader of protobuf messages. The reader knows the wire types, but no types of messages.
//!
//! A recording uses about 25 fields of the format of Perfetto. Some crates for this format link the C library of
//! Perfetto, and the other crates cannot read the format. With a general protobuf crate, the code for these messages
//! would be longer than this file.

/// Value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// An integer, a bool, an enum, or a number with a fixed size.
    Number(u64),
    /// A text or a message.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Returns the number. Returns 0 if the value has another type.
    pub(super) fn number(self) -> u64 {
        if let Value::Number(number) = self { number } else { 0 }
    }

    /// Returns the bytes. Returns no bytes if the value has another type.
    pub(super) fn bytes(self) -> &'a [u8] {
        if let Value::Bytes(bytes) = self { bytes } else { &[] }
    }

    /// The fields of a message.
    pub(super) fn fields(self) -> Fields<'a> {
        Fields(self.bytes())
    }
}

/// Iterator over the fields of a message. An item is the number and the value of a field. The iterator ends after an
/// error.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

/// Error: the bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Invalid;

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Invalid>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field().ok_or(Invalid);
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Number(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Number(u32::from_le_bytes(self.take(4)?.try_into().ok()?).into()),
            _ => return None,
        };
        (tag >> 3 != 0).then_some((tag >> 3, value))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for at in 0..10 {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are from the encoding guide of protobuf.
    #[test]
    fn all_wire_types_are_read() {
        let bytes = [0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x19, 1, 0, 0, 0, 0, 0, 0, 0, 0x25, 2, 0, 0, 0];
        let fields: Vec<_> = Fields(&bytes).map(Result::unwrap).collect();
        let (one, two) = ((1, Value::Number(150)), (2, Value::Bytes(b"hi")));
        assert_eq!(fields, [one, two, (3, Value::Number(1)), (4, Value::Number(2))]);
    }

    #[test]
    fn invalid_bytes_are_an_error_and_end_the_message() {
        for bytes in [&[0x08][..], &[0x12, 5, b'x'], &[0x19, 1], &[0x0b, 1], &[0x00, 1], &[0xff; 12]] {
            assert_eq!(Fields(bytes).collect::<Vec<_>>(), [Err(Invalid)], "{bytes:?}");
        }
    }
}
