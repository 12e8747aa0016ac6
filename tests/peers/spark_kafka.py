"""Downloads Spark's own Kafka source with Maven, once. klog's data source is compared with it.

4.0.0 is the newest version that Maven Central has completely. It runs in every Spark 4.
"""

from __future__ import annotations

from pathlib import Path

from tests.peers.maven import cache_directory, locked, resolve_pom

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
    """The jars that add `format("kafka")` to Spark.

    Raises PeerUnavailableError if Maven is missing or cannot download them.
    """
    jars = cache_directory() / f"spark-kafka-{VERSION}-alone" / "jars"
    with locked(cache_directory() / f"spark-kafka-{VERSION}.lock"):
        if not jars.is_dir():
            dependencies = "".join(_DEPENDENCY.format(*each) for each in _NEEDED)
            pom = _POM.format(version=VERSION, dependencies=dependencies)
            resolve_pom(f"Spark's Kafka source {VERSION}", pom, jars)
    return sorted(jars.iterdir())
