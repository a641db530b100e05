//! Writer of protobuf messages. The writer supports only the kinds of fields that a trace needs.
//!
//! The messages of a trace use three wire types, and none of these types needs a schema at run time. This file replaces
//! an external crate for the following reasons. The crates for the format of Perfetto either link the C library of
//! Perfetto or record the spans of the crate `tracing`. A general protobuf crate would need generated code for the
//! messages of Perfetto, and this code would be longer than this file.

/// Appends protobuf fields to a buffer.
#[derive(Debug, Default, Clone)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Returns the bytes of the message.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Appends a field with the wire type *varint*: an integer, a bool or an enum.
    #[inline]
    pub(super) fn varint(&mut self, field: u32, value: u64) -> &mut Self {
        self.tag(field, 0);
        self.raw(value);
        self
    }

    /// Appends a field with the type `fixed64`.
    #[inline]
    pub(super) fn fixed64(&mut self, field: u32, value: u64) -> &mut Self {
        self.tag(field, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends a field with a string.
    pub(super) fn string(&mut self, field: u32, text: &str) -> &mut Self {
        self.delimited(field, text.as_bytes());
        self
    }

    /// Appends a field with another message.
    pub(super) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.tag(field, 2);
        // Most messages are shorter than 128 bytes, so their length fits into one byte.
        let at = self.0.len();
        self.0.push(0);
        fill(self);
        let length = self.0.len() - at - 1;
        if length < 0x80 {
            self.0[at] = length as u8;
        } else {
            let body = self.0.split_off(at + 1);
            self.0.truncate(at);
            self.raw(length as u64);
            self.0.extend(body);
        }
        self
    }

    fn delimited(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, 2);
        self.raw(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    #[inline]
    fn tag(&mut self, field: u32, wire_type: u64) {
        self.raw(u64::from(field) << 3 | wire_type);
    }

    #[inline]
    fn raw(&mut self, value: u64) {
        if value < 0x80 {
            self.0.push(value as u8);
        } else {
            self.raw_long(value);
        }
    }

    /// Appends a value of several bytes. The copy has a constant length, so that the copy needs no call of `memcpy`.
    fn raw_long(&mut self, mut value: u64) {
        let (mut bytes, mut length) = ([0; 10], 0);
        while value >= 0x80 {
            bytes[length] = value as u8 | 0x80;
            value >>= 7;
            length += 1;
        }
        bytes[length] = value as u8;
        let end = self.0.len() + length + 1;
        self.0.extend_from_slice(&bytes);
        self.0.truncate(end);
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;

    /// The expected bytes are from the encoding guide of protobuf.
    #[test]
    fn fields_have_the_bytes_of_the_protobuf_encoding() {
        let mut message = Message::default();
        message.varint(1, 150);
        assert_eq!(message.bytes(), [0x08, 0x96, 0x01]);
        message.clear();
        message.string(2, "testing");
        assert_eq!(message.bytes(), [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]);
        message.clear();
        message.message(3, |inner| {
            inner.varint(1, 150);
        });
        assert_eq!(message.bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        message.clear();
        message.fixed64(47, 1);
        assert_eq!(message.bytes(), [0xf9, 0x02, 1, 0, 0, 0, 0, 0, 0, 0]);
        message.clear();
        message.varint(1, u64::MAX);
        assert_eq!(message.bytes(), [8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    }

    #[test]
    fn a_long_message_has_a_long_length() {
        let mut message = Message::default();
        message.message(1, |inner| {
            inner.string(1, &"x".repeat(300));
        });
        assert_eq!(message.bytes()[..6], [0x0a, 0xaf, 0x02, 0x0a, 0xac, 0x02]);
        assert_eq!(message.bytes().len(), 306);
    }
}
