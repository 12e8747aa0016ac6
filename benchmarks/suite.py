"""Lists the benchmarks by name (`SUITE`).

Each returns the text that is printed. The text shows the aim beside each figure, and whether it is met.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

from benchmarks.contestants import kafka_dump, kafka_recover, klog, program
from benchmarks.measure import (
    MIB,
    BenchmarkError,
    Contestant,
    Medians,
    add_wall,
    in_turns,
    limit_note,
    medians,
    ratio_note,
    require_same_output,
    run_once,
    table,
)
from benchmarks.rows import Rows

# As in benchmarks/generate.py, which is not imported because it imports the codecs.
PARTITION = "bench-0"
BATCH_TARGET_BYTES = 16 * 1024

DEEP = ("--print-data-log", "--deep-iteration")
MEMORY_LIMIT_BYTES = 150 * MIB


class OneOrBoth(TypedDict):
    """Which brokers a benchmark runs on."""

    klog_only: bool
    checkout: bool


@dataclass(frozen=True)
class Bench:
    """Where generated files go, their size, how often everything runs, and options of single benchmarks."""

    scratch: Path
    rounds: int
    segment_bytes: int = 256 * MIB
    large_segment_bytes: int = 1024 * MIB
    request_options: Mapping[str, Any] = field(default_factory=dict)
    rows: Rows = field(default_factory=Rows)

    @property
    def one_or_both(self) -> OneOrBoth:
        """Whether klog runs without Kafka, and whether on the modules of the checkout."""
        checkout = bool(self.request_options.get("checkout"))
        return {"klog_only": checkout or bool(self.request_options.get("klog_only")), "checkout": checkout}

    def segment(self, codec: str = "none") -> Path:
        return self._made(f"segment-{codec}", self.segment_bytes, codec)

    @property
    def large_segment(self) -> Path:
        return self._made("large", self.large_segment_bytes, "none")

    @property
    def tiny_segment(self) -> Path:
        return self._made("tiny", 4 * BATCH_TARGET_BYTES, "none")

    @cached_property
    def output(self) -> Path:
        path = self.scratch / "output"
        path.mkdir(exist_ok=True)
        return path

    def _made(self, name: str, size_bytes: int, codec: str) -> Path:
        path = self.scratch / name / PARTITION / f"{0:020d}.log"
        if not path.exists():
            run_once(program("generator", "generate", str(self.scratch / name), str(size_bytes), codec))
        return path


def _against_dump_tool(bench: Bench, title: str, file: Path, flags: tuple[str, ...], wanted: float) -> str:
    """Both print Kafka's text format; the outputs must be equal."""
    contestants = [klog("dump-segment", "--format", "kafka", *flags, str(file)), kafka_dump(file, *flags)]
    size_bytes = require_same_output(contestants, bench.scratch)
    ours, peer = in_turns(contestants, bench.rounds)
    add_wall(bench.rows, title, ours, peer)
    notes = {"klog": ratio_note(ours, peer, wanted), "output": f"{size_bytes / MIB:.1f} MiB, the same bytes"}
    return table(title, [ours, peer], notes)


def text(bench: Bench) -> str:
    return _against_dump_tool(bench, "all records as Kafka's text", bench.segment(), DEEP, 12)


def text_lz4(bench: Bench) -> str:
    return _against_dump_tool(bench, "all records as Kafka's text, lz4", bench.segment("lz4"), DEEP, 8)


def text_zstd(bench: Bench) -> str:
    return _against_dump_tool(bench, "all records as Kafka's text, zstd", bench.segment("zstd"), DEEP, 8)


def batches(bench: Bench) -> str:
    return _against_dump_tool(bench, "batches only, as Kafka's text", bench.segment(), (), 2)


def tiny(bench: Bench) -> str:
    return _against_dump_tool(bench, "a file of four batches", bench.tiny_segment, DEEP, 5)


