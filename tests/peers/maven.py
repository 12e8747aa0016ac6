"""Kafka's jars, resolved by Maven into a cache directory that later runs reuse without any download."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RESOLVE_TIMEOUT_S = 600

# kafka_2.13 3.9 brings a binding of its own (slf4j-reload4j); 4.x brings none. Two of them would complain on
# stderr.
_LOGGING_BINDING = {3: "slf4j-reload4j", 4: "slf4j-simple"}

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>klog</groupId>
  <artifactId>klog-peers</artifactId>
  <version>{version}</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>{binding}</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


class PeerUnavailableError(Exception):
    """Real Kafka cannot be had here: no Java, no Maven, or Maven reaches no repository. Says which."""


def cache_directory() -> Path:
    """Where jars and compiled helper programs are kept between runs. Raises PeerUnavailableError."""
    configured = os.environ.get("KLOG_PEER_CACHE")
    try:
        return Path(configured) if configured else Path.home() / ".cache" / "klog-peers"
    except RuntimeError as error:  # no HOME, and a user id that nobody has
        raise PeerUnavailableError(f"no place for its jars: {error} KLOG_PEER_CACHE names one") from error


def require_program(name: str) -> str:
    """The path of a program on PATH. Raises PeerUnavailableError."""
    found = shutil.which(name)
    if found is None:
        raise PeerUnavailableError(f"{name} is not installed (needed: a JDK 17 and Maven)")
    return found


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lets one process at a time fill the cache: parallel test workers all ask for it at their start.

    Raises PeerUnavailableError where nothing can be written there.
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
    """The directory with the jars of one Kafka version and all they need; resolved when it is not there yet.

    Raises PeerUnavailableError when Maven is missing or cannot resolve it.
    """
    cache = cache_directory()
    jars = cache / f"kafka-{version}" / "jars"
    with locked(cache / f"kafka-{version}.lock"):
        if not jars.is_dir():
            _resolve(version, jars)
    return jars


def _resolve(version: str, jars: Path) -> None:
    binding = _LOGGING_BINDING[int(version.partition(".")[0])]
    resolve_pom(f"Kafka {version}", _POM.format(version=version, binding=binding), jars)


def resolve_pom(what: str, pom_text: str, jars: Path) -> None:
    """Copy all that a project depends on into the new directory `jars`.

    Raises PeerUnavailableError when Maven is missing or cannot resolve it.
    """
    maven = require_program("mvn")
    jars.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="resolve-", dir=jars.parent) as work:
        pom = Path(work) / "pom.xml"
        pom.write_text(pom_text)
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
        # Once more after a failure: a registry that answers 5xx for a moment is no reason to fail a run.
        if (complaint := _run(command)) is not None and (complaint := _run(command)) is not None:
            raise PeerUnavailableError(f"Maven cannot resolve {what}: {complaint}")
        # The rename makes the directory appear whole or not at all.
        (Path(work) / "jars").rename(jars)


def _run(command: list[str]) -> str | None:
    """Runs Maven; returns None when it succeeded, and else what it said first."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=RESOLVE_TIMEOUT_S, check=False, text=True)
    except subprocess.TimeoutExpired:
        return f"no answer in {RESOLVE_TIMEOUT_S} s"
    said = (done.stdout + done.stderr).strip().splitlines()
    return None if done.returncode == 0 else (said[0] if said else f"status {done.returncode}")
