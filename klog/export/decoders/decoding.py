"""How a column is to be decoded: as a user asks for it, and current_segments, as every task of a job does
it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from klog.export.decoders.wire import RegisteredSchema


class Encoding(StrEnum):
    """What the bytes of a column are."""

    RAW = "raw"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


@dataclass(frozen=True, slots=True)
class Decoding:
    """How the bytes of one column become values; plain text all of it, to be handed to other processes.

    `schema` is what values come out as: of JSON a type as Spark writes it, of Avro the reader's schema, of
    protobuf compiled descriptors (base64) with the `message`'s full name (empty: the first). With `framed`
    values are in Confluent's wire format and name one of the `registered` schemas.
    """

    encoding: Encoding = Encoding.RAW
    schema: str = ""
    message: str = ""
    framed: bool = False
    registered: tuple[RegisteredSchema, ...] = ()


RAW: Final = Decoding()


@dataclass(frozen=True, slots=True)
class RequestedDecoding:
    """How a user asks for a column to be decoded, before anything was looked at; texts may be empty.

    `schema` is a schema or the path of a file with one (of protobuf always a path), `schema_directory` one of
    `klog.export.decoders.wire`: values are in that wire format then.
    """

    encoding: Encoding = Encoding.RAW
    schema: str = ""
    message: str = ""
    schema_directory: str = ""
