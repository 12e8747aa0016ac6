"""Spark's own Kafka source, the peer of klog's: its jars, resolved by Maven once.

The source is published with every Spark; where the repository has none of the very version that is installed,
that of 4.0.0 is taken, whose code runs in every Spark 4.
"""

from __future__ import annotations

import time
from pathlib import Path

from tests.peers.maven import PeerUnavailableError, cache_directory, locked, resolve_pom

FALLBACK = "4.0.0"
SCALA = "2.13"
_DAY_S = 86_400
# The rest of what it needs is in Spark.
_WANTED = ("spark-sql-kafka-0-10_", "spark-token-provider-kafka-0-10_", "kafka-clients-", "commons-pool2-")

# Spark's own pom asks a mirror first that only answers inside some clouds; under its name, the usual one.
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>klog</groupId>
  <artifactId>klog-peers</artifactId>
  <version>{version}</version>
  <repositories>
    <repository>
      <id>gcs-maven-central-mirror</id><url>https://repo.maven.apache.org/maven2</url>
    </repository>
  </repositories>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId>
      <artifactId>spark-sql-kafka-0-10_{scala}</artifactId>
      <version>{version}</version>
      <exclusions>
        <exclusion><groupId>org.apache.hadoop</groupId><artifactId>*</artifactId></exclusion>
        <exclusion><groupId>org.scala-lang</groupId><artifactId>*</artifactId></exclusion>
        <exclusion><groupId>org.scala-lang.modules</groupId><artifactId>*</artifactId></exclusion>
      </exclusions>
    </dependency>
  </dependencies>
</project>
"""


def spark_kafka_jars(version: str) -> list[Path]:
    """The jars that make `format("kafka")` known to Spark of a version.

    Raises PeerUnavailableError when Maven is missing or can resolve neither it nor the fallback.
    """
    try:
        return _jars(version)
    except PeerUnavailableError:
        if version == FALLBACK:
            raise
        return _jars(FALLBACK)


def _jars(version: str) -> list[Path]:
    cache = cache_directory() / f"spark-kafka-{version}"
    jars, missing = cache / "jars", cache / "not-there"
    with locked(cache_directory() / f"spark-kafka-{version}.lock"):
        if not jars.is_dir():
            _resolve(version, jars, missing)
    return sorted(path for path in jars.iterdir() if path.name.startswith(_WANTED))


def _resolve(version: str, jars: Path, missing: Path) -> None:
    # That a version is not published (yet) is remembered for a day: to ask again takes ten seconds.
    if missing.exists() and time.time() - missing.stat().st_mtime < _DAY_S:
        raise PeerUnavailableError(missing.read_text())
    try:
        resolve_pom(f"Spark's Kafka source {version}", _POM.format(version=version, scala=SCALA), jars)
    except PeerUnavailableError as error:
        if "Could not find artifact" in str(error):
            missing.write_text(str(error))
        raise
