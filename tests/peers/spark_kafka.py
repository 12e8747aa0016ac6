"""Downloads Spark's own Kafka source with Maven, once. klog's data source is compared with it.

4.0.0 is the newest version that Maven Central has completely. It runs in every Spark 4.
"""

from __future__ import annotations

from pathlib import Path

from tests.peers.maven import jars_alone

VERSION = "4.0.0"
_SCALA = "2.13"

# The jars that Spark itself does not have. They are listed one by one without their dependencies, because
# Spark's own pom asks a repository that answers only inside some clouds.
_NEEDED = (
    ("org.apache.spark", f"spark-sql-kafka-0-10_{_SCALA}", VERSION),
    ("org.apache.spark", f"spark-token-provider-kafka-0-10_{_SCALA}", VERSION),
    ("org.apache.kafka", "kafka-clients", "3.9.0"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)


def spark_kafka_jars() -> list[Path]:
    """The jars that add `format("kafka")` to Spark.

    Raises PeerUnavailableError if Maven is missing or cannot download them.
    """
    return jars_alone(f"spark-kafka-{VERSION}", _NEEDED)
