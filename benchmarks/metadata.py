"""Compares `klog metadata` and the dump of a metadata snapshot with Kafka's own readers of snapshots."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.contestants import kafka_dump, klog, program
from benchmarks.measure import (
    MIB,
    Contestant,
    Medians,
    Run,
    add_wall,
    medians,
    ratio_note,
    require_same_output,
    run_once,
    table,
)
from benchmarks.rows import Rows

_TOPICS = 10_000
_PARTITIONS = 10
_LAST_TOPIC = f"topic-{_TOPICS - 1:05}"
_DECODER = "--cluster-metadata-decoder"
DUMP_AIM = 1.0
SHOW_AIM = 1.0
START_AIM = 4.0
LIMIT_S = 60
LIMIT_BYTES = 500 * MIB


def compare(work: Path, rounds: int, rows: Rows) -> str:
    """The texts of all comparisons."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    large, tiny = _generated(work / "large", _TOPICS), _generated(work / "tiny", 1)
    source = str(work / "large")
    properties = work / "server.properties"
    properties.write_text(
        f"process.roles=broker,controller\nnode.id=1\nlog.dirs={work / 'node'}\n"
        "controller.quorum.voters=1@localhost:9093\n"
    )
    shell = program("kafka-metadata-shell", "metadata_shell", str(large), _LAST_TOPIC)
    to_kraft = ("convert", source, "--config", str(properties), "--ignore-problems", "--yes")
    to_json = ("convert", source, str(work / "cluster.json"), "--to", "json", "--yes")
    what = f"{_TOPICS * _PARTITIONS:,} partitions"
    texts = [
        _dumps(f"dump a snapshot of {what}", large, work, rounds, rows, DUMP_AIM),
        _dumps("dump a snapshot of ten partitions", tiny, work, rounds, rows, START_AIM),
        _decoding(tiny, rounds, rows),
    ]
    for title, words, made in (
        (f"show {what}, as tables", ("show", source), None),
        (f"show {what}, as JSON", ("show", source, "-o", "json"), None),
        (f"convert {what} to JSON, and compare (the shell only shows them)", to_json, work / "cluster.json"),
        (f"convert {what} to KRaft, and compare (the shell only shows them)", to_kraft, work / "node"),
    ):
        ours, peer = _in_turns(klog("metadata", *words), shell, rounds, partial(_remove, made))
        add_wall(rows, title, ours, peer)
        notes = {"klog": _limits(ours) if made else ratio_note(ours, peer, SHOW_AIM)}
        texts.append(table(title, [ours, peer], notes))
    return "\n".join(texts)


def _generated(directory: Path, topics: int) -> Path:
    run_once(program("generator", "generate_metadata", str(directory), str(topics), str(_PARTITIONS)))
    (snapshot,) = directory.glob("*/*.checkpoint")
    return snapshot


def _remove(made: Path | None) -> None:
    if made is not None and made.is_dir():
        shutil.rmtree(made)
    elif made is not None:
        made.unlink(missing_ok=True)


def _dumps(title: str, snapshot: Path, work: Path, rounds: int, rows: Rows, aim: float) -> str:
    """Both print Kafka's text; the outputs must be equal."""
    ours = klog("dump-segment", "--format", "kafka", _DECODER, str(snapshot))
    theirs = kafka_dump(snapshot, _DECODER)
    size_bytes = require_same_output([ours, theirs], work)
    one, other = _in_turns(ours, theirs, rounds)
    add_wall(rows, title, one, other)
    notes = {"klog": ratio_note(one, other, aim), "output": f"{size_bytes / MIB:.1f} MiB, the same bytes"}
    return table(title, [one, other], notes)


def _decoding(snapshot: Path, rounds: int, rows: Rows) -> str:
    """klog shows the bytes of a snapshot's first batch field by field, Kafka dumps the snapshot."""
    title = "decode a batch of a snapshot field by field (Kafka: dump the snapshot)"
    ours = klog("formats", "record-batch", "--decode", str(snapshot))
    one, other = _in_turns(ours, kafka_dump(snapshot, _DECODER), rounds)
    add_wall(rows, title, one, other)
    return table(title, [one, other], {"klog": ratio_note(one, other, START_AIM)})


def _in_turns(
    ours: Contestant, theirs: Contestant, rounds: int, before: Callable[[], object] = lambda: None
) -> tuple[Medians, Medians]:
    """The medians of both. What klog made is removed before it runs again. A first run warms up both."""
    runs: list[list[Run]] = [[], []]
    for _ in range(rounds + 1):
        before()
        runs[0].append(run_once(ours))
        runs[1].append(run_once(theirs))
    one, other = (medians(each.label, found[1:]) for each, found in zip((ours, theirs), runs, strict=True))
    return one, other


def _limits(ours: Medians) -> str:
    met = ours.wall_s <= LIMIT_S and ours.peak_rss_bytes <= LIMIT_BYTES
    return f"{LIMIT_S} s and {LIMIT_BYTES // MIB} MiB {'met' if met else 'MISSED'}"
