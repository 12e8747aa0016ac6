"""How a column is decoded: as a user requests it, and as resolved for all tasks of a job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from klog.export.decoders.wire import RegisteredSchema


class Encoding(StrEnum):
    """The encoding of the bytes of a column."""

    RAW = "raw"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


@dataclass(frozen=True, slots=True)
class Decoding:
    """How the bytes of one column become values. All of it is plain text, which goes to other processes.

    `schema` is the schema of the decoded values: for JSON a type in Spark's notation, for Avro the reader's
    schema, for protobuf compiled descriptors (base64), with the full name of the `message` (empty: the
    first). If `framed`, values are in Confluent's wire format and name one of the `registered` schemas.
    """

    encoding: Encoding = Encoding.RAW
    schema: str = ""
    message: str = ""
    framed: bool = False
    registered: tuple[RegisteredSchema, ...] = ()


RAW: Final = Decoding()


@dataclass(frozen=True, slots=True)
class RequestedDecoding:
    """How a user requests a column to be decoded, before any file was read. Texts may be empty.

    `schema` is a schema or the path of a file with one (for protobuf always a path). `schema_directory` is a
    directory of schemas as in `klog.export.decoders.wire`; with one, values are in Confluent's wire format.
    """

    encoding: Encoding = Encoding.RAW
    schema: str = ""
    message: str = ""
    schema_directory: str = ""
