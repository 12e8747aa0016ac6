"""Runs the programs of one version of real Kafka, and our own Java programs that are compiled against it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.peers.maven import PeerUnavailableError, cache_directory, kafka_jars, locked, require_program

KAFKA_2 = "2.8.2"
KAFKA_3 = "3.9.1"
KAFKA_4 = "4.1.1"

JAVA_SOURCES = Path(__file__).parent / "java"

# Our own programs by Kafka's major version: most use classes of one version only.
_SOURCES_BY_MAJOR = {
    2: ("GroupMembers",),
    3: (
        "AssignReplicas",
        "AssignedConsumer",
        "CleanServer",
        "ClusterClients",
        "ConfigCheck",
        "ConfigList",
        "Consume",
        "DescribeDocumentation",
        "DumpServer",
        "GroupMembers",
        "Json",
        "LoadServer",
        "LogServer",
        "LogOracle",
        "PacedProducer",
        "PasswordEncoding",
        "ProduceRecords",
        "QuotaMeter",
        "RecoverSegment",
        "SecuredClient",
        "SetTime",
        "ToolServer",
        "Transactors",
        "WireOracle",
    ),
    4: (
        "Consume",
        "DescribeDocumentation",
        "DumpServer",
        "GroupMembers",
        "Json",
        "LogOracle",
        "MakeData",
        "ProduceRecords",
        "ToolServer",
        "Transactors",
        "WireOracle",
    ),
}

# What bin/kafka-run-class.sh passes to a tool when nothing is configured: heap, collector, management agent.
STOCK_TOOL_FLAGS = (
    "-Xmx256M",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
    "-Dcom.sun.management.jmxremote=true",
    "-Dcom.sun.management.jmxremote.authenticate=false",
    "-Dcom.sun.management.jmxremote.ssl=false",
)

# For programs that do little: a quick start, little heap.
QUICK_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256M")

# The encoding of standard streams. JDK 17 reads the sun.* properties, 19 and later the others.
UTF8_FLAGS = (
    "-Dfile.encoding=UTF-8",
    "-Dsun.jnu.encoding=UTF-8",
    "-Dsun.stdout.encoding=UTF-8",
    "-Dsun.stderr.encoding=UTF-8",
    "-Dstdout.encoding=UTF-8",
    "-Dstderr.encoding=UTF-8",
)

DUMP_TOOL = "kafka.tools.DumpLogSegments"


@dataclass(frozen=True)
class KafkaPeer:
    """Real Kafka of one version (`3.9.1`, `4.1.1`; of `2.8.2` the clients). Maven downloads it once."""

    version: str = KAFKA_3

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    @cached_property
    def jars(self) -> Path:
        """The directory of jars. Raises PeerUnavailableError."""
        require_program("java")
        return kafka_jars(self.version)

    @cached_property
    def classpath(self) -> str:
        """The class path of Kafka, its dependencies and our own programs. Raises PeerUnavailableError."""
        return os.pathsep.join((str(self.programs), str(self.jars / "*")))

    @cached_property
    def programs(self) -> Path:
        """The jar of our compiled programs. They are compiled again if a source has changed.

        It is no directory, because JVMs share only classes of jars. Raises PeerUnavailableError.
        """
        sources = [JAVA_SOURCES / f"{name}.java" for name in _SOURCES_BY_MAJOR[self.major]]
        resources = sorted(JAVA_SOURCES.glob("*.properties"))
        return compiled(cache_directory() / f"kafka-{self.version}", sources, str(self.jars / "*"), resources)

    @property
    def class_archive(self) -> Path:
        """Where the classes of a broker are, ready to be mapped, once `share_classes` has put them there.

        It belongs to one build of Java. Another one starts without it, and says so in its log.
        """
        return self.programs.with_suffix(".broker.jsa")

    @property
    def class_flags(self) -> tuple[str, ...]:
        """Flags that take two fifths of the CPU off the start of a broker. For tests, not for benchmarks."""
        return (f"-XX:SharedArchiveFile={self.class_archive}",) if self.class_archive.exists() else ()

    @property
    def tool_archive(self) -> Path:
        """The same for tools and clients."""
        return self.programs.with_suffix(".tools.jsa")

    @property
    def tool_class_flags(self) -> tuple[str, ...]:
        """Flags that take two fifths of the CPU off a short run of a tool or a client.

        Without the logging, another build of Java would complain of the archive in the tool's own output.
        """
        archive = self.tool_archive
        return (f"-XX:SharedArchiveFile={archive}", "-Xlog:disable") if archive.exists() else ()

    def command(self, main_class: str, *args: str, jvm_flags: Sequence[str] = STOCK_TOOL_FLAGS) -> list[str]:
        """The command line that runs a main class of Kafka or one of ours.

        With all `QUICK_FLAGS`, it shares the classes of tools.
        """
        java = require_program("java")
        classes = self.tool_class_flags if set(QUICK_FLAGS) <= set(jvm_flags) else ()
        return [java, *classes, *jvm_flags, *UTF8_FLAGS, "-cp", self.classpath, main_class, *args]

    def java(
        self,
        main_class: str,
        *args: str,
        cwd: Path | None = None,
        jvm_flags: Sequence[str] = QUICK_FLAGS,
        stdin: bytes = b"",
        timeout_s: float = 600,
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs a main class to its end. The caller checks the status and the output."""
        return subprocess.run(
            self.command(main_class, *args, jvm_flags=jvm_flags),
            cwd=cwd,
            env=java_environment(),
            input=stdin,
            capture_output=True,
            check=False,
            timeout=timeout_s,
        )

    def dump_log(self, files: Sequence[Path | str], *flags: str, cwd: Path | None = None) -> bytes:
        """What `kafka-dump-log --files ... flags` prints on stdout, in a new JVM."""
        joined = ",".join(map(str, files))
        return self.java(DUMP_TOOL, *flags, "--files", joined, cwd=cwd).stdout


def compiled(place: Path, sources: Sequence[Path], classpath: str, resources: Sequence[Path] = ()) -> Path:
    """A jar in the directory `place` with the classes of `sources`, compiled now or before.

    Java can also compile a program as it starts, but that takes most of a second each time. Raises
    PeerUnavailableError.
    """
    jar = place / f"programs-{_digest([*sources, *resources])}.jar"
    with locked(place.with_name(f"{place.name}.classes.lock")):
        if not jar.exists():
            place.mkdir(parents=True, exist_ok=True)
            _compile(sources, classpath, resources, jar)
    return jar


def _compile(sources: Sequence[Path], classpath: str, resources: Sequence[Path], jar: Path) -> None:
    javac = require_program("javac")
    with tempfile.TemporaryDirectory(prefix="compile-", dir=jar.parent) as work:
        target = Path(work) / "classes"
        command = [javac, "-cp", classpath, "-d", str(target), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, check=False, text=True)
        if done.returncode != 0:
            raise PeerUnavailableError(f"javac refused {sources}: {done.stderr}")
        made = Path(work) / jar.name
        with zipfile.ZipFile(made, "w") as archive:
            for path in (*sorted(target.rglob("*.class")), *resources):
                archive.write(path, path.relative_to(target if path.suffix == ".class" else path.parent))
        made.rename(jar)


def _digest(paths: Sequence[Path]) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def java_environment() -> dict[str, str]:
    """The environment of this process with a locale that makes Java encode file names in UTF-8."""
    return {**os.environ, "LC_ALL": "C.UTF-8"}
