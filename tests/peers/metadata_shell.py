"""Kafka 4's own reader of metadata snapshots, `kafka-metadata-shell`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.peers.kafka import KAFKA_4, QUICK_FLAGS, KafkaPeer, java_environment
from tests.peers.maven import jars_alone, require_program

# Beside its own jar the shell needs only jline, which nothing else of Kafka does.
_ARTIFACTS = (("org.apache.kafka", "kafka-shell", KAFKA_4), ("org.jline", "jline", "3.30.4"))


def metadata_shell_jars() -> list[Path]:
    """The jars that it needs beside those of Kafka. Raises PeerUnavailableError."""
    return jars_alone(f"kafka-shell-{KAFKA_4}", _ARTIFACTS)


def metadata_shell(snapshot: Path, *command: str) -> str:
    """What a command of the shell prints for a snapshot. Raises PeerUnavailableError."""
    classpath = os.pathsep.join((*map(str, metadata_shell_jars()), KafkaPeer(KAFKA_4).classpath))
    shell = [require_program("java"), *QUICK_FLAGS, "-cp", classpath, "org.apache.kafka.shell.MetadataShell"]
    done = subprocess.run(
        [*shell, "--snapshot", str(snapshot), *command],
        env=java_environment(),
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
