"""Imitates Java and Scala in what Kafka's dump shows: numbers in names, paths, the order of hash tables.

Rules: the API documentation of `java.io.File` and `Long.parseLong`, and the iteration order of
`scala.collection.mutable.HashMap` and `HashSet` (2.13).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from klog.formats.errors import FormatError

T = TypeVar("T")

INT32_MAX: Final = 2**31 - 1
_LONG: Final = re.compile(r"[+-]?[0-9]+")
_TABLE_SIZE: Final = 16
_LOAD_FACTOR: Final = 0.75
_SMALL_SET: Final = 4


def parse_long(text: str, file: str, bits: int = 64) -> int:
    """The number in a file name. Raises FormatError if Java's parser rejects it."""
    number = int(text) if _LONG.fullmatch(text) else None
    if number is None or not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise FormatError(
            f"file name has '{text}' instead of an offset",
            file=file,
            cure="rename it to the name that Kafka gave it: the 20-digit base offset",
        )
    return number


def java_path(path: str) -> str:
    """A path as `java.io.File` prints it: without double slashes and without one at the end."""
    shown = re.sub("/+", "/", path)
    return shown.rstrip("/") or "/" if shown else ""


def absolute_path(path: str) -> str:
    """Like `File.getAbsolutePath`: below the working directory; `.` and `..` remain."""
    shown = java_path(path)
    return shown if shown.startswith("/") else java_path(f"{os.getcwd()}/{shown}")


class ScalaOrder(Generic[T]):
    """The iteration order of Scala's mutable hash map or set, given the order of insertion."""

    def __init__(self) -> None:
        self._length = _TABLE_SIZE
        self._hashes: dict[T, int] = {}

    def add(self, key: T, hash_code: int) -> None:
        """Insert `key` with the value of its `hashCode`."""
        if len(self._hashes) + 1 >= int(self._length * _LOAD_FACTOR):
            self._length *= 2
        self._insert(key, hash_code)

    def add_all(self, hash_codes: dict[T, int]) -> None:
        """Insert all elements of an immutable set, for whose number the table grows once."""
        wanted = int((len(hash_codes) + 1) / _LOAD_FACTOR)
        self._length = max(self._length, 1 << max(wanted - 1, 4).bit_length())
        # Scala's set of up to four elements is not a hash set; its elements are added one by one.
        insert = self.add if len(hash_codes) <= _SMALL_SET else self._insert
        for key, hash_code in hash_codes.items():
            insert(key, hash_code)

    def _insert(self, key: T, hash_code: int) -> None:
        if key not in self._hashes:
            self._hashes[key] = hash_code ^ (hash_code >> 16)

    def sorted(self) -> list[T]:
        """The keys by bucket, within a bucket by signed hash, then by insertion."""

        def place(key: T) -> tuple[int, int]:
            improved = self._hashes[key]
            return improved & (self._length - 1), improved - (improved >> 31 << 32)

        return sorted(self._hashes, key=place)


def in_scala_order(items: Iterable[T], hash_code: Callable[[T], int]) -> list[T]:
    """The items in the iteration order of a mutable hash map into which they are inserted one by one."""
    order: ScalaOrder[T] = ScalaOrder()
    for item in items:
        order.add(item, hash_code(item))
    return order.sorted()
