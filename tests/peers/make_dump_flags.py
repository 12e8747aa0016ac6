"""Generates `fixtures/dump-flags/`: what Kafka 3.9.1's dump tool prints with rare flags and inputs.

    python -m tests.peers.make_dump_flags [--output fixtures/dump-flags]

`cases.json` lists the cases: the log directory that the tool ran in, its arguments, its exit status, the
exception that ended it (or null; paths in it are relative to the log directory) and the file with its stdout.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from tests import corpora
from tests.peers import DumpServer, KafkaPeer
from tests.peers.make_corpora import pack

FIRST = "00000000000000000000"
DATA = ("--print-data-log", "--deep-iteration")
DECODER = "org.apache.kafka.tools.api"
OLD_DECODER = "kafka.serializer"

# name: (log directory, partition-relative files, flags)
CASES: dict[str, tuple[str, Sequence[str], Sequence[str]]] = {
    # Which flags imply which, on one log.
    "print-data-log": ("k39-edge/logs", [f"e-headers-0/{FIRST}.log"], ["--print-data-log"]),
    "deep-iteration": ("k39-edge/logs", [f"e-headers-0/{FIRST}.log"], ["--deep-iteration"]),
    "skip-record-metadata": (
        "k39-edge/logs",
        [f"e-headers-0/{FIRST}.log"],
        [*DATA, "--skip-record-metadata"],
    ),
    "skip-without-data": (
        "k39-edge/logs",
        [f"e-headers-0/{FIRST}.log"],
        ["--deep-iteration", "--skip-record-metadata"],
    ),
    "skip-nulls": ("k39-edge/logs", [f"e-nulls-0/{FIRST}.log"], [*DATA, "--skip-record-metadata"]),
    "skip-control": ("k39-txn/logs", [f"t-txn2-0/{FIRST}.log"], [*DATA, "--skip-record-metadata"]),
    "skip-magic-1": ("k010-codecs/logs", [f"t-gzip-0/{FIRST}.log"], [*DATA, "--skip-record-metadata"]),
    "deep-magic-0": ("k08-codecs/logs", [f"t-snappy-0/{FIRST}.log"], ["--deep-iteration"]),
    # Limits. A batch that crosses max-bytes is not read; max-message-size matters to index checks only.
    "max-bytes-0": ("k39-codecs/logs", [f"t-none-0/{FIRST}.log"], ["--max-bytes", "0"]),
    "max-bytes-100": ("k39-codecs/logs", [f"t-none-0/{FIRST}.log"], ["--max-bytes", "100"]),
    "max-bytes-5000": ("k39-codecs/logs", [f"t-none-0/{FIRST}.log"], ["--max-bytes", "5000"]),
    "max-bytes-5000-data": ("k39-codecs/logs", [f"t-lz4-0/{FIRST}.log"], [*DATA, "--max-bytes", "5000"]),
    "max-bytes-negative": ("k39-codecs/logs", [f"t-none-0/{FIRST}.log"], ["--max-bytes", "-1"]),
    "max-bytes-magic-1": ("k010-codecs/logs", [f"t-gzip-0/{FIRST}.log"], ["--max-bytes", "5000"]),
    "max-message-size": (
        "k39-codecs/logs",
        [f"t-none-0/{FIRST}.index", f"t-none-0/{FIRST}.timeindex"],
        ["--max-message-size", "100"],
    ),
    # Indexes: checked but not printed.
    "index-sanity-check": (
        "k39-codecs/logs",
        [f"t-none-0/{FIRST}.index", f"t-none-0/{FIRST}.timeindex"],
        ["--index-sanity-check"],
    ),
    "index-sanity-check-odd": (
        "corrupt-k39/logs",
        [f"c-b.idx-odd-0/{FIRST}.index"],
        ["--index-sanity-check"],
    ),
    "index-sanity-check-garbage": (
        "corrupt-k39/logs",
        [f"c-b.idx-garbage-0/{FIRST}.index", f"c-b.idx-garbage-0/{FIRST}.timeindex"],
        ["--index-sanity-check"],
    ),
    "index-sanity-check-log": ("k39-codecs/logs", [f"t-none-0/{FIRST}.log"], ["--index-sanity-check"]),
    "verify-index-only": (
        "k39-codecs/logs",
        [f"t-zstd-0/{FIRST}.index", f"t-zstd-0/{FIRST}.timeindex"],
        ["--verify-index-only"],
    ),
    "verify-index-only-zero": (
        "corrupt-k39/logs",
        [f"c-b.idx-zero-0/{FIRST}.index", f"c-b.idx-zero-0/{FIRST}.timeindex"],
        ["--verify-index-only"],
    ),
    "verify-index-only-old": ("k08-codecs/logs", [f"t-none-0/{FIRST}.index"], ["--verify-index-only"]),
    # Several files at once: complaints come together at the end, in the tool's own order.
    "several-files": (
        "k39-codecs/logs",
        [f"t-none-0/{FIRST}.log", f"t-none-0/{FIRST}.index", f"t-none-0/{FIRST}.timeindex"],
        [],
    ),
    "several-partitions": (
        "k39-codecs/logs",
        [f"t-lz4-0/{FIRST}.log", f"t-gzip-0/{FIRST}.log"],
        ["--deep-iteration"],
    ),
    "several-old-indexes": (
        "k08-codecs/logs",
        [f"t-snappy-0/{FIRST}.index", f"t-gzip-0/{FIRST}.index", f"t-none-0/{FIRST}.index"],
        [],
    ),
    "same-file-twice": ("k39-codecs/logs", [f"t-none-0/{FIRST}.index", f"t-none-0/{FIRST}.index"], []),
    "not-a-log-file": ("k39-codecs/logs", ["t-none-0/leader-epoch-checkpoint"], []),
    "not-a-log-then-log": ("k39-edge/logs", ["meta.properties", f"e-one-0/{FIRST}.log"], []),
    "missing-file": ("k39-codecs/logs", [f"t-none-0/{1:020d}.log"], []),
    # Decoders. An internal topic's decoder on a log that is not one shows what it makes of foreign bytes.
    "offsets-decoder": ("k39-groups/logs", [f"__consumer_offsets-0/{FIRST}.log"], ["--offsets-decoder"]),
    "offsets-decoder-skip": (
        "k39-groups/logs",
        [f"__consumer_offsets-0/{FIRST}.log"],
        ["--offsets-decoder", "--skip-record-metadata"],
    ),
    "offsets-decoder-k4": ("k4-groups/logs", [f"__consumer_offsets-0/{FIRST}.log"], ["--offsets-decoder"]),
    "offsets-decoder-on-data": ("k39-edge/logs", [f"e-headers-0/{FIRST}.log"], ["--offsets-decoder"]),
    "offsets-decoder-on-nulls": ("k39-edge/logs", [f"e-nulls-0/{FIRST}.log"], ["--offsets-decoder"]),
    "transaction-log-decoder": (
        "k39-txn/logs",
        [f"__transaction_state-0/{FIRST}.log"],
        ["--transaction-log-decoder"],
    ),
    "transaction-log-decoder-k4": (
        "k4-txn/logs",
        [f"__transaction_state-0/{FIRST}.log", f"__transaction_state-1/{FIRST}.log"],
        ["--transaction-log-decoder"],
    ),
    "transaction-log-decoder-on-data": (
        "k39-edge/logs",
        [f"e-nulls-0/{FIRST}.log"],
        ["--transaction-log-decoder"],
    ),
    "cluster-metadata-decoder": (
        "k4-kraft/logs",
        [f"__cluster_metadata-0/{FIRST}.log"],
        ["--cluster-metadata-decoder"],
    ),
    "cluster-metadata-decoder-skip": (
        "k4-kraft/logs",
        [f"__cluster_metadata-0/{FIRST}.log"],
        ["--cluster-metadata-decoder", "--skip-record-metadata"],
    ),
    "cluster-metadata-decoder-on-data": (
        "k39-edge/logs",
        [f"e-headers-0/{FIRST}.log"],
        ["--cluster-metadata-decoder"],
    ),
    "bootstrap-checkpoint": ("k4-kraft/logs", ["bootstrap.checkpoint"], ["--cluster-metadata-decoder"]),
    "remote-log-metadata-decoder": (
        "k4-remote/logs",
        [f"__remote_log_metadata-0/{FIRST}.log"],
        ["--remote-log-metadata-decoder"],
    ),
    "remote-log-metadata-decoder-on-data": (
        "k39-edge/logs",
        [f"e-headers-0/{FIRST}.log"],
        ["--remote-log-metadata-decoder"],
    ),
    "share-group-state-decoder": (
        "k4-groups/logs",
        [f"__share_group_state-0/{FIRST}.log"],
        ["--share-group-state-decoder"],
    ),
    "decoder-long": (
        "k39-codecs/logs",
        [f"t-none-0/{FIRST}.log"],
        ["--value-decoder-class", f"{DECODER}.LongDecoder", "--max-bytes", "3000"],
    ),
    "decoder-integer-key": (
        "k39-txn/logs",
        [f"t-txn2-0/{FIRST}.log"],
        ["--key-decoder-class", f"{DECODER}.IntegerDecoder", "--max-bytes", "1000"],
    ),
    "decoder-string": (
        "k39-edge/logs",
        [f"e-headers-0/{FIRST}.log"],
        ["--value-decoder-class", f"{DECODER}.StringDecoder"],
    ),
    "decoder-old-string": (
        "k39-edge/logs",
        [f"e-headers-0/{FIRST}.log"],
        ["--value-decoder-class", f"{OLD_DECODER}.StringDecoder"],
    ),
    "decoder-unknown": (
        "k39-edge/logs",
        [f"e-headers-0/{FIRST}.log"],
        ["--value-decoder-class", "no.such.Decoder"],
    ),
}


def make(output: Path) -> None:
    """Runs every case and replaces `output`."""
    peer = KafkaPeer()
    output.mkdir(parents=True, exist_ok=True)
    for old in output.iterdir():
        old.unlink()
    listed = []
    for log_dir in sorted({case[0] for case in CASES.values()}):
        with DumpServer(peer, cwd=corpora.FIXTURES / log_dir) as server:
            for name, (where, files, flags) in CASES.items():
                if where != log_dir:
                    continue
                args = [*flags, "--files", ",".join(files)]
                result = server.run(args)
                (output / f"{name}.txt").write_bytes(result.stdout)
                pack(output / f"{name}.txt")
                listed.append(
                    {
                        "name": name,
                        "log_dir": log_dir,
                        "args": args,
                        "status": result.status,
                        "thrown": result.thrown.replace(f"{corpora.FIXTURES / log_dir}/", "") or None,
                        "stdout": f"{name}.txt",
                    }
                )
    text = json.dumps(sorted(listed, key=lambda case: str(case["name"])), indent=1, ensure_ascii=False)
    (output / "cases.json").write_text(text + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make fixtures/dump-flags with a real Kafka 3.9.1.")
    parser.add_argument("--output", type=Path, default=corpora.FIXTURES / "dump-flags")
    make(parser.parse_args().output)


if __name__ == "__main__":
    main()
