"""Holds certificates and keys in PEM, from files and from configs, as OpenSSL reads them.

Rules: PEM (RFC 7468), which Kafka takes on one line, too (KIP-651).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from tempfile import NamedTemporaryFile
from typing import Final

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]*)-----END \1-----")


@dataclass(frozen=True, slots=True)
class Pem:
    """Certificates, in a key store with their key, in a file (`path`) or as text. `config` names the config
    that they are from.
    """

    config: str
    path: str | None
    text: str = field(default="", repr=False)

    @property
    def shown(self) -> str:
        """What an error message may show."""
        return self.path or "[hidden]"

    def read(self) -> str:
        """The text as OpenSSL reads it. Raises `OSError`."""
        if self.path is None:
            return _BLOCK.sub(_with_lines, self.text)
        with open(self.path, encoding="ascii", errors="replace") as file:
            return file.read()

    @contextmanager
    def as_file(self) -> Iterator[str]:
        """A file with the certificates: OpenSSL reads keys from files only. Raises `OSError`."""
        if self.path is not None:
            yield self.path
            return
        # Only this user may read the file, and it is removed after its use.
        with NamedTemporaryFile("w", encoding="utf-8", suffix=".pem") as file:
            file.write(self.read())
            file.flush()
            yield file.name


def _with_lines(block: re.Match[str]) -> str:
    name, data = block[1], "".join(block[2].split())
    lines = "\n".join(data[start : start + 64] for start in range(0, len(data), 64))
    return f"-----BEGIN {name}-----\n{lines}\n-----END {name}-----\n"
