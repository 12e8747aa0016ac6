"""`quorum-state`: the state of elections that a KRaft node keeps beside its metadata log (KIP-595, KIP-853).

Rules: Kafka's `FileQuorumStateStore` and its QuorumStateData schema, as JSON without white space or newline.
Version 0 also lists the voters. Version 1 has the voters in the log, and the directory of the voted
candidate.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from klog.formats.errors import FormatError, UnsupportedFormatError
from klog.formats.text_format import INT32, INT64, WORD, Line, TextField, TextFormat
from klog.formats.values import Value

QuorumStateFile: Final = TextFormat(
    "quorum state",
    (
        Line(
            "{{...}}",
            "once",
            (
                TextField("clusterId", WORD, "version 0, always empty"),
                TextField("leaderId", INT32, "-1 for none known"),
                TextField("leaderEpoch", INT32, "counts elections"),
                TextField("votedId", INT32, "candidate voted for in this epoch, -1 for none"),
                TextField("votedDirectoryId", WORD, "its directory (version 1)"),
                TextField("appliedOffset", INT64, "version 0, always 0"),
                TextField("currentVoters", WORD, "version 0: list of {voterId}"),
                TextField("data_version", INT32, "0 or 1"),
            ),
            "one JSON object",
        ),
    ),
)
_NUMBERS: Final = ("leaderId", "leaderEpoch", "votedId", "data_version")


class QuorumState(NamedTuple):
    """The fields of the file, in its order."""

    fields: tuple[tuple[str, Value], ...]

    def field(self, name: str) -> Value:
        """The value of a field, None if it is absent."""
        return dict(self.fields).get(name)


def parse(data: bytes) -> QuorumState:
    """The file. Raises `FormatError`."""
    what = QuorumStateFile.title
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what}: not JSON ({error})", position_bytes=0) from error
    if not isinstance(content, dict):
        raise FormatError(f"{what}: not a JSON object", position_bytes=0)
    for name in _NUMBERS:
        if not isinstance(content.get(name), int):
            raise FormatError(f"{what}: {name} is {content.get(name)!r}, not a number", position_bytes=0)
    if content["data_version"] not in (0, 1):
        raise UnsupportedFormatError(
            f"{what}: version {content['data_version']} is not defined (known: 0, 1)"
        )
    return QuorumState(tuple(content.items()))


def build(state: QuorumState) -> bytes:
    """The bytes of the file."""
    return json.dumps(dict(state.fields), separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )
