"""Downloads real Kafka and makes what tests need of it: `python -m tests.peers`.

Otherwise the first test that needs them would have to wait, and its time is limited. If something is not
available, this program says so; the tests that need it are then skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tests.peers.broker import KRaftBroker, ZooKeeperBroker
from tests.peers.connect_streams import connect_streams_jars
from tests.peers.golang import go_program
from tests.peers.kafka import KAFKA_2, KAFKA_3, KAFKA_4, KafkaPeer
from tests.peers.maven import PeerUnavailableError
from tests.peers.metadata_shell import metadata_shell_jars
from tests.peers.old_servers import KAFKA_0_11, KAFKA_2_8, OldServer
from tests.peers.sharing import share_classes
from tests.peers.spark import VERSION as SPARK
from tests.peers.spark import spark_jars
from tests.peers.spark_kafka import spark_kafka_jars

PEERS: Final[Mapping[str, Callable[[], object]]] = {
    f"Kafka's clients {KAFKA_2}": lambda: KafkaPeer(KAFKA_2).classpath,
    f"Kafka {KAFKA_0_11}": lambda: OldServer(KAFKA_0_11).classpath,
    f"Kafka {KAFKA_2_8}": lambda: OldServer(KAFKA_2_8).classpath,
    f"Kafka {KAFKA_3}": lambda: KafkaPeer(KAFKA_3).classpath,
    f"Kafka {KAFKA_4}": lambda: KafkaPeer(KAFKA_4).classpath,
    "kafka-metadata-shell": metadata_shell_jars,
    f"Classes of brokers and tools {KAFKA_3}": partial(share_classes, ZooKeeperBroker, KAFKA_3),
    f"Classes of brokers and tools {KAFKA_4}": partial(share_classes, KRaftBroker, KAFKA_4),
    "Spark's Kafka source": spark_kafka_jars,
    f"Spark {SPARK}": spark_jars,
    "Kafka Connect and Streams": connect_streams_jars,
    "franz-go": lambda: go_program("group_members"),
}


def main() -> None:
    """Gets them one after the other."""
    for name, get in PEERS.items():
        try:
            get()
        except PeerUnavailableError as missing:
            sys.stderr.write(f"{name}: {missing}\n")
        else:
            sys.stdout.write(f"{name} is there\n")


if __name__ == "__main__":
    main()
