"""Downloads Kafka's jars with Maven into a cache directory, which later runs use without a download."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

RESOLVE_TIMEOUT_S = 600

# kafka_2.13 3.9 depends on a logging binding (slf4j-reload4j), the others on none. With two bindings, slf4j
# prints a warning to stderr.
_LOGGING_BINDING = {2: "slf4j-simple", 3: "slf4j-reload4j", 4: "slf4j-simple"}

# Of Kafka 2 we run the clients only.
_ARTIFACTS = {2: ("kafka-clients",), 3: ("kafka_2.13", "kafka-tools"), 4: ("kafka_2.13", "kafka-tools")}

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>klog</groupId>
  <artifactId>klog-peers</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}  </dependencies>
</project>
"""
_DEPENDENCY = """\
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}
    </dependency>
"""
_ALONE = """
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"""

Artifact = tuple[str, str, str]
"""Group, name and version."""


class PeerUnavailableError(Exception):
    """Real Kafka is not available: no Java, no Maven, or Maven reaches no repository. The text says which."""


def cache_directory() -> Path:
    """The directory that keeps jars and our compiled programs between runs. Raises PeerUnavailableError."""
    configured = os.environ.get("KLOG_PEER_CACHE")
    try:
        return Path(configured) if configured else Path.home() / ".cache" / "klog-peers"
    except RuntimeError as error:  # no HOME, and a user id that nobody has
        raise PeerUnavailableError(f"no place for its jars: {error} KLOG_PEER_CACHE names one") from error


def require_program(name: str, needed: str = "needed: a JDK 17 and Maven") -> str:
    """The path of a program on PATH. Raises PeerUnavailableError, whose text says what is needed."""
    found = shutil.which(name)
    if found is None:
        raise PeerUnavailableError(f"{name} is not installed ({needed})")
    return found


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lets one process at a time fill the cache, because parallel test workers all need it at their start.

    Raises PeerUnavailableError if the directory cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    except OSError as error:
        raise PeerUnavailableError(
            f"no place for its jars: {error}; KLOG_PEER_CACHE names another"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def kafka_jars(version: str) -> Path:
    """The directory with the jars of one Kafka version and its dependencies. Maven downloads them if needed.

    Raises PeerUnavailableError if Maven is missing or cannot download them.
    """
    cache = cache_directory()
    jars = cache / f"kafka-{version}" / "jars"
    with locked(cache / f"kafka-{version}.lock"):
        if not jars.is_dir():
            _resolve(version, jars)
    return jars


def _resolve(version: str, jars: Path) -> None:
    major = int(version.partition(".")[0])
    needed = [("org.apache.kafka", name, version) for name in _ARTIFACTS[major]]
    resolve(f"Kafka {version}", [*needed, ("org.slf4j", _LOGGING_BINDING[major], "1.7.36")], jars)


def jars_alone(name: str, needed: Sequence[Artifact]) -> list[Path]:
    """The jars of artifacts without their dependencies, from a cache directory of that name.

    Raises PeerUnavailableError if Maven is missing or cannot download them.
    """
    jars = cache_directory() / f"{name}-alone" / "jars"
    with locked(cache_directory() / f"{name}.lock"):
        if not jars.is_dir():
            resolve(name, needed, jars, alone=True)
    return sorted(jars.iterdir())


def resolve(what: str, needed: Sequence[Artifact], jars: Path, *, alone: bool = False) -> None:
    """Copies artifacts and, unless they are wanted alone, their dependencies into the new directory `jars`.

    Raises PeerUnavailableError if Maven is missing or cannot download them.
    """
    dependencies = "".join(_DEPENDENCY.format(*each, _ALONE if alone else "") for each in needed)
    maven = require_program("mvn")
    jars.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="resolve-", dir=jars.parent) as work:
        pom = Path(work) / "pom.xml"
        pom.write_text(_POM.format(dependencies=dependencies))
        command = [
            maven,
            "--batch-mode",
            "--quiet",
            "-U",
            "-Dstyle.color=never",
            "--file",
            str(pom),
            "dependency:copy-dependencies",
        ]
        command += [f"-DoutputDirectory={work}/jars", "-DincludeScope=runtime"]
        # A second attempt, because a repository may fail for a moment (5xx).
        if (failure := _run(command)) is not None and (failure := _run(command)) is not None:
            raise PeerUnavailableError(f"Maven cannot resolve {what}: {failure}")
        # The rename makes the directory complete from its first appearance.
        (Path(work) / "jars").rename(jars)


def _run(command: list[str]) -> str | None:
    """Runs Maven. Returns None if it succeeded, and the first line of its output if not."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=RESOLVE_TIMEOUT_S, check=False, text=True)
    except subprocess.TimeoutExpired:
        return f"no answer in {RESOLVE_TIMEOUT_S} s"
    said = (done.stdout + done.stderr).strip().splitlines()
    return None if done.returncode == 0 else (said[0] if said else f"status {done.returncode}")
