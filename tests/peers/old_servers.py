"""Brokers of Kafka 0.11 and 2.8, from which clusters are upgraded. They have the ZooKeeper of their time.

Maven downloads their jars into a cache directory, which later runs use without a download.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from tests.peers.kafka import JAVA_SOURCES, KafkaPeer
from tests.peers.maven import Artifact, cache_directory, locked, require_program, resolve

KAFKA_0_11: Final = "0.11.0.3"
KAFKA_2_8: Final = "2.8.2"
# Java 11 dropped javax.xml.bind, which Kafka 0.11 uses. 2.8 leaves the choice of a logging binding open.
_ARTIFACTS: Final[dict[str, tuple[Artifact, ...]]] = {
    KAFKA_0_11: (("org.apache.kafka", "kafka_2.11", KAFKA_0_11), ("javax.xml.bind", "jaxb-api", "2.3.1")),
    KAFKA_2_8: (("org.apache.kafka", "kafka_2.13", KAFKA_2_8), ("org.slf4j", "slf4j-log4j12", "1.7.30")),
}


@dataclass(frozen=True)
class OldServer(KafkaPeer):
    """Real Kafka of one version of `KAFKA_0_11` and `KAFKA_2_8`, without programs of ours."""

    @cached_property
    def jars(self) -> Path:
        """The directory of jars. Raises PeerUnavailableError."""
        require_program("java")
        jars = cache_directory() / f"server-{self.version}" / "jars"
        with locked(cache_directory() / f"server-{self.version}.lock"):
            if not jars.is_dir():
                resolve(f"Kafka {self.version}", _ARTIFACTS[self.version], jars)
        return jars

    @cached_property
    def classpath(self) -> str:
        """The class path of Kafka, with the properties of its logging. Raises PeerUnavailableError."""
        return os.pathsep.join((str(JAVA_SOURCES), str(self.jars / "*")))

    @property
    def class_flags(self) -> tuple[str, ...]:
        """None: its classes are not shared."""
        return ()

    @property
    def tool_class_flags(self) -> tuple[str, ...]:
        """None, either."""
        return ()
