"""Spark with its own Kafka source, of one version. Maven downloads it once.

PySpark's newest version is often newer than the newest Kafka source of Maven Central, and streams need the
same version of both. So streams run in this Spark, as Java programs of ours.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.peers.kafka import JAVA_SOURCES, compiled
from tests.peers.maven import cache_directory, locked, require_program, resolve

VERSION = "4.1.1"
_NEEDED = [
    ("org.apache.spark", "spark-sql_2.13", VERSION),
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
]

# What Spark reaches by reflection in a JDK 17.
_OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
_SETTINGS = {
    "spark.master": "local[2,2]",
    "spark.app.name": "klog-tests",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "WARN",
    "spark.ui.enabled": "false",
}


def spark_jars() -> Path:
    """The directory of jars.

    Raises PeerUnavailableError if Maven is missing or cannot download them.
    """
    jars = cache_directory() / f"spark-{VERSION}" / "jars"
    with locked(cache_directory() / f"spark-{VERSION}.lock"):
        if not jars.is_dir():
            resolve(f"Spark {VERSION}", _NEEDED, jars)
    return jars


def spark_command(program: str, work: Path, *args: object) -> list[str]:
    """The command line of our program `tests/peers/java/spark/PROGRAM.java`, which logs to stderr.

    Spark's own files are below `work`. Raises PeerUnavailableError.
    """
    classpath = f"{spark_jars()}/*"
    source = JAVA_SOURCES / "spark" / f"{program}.java"
    programs = compiled(cache_directory() / f"spark-{VERSION}", [source], classpath)
    settings = {
        **_SETTINGS,
        "spark.local.dir": work / "local",
        "spark.sql.warehouse.dir": work / "warehouse",
    }
    return [
        require_program("java"),
        "-Xmx512M",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        *(f"-D{name}={settings[name]}" for name in settings),
        "-cp",
        os.pathsep.join((str(programs), classpath)),
        program,
        *map(str, args),
    ]
