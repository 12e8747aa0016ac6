"""Converts types in Spark's notation (`id BIGINT, tags ARRAY<STRING>`) to Arrow types and back.

Rules: Spark SQL reference, "Data Types" and the grammar of `StructType.fromDDL`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from klog.formats.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

_TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.)*')|([A-Za-z_][\w]*)|(\d+)|([<>(),:]))")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_CURE: Final = "as Spark writes it: `id BIGINT, name STRING, tags ARRAY<STRING>`, or one type"
_DEEPEST: Final = 64


def parse_type(text: str) -> pa.DataType:
    """The Arrow type of a list of columns (a struct) or of a single type. Raises UsageError."""
    tokens = _tokens(text)
    if len(tokens) > 1 and _is_name(tokens[0]) and tokens[1] not in ("<", "("):
        parser = _Parser(tokens, text)
        kind = parser.columns(end=None)
    else:
        parser = _Parser(tokens, text)
        kind = parser.type()
    parser.expect_end()
    return kind


def type_text(kind: pa.DataType) -> str:
    """The type in Spark's notation; a struct is a list of columns."""
    import pyarrow as pa

    if pa.types.is_struct(kind) and kind.num_fields:
        return ", ".join(f"{_quoted(field.name)} {_text(field.type)}" for field in kind)
    return _text(kind)


def _text(kind: pa.DataType) -> str:
    import pyarrow as pa

    types = pa.types
    if types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{_quoted(field.name)}: {_text(field.type)}' for field in kind)}>"
    if types.is_list(kind):
        return f"ARRAY<{_text(kind.value_type)}>"
    if types.is_map(kind):
        return f"MAP<{_text(kind.key_type)}, {_text(kind.item_type)}>"
    if types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
    for name, known in _plain_types().items():
        if known == kind:
            return name
    raise UsageError(f"type {kind} has no name in Spark")


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _is_name(token: str) -> bool:
    return token.startswith("`") or _PLAIN_NAME.fullmatch(token) is not None


def _plain_types() -> dict[str, pa.DataType]:
    """Simple types by name: first the names that `type_text` gives, then Spark's other names."""
    import pyarrow as pa

    return {
        "BOOLEAN": pa.bool_(),
        "TINYINT": pa.int8(),
        "SMALLINT": pa.int16(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "FLOAT": pa.float32(),
        "DOUBLE": pa.float64(),
        "STRING": pa.string(),
        "BINARY": pa.binary(),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us", "UTC"),
        "TIMESTAMP_LTZ": pa.timestamp("us", "UTC"),
        "TIMESTAMP_NTZ": pa.timestamp("us"),
        "BYTE": pa.int8(),
        "SHORT": pa.int16(),
        "INTEGER": pa.int32(),
        "LONG": pa.int64(),
        "REAL": pa.float32(),
    }


def _tokens(text: str) -> list[str]:
    found = []
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise UsageError(f"schema {text[:200]!r} cannot be read at {text[at : at + 20]!r}", cure=_CURE)
        found.append(match[0].strip())
        at = match.end()
    return found


class _Parser:
    def __init__(self, tokens: list[str], text: str) -> None:
        self._tokens = tokens
        self._text = text
        self._at = 0
        self._depth = 0

    def _fail(self) -> UsageError:
        got = self._tokens[self._at] if self._at < len(self._tokens) else "its end"
        return UsageError(f"schema {self._text[:200]!r} cannot be read at {got!r}", cure=_CURE)

    def _next(self) -> str:
        if self._at == len(self._tokens):
            raise self._fail()
        self._at += 1
        return self._tokens[self._at - 1]

    def _takes(self, *words: str) -> bool:
        """Skip `words` if they come next, in upper or lower case."""
        coming = [token.upper() for token in self._tokens[self._at : self._at + len(words)]]
        if coming != list(words):
            return False
        self._at += len(words)
        return True

    def _expect(self, word: str) -> None:
        if not self._takes(word):
            raise self._fail()

    def expect_end(self) -> None:
        if self._at < len(self._tokens):
            raise self._fail()

    def columns(self, end: str | None) -> pa.DataType:
        """Parse columns up to and including `end` (None: the end of the text)."""
        import pyarrow as pa

        fields: list[pa.Field] = []
        while True:
            name = self._next()
            if not _is_name(name):
                self._at -= 1
                raise self._fail()
            self._takes(":")
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            if any(field.name == name for field in fields):
                raise UsageError(f"schema {self._text[:200]!r} has two columns {name!r}")
            fields.append(pa.field(name, self.type()))
            self._takes("NOT", "NULL")
            if self._takes("COMMENT"):
                self._next()
            if (self._at == len(self._tokens)) if end is None else self._takes(end):
                return pa.struct(fields)
            self._expect(",")

    def type(self) -> pa.DataType:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UsageError(f"schema {self._text[:200]!r} is nested more than {_DEEPEST} deep")
        kind = self._type()
        self._depth -= 1
        return kind

    def _type(self) -> pa.DataType:
        import pyarrow as pa

        name = self._next().upper()
        if name == "STRUCT":
            self._expect("<")
            return self.columns(end=">")
        if name == "ARRAY":
            self._expect("<")
            element = self.type()
            self._expect(">")
            return pa.list_(pa.field("element", element))
        if name == "MAP":
            self._expect("<")
            key = self.type()
            self._expect(",")
            value = self.type()
            self._expect(">")
            return pa.map_(key, value)
        if name in ("DECIMAL", "DEC", "NUMERIC"):
            return self._decimal()
        if name in ("VARCHAR", "CHAR"):
            self._numbers()
            return pa.string()
        kind = _plain_types().get(name)
        if kind is None:
            self._at -= 1
            raise self._fail()
        return kind

    def _decimal(self) -> pa.DataType:
        import pyarrow as pa

        precision, scale = (*(self._numbers() or [10]), 0)[:2]
        if not 0 < precision <= 38 or scale > precision:
            raise UsageError(f"DECIMAL({precision}, {scale}) is invalid", cure="at most 38 digits")
        return pa.decimal128(precision, scale)

    def _numbers(self) -> list[int]:
        """Parse numbers in parentheses; none if there are no parentheses."""
        if not self._takes("("):
            return []
        found = [self._number()]
        while self._takes(","):
            found.append(self._number())
        self._expect(")")
        return found

    def _number(self) -> int:
        token = self._next()
        if not token.isdigit():
            self._at -= 1
            raise self._fail()
        return int(token)
