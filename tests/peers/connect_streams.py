"""Kafka Connect and Kafka Streams of version 3.9. Maven downloads once what `KafkaPeer` does not have."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tests.peers.kafka import JAVA_SOURCES, KAFKA_3, QUICK_FLAGS, KafkaPeer, compiled
from tests.peers.maven import cache_directory, jars_alone, require_program

_NEEDED = (
    ("org.apache.kafka", "connect-file", KAFKA_3),
    ("org.apache.kafka", "kafka-streams", KAFKA_3),
    ("org.rocksdb", "rocksdbjni", "7.9.2"),  # Streams loads its classes for stores in memory, too.
)
_LOGGING = "-Dlog4j.configuration=service-log4j.properties"


def connect_streams_jars() -> list[Path]:
    """The jars that `KafkaPeer` of Kafka 3 does not have.

    Raises PeerUnavailableError if Maven is missing or cannot download them.
    """
    return jars_alone(f"connect-streams-{KAFKA_3}", _NEEDED)


def connect_command(main_class: str, *args: object) -> list[str]:
    """The command line of a program of Connect. It logs to stdout. Raises PeerUnavailableError."""
    return _command(main_class, args)


def streams_command(program: str, *args: object) -> list[str]:
    """The command line of our program `tests/peers/java/streams/PROGRAM.java`, which logs to stdout.

    Raises PeerUnavailableError.
    """
    source = JAVA_SOURCES / "streams" / f"{program}.java"
    programs = compiled(cache_directory() / f"streams-{KAFKA_3}", [source], os.pathsep.join(_jars()))
    return _command(program, args, str(programs))


def _command(main_class: str, args: Sequence[object], *programs: str) -> list[str]:
    classpath = os.pathsep.join((*_jars(), *programs))
    java = require_program("java")
    return [java, *QUICK_FLAGS, _LOGGING, "-cp", classpath, main_class, *map(str, args)]


def _jars() -> list[str]:
    return [KafkaPeer(KAFKA_3).classpath, *map(str, connect_streams_jars())]
