"""Spark's own Kafka source, the peer of klog's: its jars, resolved by Maven once.

It is published with every Spark, but 4.0.0 is the newest that Maven's central repository has whole; its code
runs in every Spark 4.
"""

from __future__ import annotations

from pathlib import Path

from tests.peers.maven import cache_directory, locked, resolve_pom

VERSION = "4.0.0"
_SCALA = "2.13"

# What it needs and Spark has not, each by itself: following the poms would lead to Spark's, which asks a
# repository first that answers inside some clouds only.
_NEEDED = (
    ("org.apache.spark", f"spark-sql-kafka-0-10_{_SCALA}", VERSION),
    ("org.apache.spark", f"spark-token-provider-kafka-0-10_{_SCALA}", VERSION),
    ("org.apache.kafka", "kafka-clients", "3.9.0"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)
_DEPENDENCY = """\
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
"""
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>klog</groupId>
  <artifactId>klog-peers</artifactId>
  <version>{version}</version>
  <dependencies>
{dependencies}  </dependencies>
</project>
"""


def spark_kafka_jars() -> list[Path]:
    """The jars that make `format("kafka")` known to Spark.

    Raises PeerUnavailableError when Maven is missing or cannot resolve them.
    """
    jars = cache_directory() / f"spark-kafka-{VERSION}-alone" / "jars"
    with locked(cache_directory() / f"spark-kafka-{VERSION}.lock"):
        if not jars.is_dir():
            dependencies = "".join(_DEPENDENCY.format(*each) for each in _NEEDED)
            pom = _POM.format(version=VERSION, dependencies=dependencies)
            resolve_pom(f"Spark's Kafka source {VERSION}", pom, jars)
    return sorted(jars.iterdir())