def jsonl(bench: Bench) -> str:
    """JSON Lines with base64 keys and values, compared with the tool's text: the tool has no other format."""
    file = bench.segment()
    contestant = klog("dump-segment", "--format", "jsonl", "--bytes", "base64", str(file))
    ours, peer = in_turns([contestant, kafka_dump(file, *DEEP)], bench.rounds)
    add_wall(bench.rows, "all records", ours, peer)
    notes = {"klog": ratio_note(ours, peer, 6)}
    return table("all records as JSON Lines (klog) and as Kafka's text", [ours, peer], notes)


def index(bench: Bench) -> str:
    """Each side rebuilds the indexes beside its own link to the segment. Both must write the same bytes."""
    source = bench.large_segment
    ours_at, peer_at = (_linked_partition(bench.output / name, source) for name in ("klog", "kafka"))
    contestants = [
        klog("rebuild-index", "--force", str(ours_at)),
        kafka_recover(peer_at),
        program("checksum pass", "checksum_pass", str(source)),
    ]
    for contestant in contestants:
        run_once(contestant)
    ours, peer, limit = in_turns(contestants, bench.rounds)
    add_wall(bench.rows, "indexes of a large segment", ours, peer)
    add_wall(bench.rows, "beside a checksum pass", ours, limit)
    for suffix in (".index", ".timeindex"):
        name = source.with_suffix(suffix).name
        if (ours_at / name).read_bytes() != (peer_at / name).read_bytes():
            raise BenchmarkError(f"{name} differs from the one that Kafka rebuilt")
    notes = {
        "klog": ratio_note(ours, peer, 4),
        "to the checksum pass": limit_note(ours, limit, 1.5),
        "indexes": "the same bytes",
    }
    return table("indexes of a large segment", [ours, peer, limit], notes)


