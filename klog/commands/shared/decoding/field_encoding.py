"""The encodings of keys and values that commands decode."""

from __future__ import annotations

from enum import StrEnum


class FieldEncoding(StrEnum):
    """The encodings that can be decoded."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
