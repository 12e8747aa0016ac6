"""Runs ZooKeeper from the jars that come with PySpark.

Rules: the ZooKeeper Administrator's Guide, "Configuration Parameters". One server is not an ensemble: while
it is down, the cluster serves its clients but elects no leaders.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from klog.formats.errors import KlogError, StorageError

# What a server needs of PySpark's jars. With all of them the JVM would start half a second later.
_JARS: Final = re.compile(
    r"(zookeeper|slf4j-api|log4j-(api|core|slf4j2-impl)|metrics-core|netty-|commons-(cli|io|lang)|snappy-java"
    r"|audience-annotations)[\w.-]*\.jar"
)
_VERSION: Final = re.compile(r"zookeeper-(\d[\w.-]*)\.jar")
_JVM_FLAGS: Final = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_CONFIG_FILE: Final = "zoo.cfg"
_LOGGING_FILE: Final = "log4j2.properties"
_LOGGING: Final = """\
status = error
appender.console.type = Console
appender.console.name = stderr
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %p %m (%c{1})%n
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
logger.config.name = org.apache.zookeeper.server.quorum.QuorumPeerConfig
logger.config.level = error
# Brokers that connect while the server starts would each get a stack trace.
logger.connections.name = org.apache.zookeeper.server.NIOServerCnxn
logger.connections.level = error
logger.main.name = org.apache.zookeeper.server.quorum.QuorumPeerMain
logger.main.level = error
"""


@dataclass(frozen=True, slots=True)
class ZooKeeperLaunch:
    """A ZooKeeper server. `host` is the address that it binds.

    `tick_ms` is ZooKeeper's `tickTime`: the shortest session lasts 2 ticks and the longest 20. `is_synced`
    says whether each write waits for the disk; otherwise the last ones are lost if the machine fails.
    """

    data_dir: str
    port: int
    host: str = "127.0.0.1"
    tick_ms: int = 2000
    is_synced: bool = True


@dataclass(frozen=True, slots=True)
class ZooKeeperJars:
    """The jars of a ZooKeeper server, and its version."""

    paths: tuple[str, ...]
    version: str


def find_jars() -> ZooKeeperJars:
    """The jars of ZooKeeper that PySpark brought. Raises `KlogError` if PySpark is not installed."""
    spec = importlib.util.find_spec("pyspark")
    directory = Path(spec.origin).parent / "jars" if spec is not None and spec.origin else None
    names = sorted(os.listdir(directory)) if directory is not None and directory.is_dir() else []
    version = next((found[1] for name in names if (found := _VERSION.fullmatch(name))), None)
    if directory is None or version is None:
        raise KlogError(
            "there are no ZooKeeper jars: PySpark, which brings them, is not installed",
            cure="pip install pyspark, or run a ZooKeeper of your own",
        )
    return ZooKeeperJars(tuple(str(directory / name) for name in names if _JARS.fullmatch(name)), version)


def find_java() -> str:
    """The path of the `java` command: of `JAVA_HOME`, or else on the path. Raises `KlogError`."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    if found is None:
        place = f"in JAVA_HOME ({home})" if home else "on the path"
        raise KlogError(f"there is no java {place}", cure="install Java 17 or later, or set JAVA_HOME")
    return found


def prepare(launch: ZooKeeperLaunch, jars: ZooKeeperJars, java: str) -> list[str]:
    """Write the configuration files into the data directory; returns the command that runs the server.

    Raises `KlogError` if the address cannot be bound or the directory cannot be written.
    """
    _check_address(launch.host, launch.port)
    data = Path(launch.data_dir).absolute()
    try:
        data.mkdir(parents=True, exist_ok=True)
        (data / _CONFIG_FILE).write_text(_config(launch, data), "utf-8")
        (data / _LOGGING_FILE).write_text(_LOGGING, "utf-8")
    except OSError as error:
        raise StorageError(
            error.strerror or str(error), file=str(data), cure="use another --data-dir"
        ) from error
    return [
        java,
        *_JVM_FLAGS,
        f"-Dlog4j2.configurationFile={data / _LOGGING_FILE}",
        f"-Dzookeeper.forceSync={'yes' if launch.is_synced else 'no'}",
        "-cp",
        os.pathsep.join(jars.paths),
        _MAIN,
        str(data / _CONFIG_FILE),
    ]


def run(command: list[str]) -> NoReturn:
    """Replace this process by the server. Raises `KlogError` if it cannot be run."""
    try:
        os.execv(command[0], command)  # noqa: S606 (no shell)
    except OSError as error:
        raise KlogError(f"{command[0]} cannot be run: {error.strerror}") from error


def _config(launch: ZooKeeperLaunch, data: Path) -> str:
    return "".join(
        f"{name}={value}\n"
        for name, value in {
            # Properties treat backslashes as escapes.
            "dataDir": str(data).replace("\\", "\\\\"),
            "clientPort": launch.port,
            "clientPortAddress": launch.host,
            "tickTime": launch.tick_ms,
            "maxCnxns": 100_000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,mntr,ruok",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 24,
        }.items()
    )


def _check_address(host: str, port: int) -> None:
    try:
        with socket.create_server((host, port)):
            pass
    except OSError as error:
        raise KlogError(
            f"{host}:{port} cannot be bound: {os.strerror(error.errno or 0)}",
            cure="give another --port or --host",
        ) from error
