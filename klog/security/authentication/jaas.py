"""Parses JAAS: the value of `sasl.jaas.config`, a login module and its options, and files with several.

Rules: Kafka's `JaasConfig` and the JDK's `ConfigFile`, which read words with Java's `StreamTokenizer`:
`MODULE required|requisite|sufficient|optional NAME=VALUE ... ;`. A value is a word or is quoted; a number
must be quoted. The text holds passwords, so no error shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.formats.errors import FormatError

_TOKEN: Final = re.compile(
    r"""
    (?P<space> [\x00-\x20]+ | //[^\r\n]* | /\*.*?\*/ | /(?!\*)[^\r\n]* )
    | " (?P<double> (?:\\.|[^"\\\r\n])* ) "
    | ' (?P<single> (?:\\.|[^'\\\r\n])* ) '
    | (?P<number> -?[0-9.]+ )
    | (?P<word> [A-Za-z_$\u00a0-\U0010ffff] [A-Za-z0-9_$.\-\u00a0-\U0010ffff]* )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module by the name of its class, and its options."""

    module: str
    options: Mapping[str, str] = field(repr=False)


class _Token(NamedTuple):
    """A word or a quoted text; other characters stand for themselves and are no `text`."""

    text: str | None
    other: str = ""


def parse_jaas(text: str) -> JaasEntry:
    """The only entry of a value. Raises FormatError."""
    tokens = _tokens(text)
    first = next(tokens, None)
    if first is None:
        raise FormatError("it names no login module")
    entry = _entry(first, tokens)
    if next(tokens, None) is not None:
        raise FormatError("it must have one login module only")
    return entry


def parse_jaas_file(text: str) -> dict[str, list[JaasEntry]]:
    """The entries of a file by section: `SECTION { ENTRY ENTRY };`. Raises FormatError."""
    tokens = _tokens(text)
    sections: dict[str, list[JaasEntry]] = {}
    for name in tokens:
        opening = next(tokens, None)
        if name.text is None or opening is None or opening.other != "{":
            raise FormatError("a section does not begin with NAME {")
        entries = sections.setdefault(name.text, [])
        for first in tokens:
            if first.other == "}":
                break
            entries.append(_entry(first, tokens))
        end = next(tokens, None)
        if end is None or end.other != ";":
            raise FormatError(f"section {name.text} does not end with }};")
    return sections


def _entry(first: _Token, tokens: Iterator[_Token]) -> JaasEntry:
    if first.text is None:
        raise FormatError("it does not begin with the class of a login module")
    flag = next(tokens, None)
    if flag is None or flag.text is None or flag.text.lower() not in _FLAGS:
        raise FormatError(f"after the login module {first.text} comes one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    for token in tokens:
        if token.other == ";":
            return JaasEntry(first.text, options)
        if token.text is None:
            raise FormatError(
                f"an option of {first.text} does not begin with a name",
                cure="write values with other characters than letters, digits, _ and - in quotes",
            )
        equals, value = next(tokens, None), next(tokens, None)
        if equals is None or equals.other != "=" or value is None or value.text is None:
            raise FormatError(
                f"option {token.text} of {first.text} has no value", cure=f'write {token.text}="VALUE"'
            )
        options[token.text] = value.text
    raise FormatError(f"the entry of {first.text} does not end with a semicolon")


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "word":
            yield _Token(match[0])
        elif kind in ("double", "single"):
            yield _Token(_ESCAPE.sub(_unescaped, match[kind]))
        elif kind != "space":
            yield _Token(None, match[0])


def _unescaped(escape: re.Match[str]) -> str:
    found = escape[1]
    return chr(int(found, 8)) if found[0] in "01234567" else _ESCAPES.get(found, found)