def _linked_partition(directory: Path, log: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    partition = directory / PARTITION
    partition.mkdir(parents=True)
    (partition / log.name).hardlink_to(log)
    # A valid partition has this file. All generated batches have leader epoch 0.
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return partition


def arrow(bench: Bench) -> str:
    """Decoding to Arrow on one core. The program measures the decoding only, without the start of Python."""
    lines = [f"decoding to Arrow, one core (medians of {bench.rounds})"]
    for codec in ("none", "lz4", "zstd"):
        output = bench.output / "decode.txt"
        contestant = program("klog, Arrow", "decode", str(bench.segment(codec)))
        run_once(contestant)
        rates = []
        for _ in range(bench.rounds):
            run_once(contestant, output)
            rates.append(float(output.read_text()))
        rate = sorted(rates)[len(rates) // 2]
        aim = f" (aim: 20, {'met' if rate >= 20e6 else 'MISSED'})" if codec == "none" else ""
        lines.append(f"  {codec:5} {rate / 1e6:6.1f} million records/s{aim}")
    return "\n".join(lines)


def parquet(bench: Bench) -> str:
    """klog reads, decodes and writes. pyarrow only writes the same table, which is already in memory."""
    file = bench.segment()
    ready = bench.output / "table.arrow"
    written = [str(bench.output / f"{name}.parquet") for name in ("klog", "pyarrow")]
    contestants = [
        klog("dump-segment", "--format", "parquet", "--force", "--output", written[0], str(file)),
        program("pyarrow", "parquet_limit", "write", str(ready), written[1]),
    ]
    run_once(contestants[0])
    run_once(program("the table for pyarrow", "parquet_limit", "load", written[0], str(ready)))
    run_once(contestants[1])
    ours, limit = in_turns(contestants, bench.rounds)
    add_wall(bench.rows, "to Parquet", ours, limit)
    sizes = " and ".join(f"{Path(path).stat().st_size / MIB:.1f} MiB" for path in written)
    notes = {"klog": limit_note(ours, limit, 1.3), "files": sizes}
    return table("to Parquet (zstd)", [ours, limit], notes)


def memory(bench: Bench) -> str:
    """Peak resident memory on a small and on a large segment. It must not grow with the segment."""
    results: list[Medians] = []
    output = str(bench.output / "memory.parquet")
    for file in (bench.segment(), bench.large_segment):
        partition = _linked_partition(bench.output / "memory", file)
        log = str(partition / file.name)
        for contestant in (
            klog("dump-segment", "--format", "kafka", *DEEP, log),
            klog("dump-segment", "--format", "jsonl", "--bytes", "base64", log),
            klog("dump-segment", "--format", "parquet", "--force", "--output", output, log),
            klog("rebuild-index", "--force", str(partition)),
            klog("verify", str(partition)),
        ):
            words = [word for word in contestant.command[1:] if not word.startswith(("/", "--"))]
            label = f"{' '.join(words)}, {file.stat().st_size // MIB} MiB"
            results.append(medians(label, [run_once(Contestant(label, contestant.command))]))
    peak_bytes = max(result.peak_rss_bytes for result in results)
    verdict = "met" if peak_bytes < MEMORY_LIMIT_BYTES else "MISSED"
    notes = {"largest": f"{peak_bytes / MIB:.0f} MiB (limit: {MEMORY_LIMIT_BYTES // MIB}, {verdict})"}
    return table("memory", results, notes)


def compaction(bench: Bench) -> str:
    """klog's cleaner in a worker process and Kafka's cleaner in a warm JVM clean the same topic."""
    # Imported here because the process that measures the others must stay small.
    from benchmarks.cleaning import compare  # noqa: PLC0415

    lines = [f"cleaning {bench.segment_bytes // MIB} MiB of a compacted topic"]
    for codec, wanted in (("none", 2.0), ("lz4", 1.5), ("zstd", 1.5)):
        source = bench.scratch / f"compacted-{codec}"
        if not source.exists():
            size = str(bench.segment_bytes // MIB)
            run_once(program("generator", "generate_keyed", str(source), size, codec))
        lines.append(f"  {codec:5} {compare(source, bench.output, bench.rounds, wanted, codec, bench.rows)}")
    return "\n".join(lines)


def conversion(bench: Bench) -> str:
    """klog converts lz4 to zstd; the libraries alone decompress and compress the same blocks."""
    # Imported here because the process that measures the others must stay small.
    from benchmarks.converting import compare  # noqa: PLC0415

    source = bench.scratch / "to-convert"
    if not source.exists():
        size = str(bench.segment_bytes // MIB)
        run_once(program("generator", "generate_keyed", str(source), size, "lz4"))
    title = f"converting {bench.segment_bytes // MIB} MiB of lz4 to zstd"
    return f"{title}\n{compare(source, bench.output, bench.rounds, bench.rows)}"


def backups(bench: Bench) -> str:
    """klog backs up and restores a partition; cp copies it, and sha256sum reads the copy."""
    # Imported here because the process that measures the others must stay small.
    from benchmarks.backups import compare  # noqa: PLC0415

    title = f"backup and restore of {bench.segment_bytes // MIB} MiB"
    return f"{title}\n{compare(bench.segment().parent, bench.output / 'backups', bench.rounds, bench.rows)}"


def backups_over_the_wire(bench: Bench) -> str:
    """klog backs up a klog broker over the wire; others fetch the same records and discard them."""
    # Imported here because the process that measures the others must stay small.
    from benchmarks.backup_wire import compare  # noqa: PLC0415

    mebibytes = bench.segment_bytes // MIB
    title = f"backup of {mebibytes} MiB over the wire"
    return f"{title}\n{compare(bench.output / 'backup-wire', mebibytes, bench.rounds, bench.rows)}"


def backup_comparison(bench: Bench) -> str:
    """Which of a Kafka cluster comes back equal from backups of klog and of other tools."""
    # Imported here because the process that measures the others must stay small.
    from benchmarks.backup_comparison import compare  # noqa: PLC0415

    return compare(bench.output / "backup-comparison")


def _of_exports(codec: str) -> Callable[[Bench], str]:
    def run(bench: Bench) -> str:
        # Imported here because the process that measures the others must stay small.
        from benchmarks.exporting import against_pyarrow  # noqa: PLC0415

        where = (bench.scratch, bench.output, bench.rounds, bench.large_segment_bytes)
        return against_pyarrow(*where, codec, bench.rows)

    return run


def _of_spark(codec: str) -> Callable[[Bench], str]:
    def run(bench: Bench) -> str:
        # Imported here because the process that measures the others must stay small.
        from benchmarks.spark import beside_kafka  # noqa: PLC0415

        where = (bench.scratch, bench.output, bench.rounds, bench.large_segment_bytes)
        return beside_kafka(*where, codec, bench.rows)

    return run


def spark_scaling(bench: Bench) -> str:
    """The same export on Spark with one task slot and with two."""
    # Imported here because the process that measures the others must stay small.
    from benchmarks.spark import scaling  # noqa: PLC0415

    return scaling(bench.scratch, bench.output, bench.rounds, bench.large_segment_bytes)


def _of_brokers(name: str) -> Callable[[Bench], str]:
    """The benchmarks of `broker`, which need a running Kafka."""

    def run(bench: Bench) -> str:
        # Imported here because the process that measures the others must stay small.
        from benchmarks import broker  # noqa: PLC0415

        if name == "throughput":
            return broker.throughput(bench.scratch, bench.rounds, bench.rows, bench.segment_bytes)
        return str(getattr(broker, name)(bench.scratch, bench.rounds, bench.rows))

    return run


def broker_requests(bench: Bench) -> str:
    """Ready-made requests on klog and Kafka, and what no broker at all costs."""
    # Imported here because the process that measures the others must stay small.
    from benchmarks.broker_requests import Options, compare  # noqa: PLC0415

    return compare(bench.scratch, bench.rounds, bench.rows, Options(**bench.request_options))


def broker_requests_replicated(bench: Bench) -> str:
    """The same requests on three brokers, with three replicas and acks=all."""
    from benchmarks.broker_requests import Options, compare  # noqa: PLC0415

    options = Options(**bench.request_options, replicated=True)
    return compare(bench.scratch, bench.rounds, bench.rows, options)


def broker_cold(bench: Bench) -> str:
    """Small requests beside a consumer whose log is not in the page cache."""
    # Imported here because the process that measures the others must stay small.
    from benchmarks.broker_cold import cold  # noqa: PLC0415

    return cold(
        bench.scratch,
        bench.rounds,
        bench.rows,
        bench.large_segment_bytes,
        klog_only=bool(bench.request_options.get("klog_only")),
    )


def broker_transactions(bench: Bench) -> str:
    """Transactions of librdkafka's producers on klog and Kafka."""
    # Imported here because the process that measures the others must stay small.
    from benchmarks.broker_transactions import transactions  # noqa: PLC0415

    return transactions(bench.scratch, bench.rounds, bench.rows, **bench.one_or_both)


def broker_transactions_replicated(bench: Bench) -> str:
    """The same on three brokers, with three replicas."""
    from benchmarks.broker_transactions import replicated_transactions  # noqa: PLC0415

    return replicated_transactions(bench.scratch, bench.rounds, bench.rows, **bench.one_or_both)


def broker_groups(bench: Bench) -> str:
    """Members that join and stay, few and many, on klog and Kafka."""
    from benchmarks.broker_groups import groups  # noqa: PLC0415

    return groups(bench.scratch, bench.rounds, bench.rows, **bench.one_or_both)


def broker_offsets(bench: Bench) -> str:
    """Loading of committed offsets on klog and Kafka, and producers beside it."""
    from benchmarks.broker_offsets import offsets  # noqa: PLC0415

    return offsets(bench.scratch, bench.rounds, bench.rows, **bench.one_or_both)


def broker_failover(bench: Bench) -> str:
    """Creation, controlled shutdown and failover with 1,000 partitions, on clusters of klog and of Kafka.

    Also how soon a producer writes again after the leader was killed.
    """
    from benchmarks.broker_failover import failover  # noqa: PLC0415
    from benchmarks.leader_failure import leader_failures  # noqa: PLC0415

    checkout = bool(bench.request_options.get("checkout"))
    controllers = failover(bench.scratch, bench.rounds, bench.rows, checkout=checkout)
    return f"{controllers}\n{leader_failures(bench.scratch, bench.rounds, bench.rows, checkout=checkout)}"


def broker_replication(bench: Bench) -> str:
    """Copying of partitions and acks=all over three brokers, on clusters of klog and of Kafka."""
    from benchmarks.broker_replication import replication  # noqa: PLC0415

    checkout = bool(bench.request_options.get("checkout"))
    return replication(bench.scratch, bench.rounds, bench.rows, bench.segment_bytes, checkout=checkout)


def broker_flood(bench: Bench) -> str:
    """Lag of followers beside clients that flood another listener, of klog and of Kafka."""
    from benchmarks.broker_flood import flood  # noqa: PLC0415

    return flood(bench.scratch, bench.rounds, bench.rows, **bench.one_or_both)


def broker_tls(bench: Bench) -> str:
    """CPU of a broker by megabyte over TLS, of klog and of Kafka."""
    from benchmarks.broker_secured import tls  # noqa: PLC0415

    return tls(bench.scratch, bench.rounds, bench.rows)


def broker_acls(bench: Bench) -> str:
    """CPU of klog's broker by request, with a thousand ACLs and without an authoriser."""
    from benchmarks.broker_secured import acls  # noqa: PLC0415

    return acls(bench.scratch, bench.rounds, bench.rows, checkout=bool(bench.request_options.get("checkout")))


def broker_idle(bench: Bench) -> str:
    """CPU of three brokers with 2,000 idle partitions of three replicas, of klog and of Kafka."""
    from benchmarks.idle_cluster import idle_clusters  # noqa: PLC0415

    checkout = bool(bench.request_options.get("checkout"))
    return idle_clusters(bench.scratch, bench.rounds, bench.rows, checkout=checkout)


def admin_commands(bench: Bench) -> str:
    """klog's commands for clusters and Kafka's scripts, as whole processes."""
    from benchmarks.admin_commands import admin_commands as compare  # noqa: PLC0415

    return compare(bench.scratch, bench.rounds, bench.rows)


def metadata(bench: Bench) -> str:
    """klog reads, shows and converts a metadata snapshot; Kafka's dump tool and its shell read the same."""
    # Imported here because the process that measures the others must stay small.
    from benchmarks.metadata import compare  # noqa: PLC0415

    return compare(bench.output / "metadata", bench.rounds, bench.rows)


_BROKERS = ("start", "throughput", "latency", "connections", "small", "partitions")

SUITE: dict[str, Callable[[Bench], str]] = {
    "tiny": tiny,
    "batches": batches,
    "text": text,
    "text-lz4": text_lz4,
    "text-zstd": text_zstd,
    "jsonl": jsonl,
    "index": index,
    "arrow": arrow,
    "parquet": parquet,
    "memory": memory,
    "compaction": compaction,
    "convert": conversion,
    "backup": backups,
    "backup-wire": backups_over_the_wire,
    "backup-comparison": backup_comparison,
    "export-none": _of_exports("none"),
    "export-zstd": _of_exports("zstd"),
    "export-spark-none": _of_spark("none"),
    "export-spark-zstd": _of_spark("zstd"),
    "export-spark-slots": spark_scaling,
    **{f"broker-{name}": _of_brokers(name) for name in _BROKERS},
    "broker-requests": broker_requests,
    "broker-requests-replicated": broker_requests_replicated,
    "broker-cold": broker_cold,
    "broker-transactions": broker_transactions,
    "broker-transactions-replicated": broker_transactions_replicated,
    "broker-groups": broker_groups,
    "broker-offsets": broker_offsets,
    "broker-failover": broker_failover,
    "broker-replication": broker_replication,
    "broker-flood": broker_flood,
    "broker-idle": broker_idle,
    "broker-tls": broker_tls,
    "broker-acls": broker_acls,
    "admin-commands": admin_commands,
    "metadata": metadata,
}
