//! Writes spans as OTLP 1.x has them, in both of its forms over HTTP, and reads what a receiver says of them. The
//! numbers are those of the fields in the protocol's own definition.

use serde_json::json;

use super::span::{Attribute, Span, Value};

/// Who made the spans.
const SCOPE: &str = "nexus3";

/// The status of a span that failed.
const FAILED: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Protobuf,
    Json,
}

impl Protocol {
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }

    pub fn write(self, resource: &[Attribute], spans: &[Span]) -> Vec<u8> {
        match self {
            Self::Protobuf => protobuf(resource, spans),
            Self::Json => json(resource, spans).to_string().into_bytes(),
        }
    }

    /// How many spans the answer to a request that was taken says were not. One that cannot be read says nothing: the
    /// status has said enough.
    pub fn rejected(self, answer: &[u8]) -> u64 {
        let spans = match self {
            Self::Protobuf => {
                let partial = field(answer, 1).and_then(Field::bytes);
                partial.and_then(|it| field(it, 1)).and_then(Field::number)
            }
            Self::Json => {
                serde_json::from_slice(answer).ok().and_then(|answer: serde_json::Value| {
                    let spans = &answer["partialSuccess"]["rejectedSpans"];
                    spans.as_u64().or_else(|| spans.as_str()?.parse().ok())
                })
            }
        };
        spans.unwrap_or_default()
    }
}

fn json(resource: &[Attribute], spans: &[Span]) -> serde_json::Value {
    let attributes = |list: &[Attribute]| -> Vec<_> {
        let value = |value: &Value| match value {
            Value::Text(text) => json!({"stringValue": text}),
            Value::Whole(number) => json!({"intValue": number.to_string()}),
            Value::Real(number) => json!({"doubleValue": number}),
        };
        list.iter().map(|it| json!({"key": it.key, "value": value(&it.value)})).collect()
    };
    let span = |span: &Span| {
        let mut written = json!({
            "traceId": hex(&span.trace),
            "spanId": hex(&span.id),
            "name": span.name,
            "kind": span.kind as u64,
            "startTimeUnixNano": span.began_nanos.to_string(),
            "endTimeUnixNano": span.ended_nanos.to_string(),
            "attributes": attributes(&span.attributes),
        });
        if let Some(parent) = &span.parent {
            written["parentSpanId"] = hex(parent).into();
        }
        if span.failed {
            written["status"] = json!({"code": FAILED});
        }
        written
    };
    let spans: Vec<_> = spans.iter().map(span).collect();
    let scope = json!({"name": SCOPE, "version": env!("CARGO_PKG_VERSION")});
    json!({"resourceSpans": [{
        "resource": {"attributes": attributes(resource)},
        "scopeSpans": [{"scope": scope, "spans": spans}],
    }]})
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn protobuf(resource: &[Attribute], spans: &[Span]) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |of_resource| {
        of_resource.message(1, |message| message.attributes(1, resource));
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| {
                scope.bytes(1, SCOPE.as_bytes());
                scope.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            for span in spans {
                of_scope.message(2, |message| message.span(span));
            }
        });
    });
    request.0
}

/// A message of protobuf, as it is written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn span(&mut self, span: &Span) {
        self.bytes(1, &span.trace);
        self.bytes(2, &span.id);
        if let Some(parent) = &span.parent {
            self.bytes(4, parent);
        }
        self.bytes(5, span.name.as_bytes());
        self.number(6, span.kind as u64);
        self.fixed(7, span.began_nanos.to_le_bytes());
        self.fixed(8, span.ended_nanos.to_le_bytes());
        self.attributes(9, &span.attributes);
        if span.failed {
            self.message(15, |status| status.number(3, FAILED));
        }
    }

    fn attributes(&mut self, number: u64, attributes: &[Attribute]) {
        for attribute in attributes {
            self.message(number, |pair| {
                pair.bytes(1, attribute.key.as_bytes());
                pair.message(2, |value| match &attribute.value {
                    Value::Text(text) => value.bytes(1, text.as_bytes()),
                    Value::Whole(number) => value.number(3, number.cast_unsigned()),
                    Value::Real(number) => value.fixed(4, number.to_le_bytes()),
                });
            });
        }
    }

    fn message(&mut self, number: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(number, &inner.0);
    }

    fn bytes(&mut self, number: u64, bytes: &[u8]) {
        self.varint(number << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn number(&mut self, number: u64, value: u64) {
        self.varint(number << 3);
        self.varint(value);
    }

    fn fixed(&mut self, number: u64, value: [u8; 8]) {
        self.varint(number << 3 | 1);
        self.0.extend(value);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// A field of protobuf, as it is read.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed,
}

impl<'a> Field<'a> {
    fn number(self) -> Option<u64> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }

    fn bytes(self) -> Option<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }
}

/// The first field of this number in a message; `None` also where it cannot be read so far.
fn field(message: &[u8], wanted: u64) -> Option<Field<'_>> {
    let mut rest = message;
    loop {
        let key = varint(&mut rest)?;
        let found = match key & 7 {
            0 => Field::Number(varint(&mut rest)?),
            2 => {
                let bytes = usize::try_from(varint(&mut rest)?).ok()?;
                Field::Bytes(rest.split_off(..bytes)?)
            }
            1 => rest.split_off(..8).map(|_| Field::Fixed)?,
            5 => rest.split_off(..4).map(|_| Field::Fixed)?,
            _ => return None,
        };
        if key >> 3 == wanted {
            return Some(found);
        }
    }
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *rest.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_rejected_is_read_in_both_forms() {
        let check = |protocol: Protocol, answer: &[u8], expected| {
            assert_eq!(protocol.rejected(answer), expected, "{answer:?}");
        };
        check(Protocol::Json, br#"{"partialSuccess":{"rejectedSpans":"12"}}"#, 12);
        check(Protocol::Json, br#"{"partialSuccess":{"rejectedSpans":12}}"#, 12);
        check(Protocol::Json, br#"{"partialSuccess":{"rejectedSpans":-1}}"#, 0);
        check(Protocol::Json, b"{}", 0);
        check(Protocol::Json, b"", 0);
        check(Protocol::Protobuf, b"\x0a\x03\x08\xac\x02", 300);
        // Behind fields of every kind that are not known.
        let behind = b"\x79\0\0\0\0\0\0\0\0\x7d\0\0\0\0\x70\x01\x0a\x06\x12\x02no\x08\x07";
        check(Protocol::Protobuf, behind, 7);
        check(Protocol::Protobuf, b"\x0a\x04\x08\xac\x02", 0);
        check(Protocol::Protobuf, b"", 0);
    }

    proptest! {
        #[test]
        fn no_answer_is_too_odd_to_be_read(answer: Vec<u8>) {
            Protocol::Protobuf.rejected(&answer);
            Protocol::Json.rejected(&answer);
        }

        #[test]
        fn a_number_is_read_as_it_was_written(number: u64) {
            let mut message = Message::default();
            message.message(1, |partial| partial.number(1, number));
            prop_assert_eq!(Protocol::Protobuf.rejected(&message.0), number);
        }
    }
}
