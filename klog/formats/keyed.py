"""Records whose key says what the value is: control records, and those of the internal topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import construct as c

from klog.formats import binary
from klog.formats.errors import FormatError
from klog.formats.fast_readers import REFUSALS, reader_of
from klog.formats.values import Bytes, Value


class KeyValue(NamedTuple):
    """A decoded record: the fields of key and value (value None: a tombstone; raw bytes: an unknown type)."""

    key: Any
    value: Value


# As `KeyValue(*fields)`, in half the time.
_key_value: Final = partial(tuple.__new__, KeyValue)


@dataclass(frozen=True, slots=True)
class Keyed:
    """The definition of a key and of the values that it chooses; `values` lists the choices for the drawn
    layout. `title` is the name in errors.
    """

    title: str
    key: c.Construct
    choose: Callable[[Mapping[str, Any]], c.Construct]
    values: Mapping[Any, c.Construct]

    def parse(self, key: Bytes | None, value: Bytes | None) -> KeyValue:
        """Parse both parts of a record. Raises `FormatError`."""
        what = self.title
        if key is None:
            raise FormatError(f"{what}: the key is null", cure="the record is none of this topic's kinds")
        parsed_key = binary.parse_all(self.key, key, f"{what} key")
        if value is None:
            return KeyValue(parsed_key, None)
        return KeyValue(parsed_key, binary.parse_all(self.choose(parsed_key), value, f"{what} value"))

    def read(self, key: bytes | None, value: bytes | None) -> KeyValue:
        """The same as `parse`, fast: plain dicts and lists. Raises `FormatError`."""
        try:
            if key is not None:
                fields, end = reader_of(self.key)(key, 0)
                if end == len(key):
                    if value is None:
                        return _key_value((fields, None))
                    found, end = reader_of(self.choose(fields))(value, 0)
                    if end == len(value):
                        return _key_value((fields, found))
        except REFUSALS:
            pass  # the definitions say why
        return self.parse(key, value)

    def build(self, record: KeyValue) -> tuple[bytes, bytes | None]:
        """The bytes of both parts. Raises `FormatError`."""
        key = binary.build(self.key, record.key, f"{self.title} key")
        if record.value is None:
            return key, None
        return key, binary.build(self.choose(record.key), record.value, f"{self.title} value")
