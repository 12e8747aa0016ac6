"""The tools that `backup_comparison` sets beside klog, as far as registries of packages have them.

kafka-backup of OSO is an engine on crates.io (`kafka-backup-core`) with a command line that is not there; the
program in `rust/kafka_backup` calls the engine as that does. MirrorMaker 2 is on Maven Central. It keeps no
backup: it copies from one running cluster into another.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import BenchmarkError
from tests.peers.broker import JavaService, properties_text
from tests.peers.kafka import KAFKA_3, QUICK_FLAGS, KafkaPeer
from tests.peers.maven import PeerUnavailableError, cache_directory, jars_alone, locked, require_program

KAFKA_BACKUP: Final = "0.25.2"
"""The version of `kafka-backup-core` that `rust/kafka_backup/Cargo.toml` names."""

MISSING: Final = {
    "kafka-backup (Connect)": "itadventurer/kafka-backup is on GitHub only, in no registry of packages",
}
"""Tools that cannot be had, and why."""

_SOURCE: Final = Path(__file__).parent / "rust" / "kafka_backup"
_BUILD_TIMEOUT_S: Final = 1800
_RUN_TIMEOUT_S: Final = 300
_MIRROR: Final = (
    ("org.apache.kafka", "connect-mirror", KAFKA_3),
    ("org.apache.kafka", "connect-mirror-client", KAFKA_3),
)


def kafka_backup_program() -> Path:
    """The program that calls the engine, built once. Raises PeerUnavailableError without crates.io."""
    cargo = require_program("cargo", "needed: Rust")
    target = cache_directory() / f"kafka-backup-{_digest()}"
    program = target / "debug" / "kafka-backup-peer"
    with locked(cache_directory() / "kafka-backup.lock"):
        if not program.is_file():
            command = [cargo, "build", "--quiet", "--target-dir", str(target)]
            try:
                done = subprocess.run(
                    command,
                    cwd=_SOURCE,
                    capture_output=True,
                    check=False,
                    text=True,
                    timeout=_BUILD_TIMEOUT_S,
                )
            except subprocess.TimeoutExpired as error:
                raise PeerUnavailableError(f"cargo build took {_BUILD_TIMEOUT_S} s") from error
            if done.returncode:
                raise PeerUnavailableError(f"cargo build of {_SOURCE}: {done.stderr.strip()[-500:]}")
    return program


def _digest() -> str:
    names = ("Cargo.toml", "src/main.rs")
    return hashlib.sha256(b"\0".join((_SOURCE / each).read_bytes() for each in names)).hexdigest()[:16]


def kafka_backup(mode: str, bootstrap: str, topics: Sequence[str], place: Path) -> None:
    """Back up or restore topics with the options that keep most. Raises BenchmarkError."""
    cluster = {"bootstrap_servers": [bootstrap], "topics": {"include": list(topics)}}
    config: dict[str, Any] = {
        "mode": mode,
        "backup_id": "comparison",
        "storage": {"backend": "filesystem", "path": str(place)},
    }
    if mode == "backup":
        config["source"] = cluster
        config["backup"] = {"stop_at_current_offsets": True, "consumer_group_snapshot": True}
    else:
        config["target"] = cluster
        config["restore"] = {
            "create_topics": True,
            "auto_consumer_groups": True,
            "strip_offset_headers": True,
        }
    place.mkdir(parents=True, exist_ok=True)
    path = place.parent / f"{mode}.yaml"
    path.write_text(json.dumps(config))  # which is YAML, too
    done = subprocess.run(
        [str(kafka_backup_program()), mode, str(path)],
        cwd=place.parent,
        capture_output=True,
        check=False,
        text=True,
        timeout=_RUN_TIMEOUT_S,
    )
    if done.returncode:
        raise BenchmarkError(f"kafka-backup {mode}: {done.stderr.strip()[-1000:]}")


@contextmanager
def mirror_maker(work: Path, source: str, target: str, topics: Sequence[str], group: str) -> Iterator[None]:
    """MirrorMaker 2 that copies topics under their names, with what it can keep of groups, configs and ACLs.

    Raises PeerUnavailableError without Maven.
    """
    peer = KafkaPeer(KAFKA_3)
    config: dict[str, str | int] = {
        "clusters": "source,target",
        "source.bootstrap.servers": source,
        "target.bootstrap.servers": target,
        "source->target.enabled": "true",
        "target->source.enabled": "false",
        "source->target.topics": "|".join(topics),
        "source->target.groups": group,
        "source->target.sync.group.offsets.enabled": "true",
        "source->target.sync.group.offsets.interval.seconds": 1,
        "source->target.emit.checkpoints.interval.seconds": 1,
        "source->target.offset.lag.max": 0,
        "source.consumer.isolation.level": "read_committed",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "refresh.topics.interval.seconds": 2,
        "sync.topic.configs.interval.seconds": 2,
        "sync.topic.acls.interval.seconds": 2,
        "tasks.max": 1,
        "replication.factor": 1,
        **{
            f"{topic}.replication.factor": 1
            for topic in (
                "checkpoints.topic",
                "heartbeats.topic",
                "offset-syncs.topic",
                "config.storage",
                "offset.storage",
                "status.storage",
            )
        },
    }
    work.mkdir(parents=True, exist_ok=True)
    path = work / "mirror.properties"
    path.write_text(properties_text(config))
    classpath = os.pathsep.join((peer.classpath, *map(str, jars_alone(f"connect-mirror-{KAFKA_3}", _MIRROR))))
    flags = (*QUICK_FLAGS, "-Dlog4j.configuration=service-log4j.properties")
    command = [
        require_program("java"),
        *flags,
        "-cp",
        classpath,
        "org.apache.kafka.connect.mirror.MirrorMaker",
    ]
    service = JavaService([*command, str(path)], work / "mirror.log", "Kafka MirrorMaker started")
    try:
        yield
    finally:
        service.kill()
