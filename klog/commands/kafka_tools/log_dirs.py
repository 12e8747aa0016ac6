"""Prints log directories as `kafka-log-dirs --describe` of Kafka 3.9 does: two lines, and one of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from klog.client.log_dirs import LogDir
from klog.commands.kafka_tools.java_errors import java_class
from klog.protocol.error_codes import ErrorCode

_VERSION = 1


def querying() -> str:
    """The line before the brokers are asked."""
    return "Querying brokers for log directories information"


def described(brokers: Sequence[int], dirs: Sequence[LogDir]) -> Iterator[str]:
    """The lines after that."""
    yield f"Received log directory information from brokers {','.join(map(str, brokers))}"
    found = {
        "brokers": [
            {
                "broker": broker_id,
                "logDirs": [_dir(each) for each in dirs if each.broker_id == broker_id],
            }
            for broker_id in brokers
        ],
        "version": _VERSION,
    }
    yield json.dumps(found, separators=(",", ":"), ensure_ascii=False)


def _dir(found: LogDir) -> dict[str, object]:
    return {
        "partitions": [
            {
                "partition": str(each.partition),
                "size": each.size_bytes,
                "offsetLag": each.offset_lag,
                "isFuture": each.is_future,
            }
            for each in found.replicas
        ],
        "error": None if found.error is ErrorCode.NONE else java_class(found.error),
        "logDir": found.path,
    }
