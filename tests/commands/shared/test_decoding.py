"""`klog consume` and `klog dump-segment` decode with schemas of a file, a directory or a registry."""

from __future__ import annotations

import base64
import json
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from klog.export.decoders.decoder import DecodeError
from klog.export.decoders.registry import RegistrySource
from tests.commands.running import Run, runner
from tests.export.decoders.test_avro import encoded
from tests.formats.raw_batches import uncompressed_batch

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "item", "type": "string"}, {"name": "count", "type": "int"}],
}
WITH_REFERENCE = {
    "type": "record",
    "name": "Delivery",
    "namespace": "shop",
    "fields": [{"name": "first", "type": "shop.Order"}, {"name": "last", "type": ["null", "shop.Order"]}],
}
INLINE = {
    **WITH_REFERENCE,
    "fields": [{"name": "first", "type": ORDER}, {"name": "last", "type": ["null", "shop.Order"]}],
}
APPLES = {"item": "äpfel", "count": 2}
FIELD = descriptor_pb2.FieldDescriptorProto


def proto_file() -> descriptor_pb2.FileDescriptorProto:
    """A proto3 file with the messages Note and Tick; Tick has a time and a Part of another file."""
    file = descriptor_pb2.FileDescriptorProto(
        name="main.proto",
        package="shop",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "part.proto"],
    )
    note = file.message_type.add(name="Note")
    note.field.add(name="text", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    tick = file.message_type.add(name="Tick")
    for name, number, kind in (("at", 1, ".google.protobuf.Timestamp"), ("part", 2, ".shop.Part")):
        tick.field.add(
            name=name, number=number, type=FIELD.TYPE_MESSAGE, label=FIELD.LABEL_OPTIONAL, type_name=kind
        )
    return file


def part_file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="part.proto", package="shop", syntax="proto3")
    part = file.message_type.add(name="Part")
    part.field.add(name="n", number=1, type=FIELD.TYPE_INT32, label=FIELD.LABEL_OPTIONAL)
    return file


def framed(schema_id: int, data: bytes) -> bytes:
    return b"\0" + struct.pack(">I", schema_id) + data


