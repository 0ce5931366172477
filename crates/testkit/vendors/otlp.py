"""Reads requests with spans by the protocol's own definitions, and prints a line of JSON for each: what was understood.

    otlp.py < requests

A line of a request is {"type": "application/json" or "application/x-protobuf", "body": in base64}. Whatever the
definitions do not know is an error.
"""

import base64
import json
import sys

from google.protobuf import json_format
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2


def main():
    for line in sys.stdin:
        request = json.loads(line)
        body = base64.b64decode(request["body"], validate=True)
        message = {"application/json": from_json, "application/x-protobuf": from_protobuf}[request["type"]](body)
        print(json.dumps(understood(message)), flush=True)


def from_protobuf(body):
    message = ExportTraceServiceRequest.FromString(body)
    refuse_unknown(message)
    return message


def refuse_unknown(message):
    if len(UnknownFieldSet(message)):
        raise ValueError(f"unknown fields in {message.DESCRIPTOR.full_name}")
    for field, value in message.ListFields():
        if field.message_type:
            for one in value if field.is_repeated else [value]:
                refuse_unknown(one)


def from_json(body):
    def ids(span):
        # OTLP writes these in hex, where the usual form of protobuf in JSON has base64.
        hexes = {"traceId", "spanId", "parentSpanId"} & span.keys()
        return span | {key: base64.b64encode(bytes.fromhex(span[key])).decode() for key in hexes}

    message = json_format.ParseDict(json.loads(body, object_hook=ids), ExportTraceServiceRequest())
    return message


def understood(message):
    (of_resource,) = message.resource_spans
    (of_scope,) = of_resource.scope_spans
    return {
        "resource": attributes(of_resource.resource),
        "scope": of_scope.scope.name,
        "spans": [span(one) for one in of_scope.spans],
    }


def span(one):
    return {
        "trace": one.trace_id.hex(),
        "id": one.span_id.hex(),
        "parent": one.parent_span_id.hex(),
        "name": one.name,
        "kind": trace_pb2.Span.SpanKind.Name(one.kind),
        "began": one.start_time_unix_nano,
        "ended": one.end_time_unix_nano,
        "attributes": attributes(one),
        "status": trace_pb2.Status.StatusCode.Name(one.status.code),
    }


def attributes(holder):
    pairs = [(pair.key, getattr(pair.value, pair.value.WhichOneof("value"))) for pair in holder.attributes]
    if len(dict(pairs)) != len(pairs):
        raise ValueError(f"an attribute twice: {pairs}")
    return dict(pairs)


main()
