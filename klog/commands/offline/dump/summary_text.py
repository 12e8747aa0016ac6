"""Prints the summary for people: one partition in full, or a table with one row per partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from klog.commands.offline.dump.table_writer import TableWriter
from klog.commands.shared.cells import (
    BAD,
    human_bytes,
    human_count,
    human_span,
    human_time,
    zone,
)
from klog.commands.shared.table_layout import Cell, Column, Row
from klog.formats.compression import codec_name
from klog.storage.files.distributions import Distribution
from klog.storage.reading.statistics import CodecNumbers, LogStatistics

_BARS = 48
_BLOCKS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_TOP = 5


def show(writer: TableWriter, name: str, numbers: LogStatistics) -> None:
    """Print one partition or segment in full."""
    writer.section(name, human_bytes(numbers.size_bytes))
    if not numbers.batches:
        writer.line("no batches", "dim")
        return
    writer.facts([*_contents(numbers), *_shape(numbers), *_writers(numbers)])
    _histogram(writer, numbers)


def _contents(numbers: LogStatistics) -> Iterator[tuple[str, Cell]]:
    batches = _many(numbers.batches, "batch", "batches")
    yield "records", Cell(f"{human_count(numbers.records)} in {batches}{_in_segments(numbers)}")
    yield "offsets", Cell(f"{numbers.first_offset} to {numbers.last_offset}{_missing(numbers)}")
    if numbers.min_timestamp_ms is not None and numbers.max_timestamp_ms is not None:
        span = human_span(max(0, numbers.max_timestamp_ms - numbers.min_timestamp_ms))
        begin, end = human_time(numbers.min_timestamp_ms), human_time(numbers.max_timestamp_ms)
        yield (
            "time",
            Cell(f"{begin} to {end} {zone()} ({span}), {', '.join(sorted(numbers.timestamp_types))}"),
        )
    if numbers.invalid_batches:
        yield (
            "damaged",
            Cell(f"{_many(numbers.invalid_batches, 'batch', 'batches')} with a bad checksum", BAD),
        )
    for codec, share in sorted(numbers.codecs.items()):
        yield "codec", Cell(_codec(codec, share))
    if set(numbers.magics) != {2}:
        mix = ", ".join(
            f"magic {magic}: {human_count(count)}" for magic, count in sorted(numbers.magics.items())
        )
        yield "format", Cell(f"{mix} batches")


def _in_segments(numbers: LogStatistics) -> str:
    return "" if numbers.segments == 1 else f", {numbers.segments} segments"


def _missing(numbers: LogStatistics) -> str:
    if not numbers.gaps:
        return ", no gaps"
    return f", {human_count(numbers.missing_offsets)} missing in {_many(numbers.gaps, 'gap', 'gaps')}"


def _codec(codec: int, share: CodecNumbers) -> str:
    text = f"{codec_name(codec)}: {_many(share.batches, 'batch', 'batches')}, {human_bytes(share.size_bytes)}"
    return text if share.ratio is None else f"{text}, compressed {share.ratio:.2f} to 1"


def _shape(numbers: LogStatistics) -> Iterator[tuple[str, Cell]]:
    yield "batch size", Cell(_sizes(numbers.batch_sizes))
    if not numbers.decoded_records:
        return
    sample = f" (of {human_count(numbers.decoded_records)} records looked at)" if numbers.sampled else ""
    yield "record size", Cell(f"{_sizes(numbers.record_sizes)}{sample}")
    parts = []
    for count, what in (
        (numbers.null_keys, "null keys"),
        (numbers.null_values, "null values (tombstones)"),
        (numbers.headers, "headers"),
    ):
        if count:
            parts.append(f"{human_count(count)} {what}")
    if parts:
        yield "records have", Cell(", ".join(parts) + sample)


def _sizes(values: Distribution) -> str:
    parts = (
        f"{name} {human_bytes(value)}"
        for name, value in (("min", values.smallest), ("median", values.median), ("max", values.largest))
        if value is not None
    )
    return ", ".join(parts)


def _writers(numbers: LogStatistics) -> Iterator[tuple[str, Cell]]:
    if numbers.producers:
        top = ", ".join(
            f"{producer}: {human_count(count)}" for producer, count in numbers.producers.most_common(_TOP)
        )
        more = len(numbers.producers) - _TOP
        yield "producers", Cell(f"{top}{f' and {more} more' if more > 0 else ''} (producer id: records)")
    found = numbers.transactions
    if numbers.transactional_batches or found.committed or found.aborted:
        yield (
            "transactions",
            Cell(f"{found.committed} committed, {found.aborted} aborted, {len(found.open)} open"),
        )
    for producer, offset in sorted(found.open.items())[:_TOP]:
        yield "open", Cell(f"producer {producer} since offset {offset}", "magenta")
    others = {
        kind: count for kind, count in numbers.control_records.items() if kind not in {"COMMIT", "ABORT"}
    }
    if others:
        yield "control", Cell(", ".join(f"{count} {kind}" for kind, count in sorted(others.items())))
    if numbers.delete_horizons:
        yield "cleaned", Cell(f"{_many(numbers.delete_horizons, 'batch', 'batches')} with a delete horizon")
    if numbers.leader_epochs:
        epochs = sorted(numbers.leader_epochs.items())
        shown = ", ".join(f"{epoch} from {offset}" for epoch, offset in epochs[-_TOP:])
        yield "leader epochs", Cell(f"{shown}{' (the last of them)' if len(epochs) > _TOP else ''}")


def _many(count: int, one: str, more: str) -> str:
    return f"{human_count(count)} {one if count == 1 else more}"


def _histogram(writer: TableWriter, numbers: LogStatistics) -> None:
    start, width_ms, bars = numbers.histogram.bars(_BARS)
    if len(bars) < 2:
        return
    top = max(bars)
    writer.line()
    writer.line("".join(_bar(count, top) for count in bars), "green")
    writer.line(
        f"{human_time(start)}  one column: {human_span(width_ms)}, highest: {human_count(top)} records", "dim"
    )


def _bar(count: int, top: int) -> str:
    # The smallest count is visible.
    return _BLOCKS[0] if not count else _BLOCKS[max(1, round(count / top * 8))]


def show_many(writer: TableWriter, partitions: Iterable[tuple[str, LogStatistics]]) -> None:
    """Print one row per partition."""
    columns = [
        Column("partition"),
        Column("segments", right=True, rank=3),
        Column("records", right=True),
        Column("batches", right=True, rank=5),
        Column("size", right=True),
        Column("offsets", right=True, rank=1),
        Column("codecs", rank=2),
        Column(f"newest ({zone()})", rank=4),
        Column("open txns", right=True),
        Column("damaged", right=True),
    ]
    writer.table(columns, (_row(name, numbers) for name, numbers in partitions))


def _row(name: str, numbers: LogStatistics) -> Row:
    damaged = numbers.invalid_batches
    newest = numbers.max_timestamp_ms
    return [
        Cell(name, BAD if damaged else ""),
        Cell(str(numbers.segments)),
        Cell(human_count(numbers.records)),
        Cell(human_count(numbers.batches)),
        Cell(human_bytes(numbers.size_bytes)),
        Cell(f"{numbers.first_offset}..{numbers.last_offset}" if numbers.batches else ""),
        Cell(", ".join(codec_name(codec) for codec in sorted(numbers.codecs))),
        Cell("" if newest is None else human_time(newest)),
        Cell(str(len(numbers.transactions.open)) if numbers.transactions.open else "", "magenta"),
        Cell(human_count(damaged) if damaged else "", BAD),
    ]
