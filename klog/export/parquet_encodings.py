"""Chooses how the columns of a Parquet file are encoded, from its first rows.

A column gets a dictionary if its values repeat so often that a row group has at most half as many distinct
ones, and if these fit a dictionary page. If later rows do not repeat, Arrow drops the dictionary of that row
group when the page is full. On values that repeat, a dictionary saves most of the space and of the time; on
others it costs both. Columns that count get the differences of their numbers instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

_DELTA_ENCODED: Final = {"offset", "timestamp", "batchPosition", "sequence"}
"""Columns whose numbers mostly grow by small steps: encoding the differences takes less time and space."""

_SAMPLE_SHARE: Final = 8
_LEAST_SAMPLE_ROWS: Final = 4096
_LEAST_BYTES: Final = 64 << 10
"""Of fewer bytes a dictionary saves nothing that counts: the type decides."""
_LARGEST_VALUE_BYTES: Final = 256 << 10
"""A dictionary copies each value. Large ones would take too much memory."""
_LARGEST_KEY_BYTES: Final = 1024
"""Statistics hold several copies of the least and the greatest key. Arrow writes none above 4 KiB."""


@dataclass(frozen=True, slots=True)
class Encodings:
    """The Parquet columns, by their paths, that get a dictionary, differences, and statistics."""

    dictionary: tuple[str, ...]
    delta: tuple[str, ...]
    statistics: tuple[str, ...]


def choose(rows: pa.Table, dictionary_bytes: int) -> Encodings:
    """The encodings of a file that begins with the row group `rows`.

    `dictionary_bytes` is the most that a dictionary page holds.
    """
    dictionary, statistics = [], []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        for path, chunks in _leaves(field.name, column.chunks, field.type):
            if _repeats(path, chunks, dictionary_bytes):
                dictionary.append(path)
            if _has_order(path, chunks):
                statistics.append(path)
    delta = (field.name for field in rows.schema if _counts(field))
    return Encodings(tuple(dictionary), tuple(delta), tuple(statistics))


def _counts(field: pa.Field) -> bool:
    import pyarrow as pa

    return field.name in _DELTA_ENCODED and (
        pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type)
    )


def _leaves(path: str, chunks: list[pa.Array], kind: pa.DataType) -> Iterator[tuple[str, list[pa.Array]]]:
    """Yield the Parquet columns of an Arrow column: their paths and values."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        for at, field in enumerate(kind):
            yield from _leaves(f"{path}.{field.name}", [one.field(at) for one in chunks], field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", [one.keys for one in chunks], kind.key_type)
        yield from _leaves(f"{path}.key_value.value", [one.items for one in chunks], kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", [one.flatten() for one in chunks], kind.value_type)
    else:
        yield path, chunks


def _has_order(path: str, chunks: list[pa.Array]) -> bool:
    """Whether readers look for values by statistics: of numbers, texts and small keys."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_binary(chunks[0].type):
        return True
    if path != "key":
        return False
    sizes = [pc.max(pc.binary_length(chunk)).as_py() or 0 for chunk in chunks]
    return max(sizes) <= _LARGEST_KEY_BYTES


def _repeats(path: str, chunks: list[pa.Array], dictionary_bytes: int) -> bool:
    """Whether a column gets a dictionary."""
    import pyarrow as pa

    kind = chunks[0].type
    if path in _DELTA_ENCODED or pa.types.is_boolean(kind):
        return False
    size_bytes = sum(chunk.nbytes for chunk in chunks)
    if size_bytes < _LEAST_BYTES:
        return not pa.types.is_binary(kind)
    if any(chunk.nbytes > _LARGEST_VALUE_BYTES * len(chunk) for chunk in chunks):
        return False
    rows = sum(len(chunk) - chunk.null_count for chunk in chunks)
    distinct = _distinct(chunks, rows)
    return bool(distinct <= rows / 2 and distinct * size_bytes <= dictionary_bytes * rows)


def _distinct(chunks: list[pa.Array], rows: int) -> float:
    """About how many distinct values there are, by a sample."""
    import pyarrow as pa
    import pyarrow.compute as pc

    share = min(1.0, max(1 / _SAMPLE_SHARE, _LEAST_SAMPLE_ROWS / max(rows, 1)))
    sample = pa.chunked_array(
        [chunk.slice(0, math.ceil(len(chunk) * share)) for chunk in chunks], chunks[0].type
    )
    sampled = len(sample) - sample.null_count
    found: int = pc.count_distinct(sample).as_py()
    if sampled == rows or not sampled:
        return found
    population = _population(sampled, found)
    return population * -math.expm1(-rows / population)


def _population(sampled: int, distinct: int) -> float:
    """The number of equally frequent values of which a sample of this size has so many distinct ones."""
    low, high = float(distinct), float(sampled) * sampled
    while high - low > low / 100:
        middle = math.sqrt(low * high)
        if middle * -math.expm1(-sampled / middle) < distinct:
            low = middle
        else:
            high = middle
    return high