def serialized(file: descriptor_pb2.FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


ANSWERS: dict[str, Any] = {
    "/schemas/ids/1": {"schema": json.dumps(ORDER)},
    "/schemas/ids/2": {
        "schema": json.dumps(WITH_REFERENCE),
        "references": [{"name": "shop.Order", "subject": "order value", "version": 3}],
    },
    "/subjects/order%20value/versions/3": {"schema": json.dumps(ORDER), "id": 1},
    "/schemas/ids/3": {"schemaType": "JSON", "schema": "{}"},
    "/schemas/ids/4": {"schemaType": "PROTOBUF", "schema": "syntax = 'proto3'; ..."},
    "/schemas/ids/4?format=serialized": {
        "schemaType": "PROTOBUF",
        "schema": serialized(proto_file()),
        "references": [{"name": "part.proto", "subject": "part", "version": 1}],
    },
    "/subjects/part/versions/1?format=serialized": {"schema": serialized(part_file())},
    "/schemas/ids/5": {"schemaType": "PROTOBUF", "schema": "message NotCompiled {}"},
    "/schemas/ids/6": {"schema": "this is no schema"},
    "/schemas/ids/7": ["no", "object"],
}
# key, value, what is shown
RECORDS = [
    (b"plain", framed(1, encoded(ORDER, APPLES)), ("plain", APPLES)),
    (
        framed(3, b'{"k": 1}'),
        framed(2, encoded(INLINE, {"first": APPLES, "last": None})),
        ({"k": 1}, {"first": APPLES, "last": None}),
    ),
    (None, framed(4, b"\0" + b"\x0a\x02hi"), (None, {"text": "hi"})),
    (
        b"\xff",
        framed(4, b"\x02\x02" + b"\x0a\x02\x08\x05\x12\x02\x08\x07"),  # the path of the second message
        ({"base64": "/w=="}, {"at": "1970-01-01T00:00:05Z", "part": {"n": 7}}),
    ),
    (b"tombstone", None, ("tombstone", None)),
]


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """The address of a schema registry that wants a user and a password."""
    wanted = "Basic " + base64.b64encode(b"us er:pass").decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = ANSWERS.get(self.path)
            code = 401 if self.headers["Authorization"] != wanted else 404 if answer is None else 200
            body = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://us%20er:pass@127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def offline(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / "orders-0/00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(uncompressed_batch([(key, value, [(b"h", b"\xff")]) for key, value, _ in RECORDS]))
    return path


@pytest.fixture
def schemas(tmp_path: Path) -> Path:
    """The same schemas as files."""
    directory = tmp_path / "schemas"
    directory.mkdir()
    (directory / "1.avsc").write_text(json.dumps(ORDER))
    (directory / "2.avsc").write_text(json.dumps(INLINE))
    (directory / "3.json").write_text("{}")
    time_file = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(time_file)
    files = descriptor_pb2.FileDescriptorSet(file=[time_file, part_file(), proto_file()])
    (directory / "4.desc").write_bytes(files.SerializeToString())
    return directory


def shown(text: str) -> list[tuple[object, object]]:
    return [(each["key"], normal(each["value"])) for each in map(json.loads, text.splitlines())]


def normal(value: Any) -> Any:
    """Times of any number of digits alike."""
    if isinstance(value, dict) and isinstance(value.get("at"), str):
        return {**value, "at": value["at"].replace(".000000", "").replace("+00:00", "Z").replace(" ", "T")}
    return value


EXPECTED = [row for _, _, row in RECORDS]


@pytest.mark.parametrize("source", ["directory", "registry"])
def test_a_dump_decodes_everything_in_the_wire_format(
    offline: Run, segment: Path, schemas: Path, registry: str, source: str
) -> None:
    words = ("--schema-dir", schemas) if source == "directory" else ("--schema-registry", registry)
    found = offline("dump-segment", segment, *words)
    assert (found.code, found.err) == (0, "")
    assert shown(found.out) == EXPECTED
    plain = [json.loads(line) for line in offline("dump-segment", segment, "-f", "jsonl").out.splitlines()]
    for line, before in zip(map(json.loads, found.out.splitlines()), plain, strict=True):
        assert list(line) == list(before)
        assert {**line, "key": 0, "value": 0} == {**before, "key": 0, "value": 0}


def test_consume_decodes_as_json_and_as_text(
    klog: Run, topic: str, segment: Path, schemas: Path, registry: str, tmp_path: Path
) -> None:
    dump = tmp_path / "dump"
    dump.write_text(klog("dump-segment", segment, "-f", "jsonl", "--bytes", "base64").out)
    written = klog("produce", topic, "-f", "jsonl", "--bytes", "base64", "--file", dump, "--timestamp", "0s")
    assert written.code == 0, written.err
    assert shown(klog("consume", topic, "-f", "jsonl", "--schema-dir", schemas).out) == EXPECTED
    lines = klog("consume", topic, "-f", "%o %s", "--limit", 1, "--schema-registry", registry)
    assert lines.out == '0 {"item":"äpfel","count":2}\n'
    as_kafka = klog(
        *(
            "consume",
            "--topic",
            topic,
            "--from-beginning",
            "--max-messages",
            2,
            "--property",
            "print.key=true",
        ),
        *("--property", f"schema.registry.url={registry}"),
    )
    assert as_kafka.out.splitlines()[0] == 'plain\t{"item":"äpfel","count":2}'
    assert as_kafka.out.splitlines()[1].startswith('{"k":1}\t{"first":')


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (framed(1, b"\x05"), "not Avro of this schema"),
        (framed(99, b""), "names schema 99, which the registry does not have"),
        (framed(5, b"\0"), "protobuf source only"),
        (framed(6, b""), "names schema 6"),
        (framed(7, b""), "has no schema"),
        (framed(3, b"{"), "not JSON"),
        (framed(4, b"\x02\x08"), "no message there"),
        (framed(4, b"\x02"), "incomplete"),
    ],
)
def test_what_cannot_be_decoded_stays_and_is_reported(
    offline: Run, tmp_path: Path, registry: str, value: bytes, why: str
) -> None:
    path = tmp_path / "orders-0/00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(uncompressed_batch([(b"k", value, []), (b"k", framed(1, encoded(ORDER, APPLES)), [])]))
    found = offline("dump-segment", path, "--schema-registry", registry)
    bad, good = map(json.loads, found.out.splitlines())
    assert found.code == 1
    raw = bad["value"]
    assert (raw.encode() if isinstance(raw, str) else base64.b64decode(raw["base64"])) == value
    assert why in bad["_error"]
    assert (good["value"], "_error" in good) == (APPLES, False)
    assert "1 key or value could not be decoded" in found.err
    assert "orders-0 offset 7: value: " in found.err


def test_bare_data_is_decoded_with_one_schema(offline: Run, tmp_path: Path, schemas: Path) -> None:
    path = tmp_path / "orders-0/00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(uncompressed_batch([(b'{"k":1}', encoded(ORDER, APPLES), []), (b"x", b"", [])]))
    found = offline(
        *("dump-segment", path, "--decode-key", "json", "--decode-value", "avro"),
        *("--value-schema", schemas / "1.avsc"),
    )
    good, bad = map(json.loads, found.out.splitlines())
    assert found.code == 1
    assert (good["key"], good["value"]) == ({"k": 1}, APPLES)
    assert bad["key"] == "x"
    assert bad["_error"].startswith("key: not JSON")
    assert "; value: not Avro" in bad["_error"]
    assert "2 keys or values could not be decoded" in found.err


def test_an_encoding_that_is_asked_for_must_be_there(offline: Run, segment: Path, schemas: Path) -> None:
    found = offline("dump-segment", segment, "--schema-dir", schemas, "--decode-value", "avro")
    errors = [json.loads(line).get("_error", "") for line in found.out.splitlines()]
    assert [bool(error) for error in errors] == [False, False, True, True, False]
    assert "PROTOBUF and not AVRO" in errors[2]


@pytest.mark.parametrize(
    "words",
    [
        ("--schema-dir", "none", "--schema-registry", "http://localhost:1"),
        ("--schema-registry", "localhost:8081"),
        ("--schema-registry", "ftp://x/"),
        ("--value-schema", "x.avsc"),
        ("--decode-value", "avro"),
        ("--decode-value", "json", "-f", "table"),
        ("--decode-value", "json", "-f", "kafka"),
        ("--decode-value", "json", "--summary"),
        ("--decode-value", "json", "--bytes", "hex"),
        ("--decode-value", "json", "--print-data-log"),
    ],
)
def test_options_that_cannot_be_followed_are_usage_errors(
    offline: Run, segment: Path, words: tuple[str, ...]
) -> None:
    refused = offline("dump-segment", segment, *words)
    assert (refused.code, refused.out) == (2, "")


def test_a_registry_that_cannot_be_asked_is_an_error(offline: Run, segment: Path, registry: str) -> None:
    refused = offline("dump-segment", segment, "--schema-registry", registry.replace(":pass", ":wrong"))
    assert refused.code == 1
    assert "answers 401" in refused.err
    assert "wrong" not in refused.err
    nobody = offline("dump-segment", segment, "--schema-registry", "http://127.0.0.1:1")
    assert nobody.code == 1
    assert "cannot be asked" in nobody.err


def test_each_schema_is_asked_for_once_also_if_there_is_none() -> None:
    asked: list[str] = []

    def get(path: str) -> bytes | None:
        asked.append(path)
        answer = ANSWERS.get(path)
        return None if answer is None else json.dumps(answer).encode()

    source = RegistrySource(get)
    for _ in range(2):
        assert source.schema(1).kind == "AVRO"
        with pytest.raises(DecodeError):
            source.schema(99)
    assert asked == ["/schemas/ids/1", "/schemas/ids/99"]
