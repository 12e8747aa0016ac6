"""Clients of Kafka 0.8 to 0.11, which do not know record batches or ask for no versions.

Maven downloads those in Java and Scala; `tests/peers/java/old` has programs for them. pip downloads
kafka-python 1.4 and the librdkafka 0.11 in confluent-kafka's wheel for Python 3.6, which works without that
Python. Downloads go into the cache directory, which later runs use.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.peers.kafka import JAVA_SOURCES, QUICK_FLAGS, compiled, java_environment
from tests.peers.maven import PeerUnavailableError, cache_directory, locked, require_program, resolve

JAVA_VERSIONS = ("0.8.2.2", "0.9.0.1", "0.10.0.1", "0.11.0.3")
SCALA_VERSIONS = ("0.8.2.2", "0.10.0.1")
KAFKA_PYTHON = "1.4.7"
LIBRDKAFKA = "0.11.6"
_PIP_TIMEOUT_S = 120
# The consumer in Scala logs every step.
_LOGGING = "-Dlog4j.rootLogger=OFF"


def java_client(program: str, version: str, *args: object) -> str:
    """What a program with this version of kafka-clients prints. Raises PeerUnavailableError."""
    return _run(program, _jars("kafka-clients", version), *args)


def scala_client(program: str, version: str, *args: object) -> str:
    """What a program with this version of Kafka for Scala 2.11 prints. Raises PeerUnavailableError."""
    return _run(program, _jars("kafka_2.11", version), *args)


def _jars(name: str, version: str) -> Path:
    target = f"old-{name}-{version}"
    return _cached(target, lambda jars: resolve(target, [("org.apache.kafka", name, version)], jars))


def _cached(name: str, download: Callable[[Path], None]) -> Path:
    """The directory that `download` has filled, now or before."""
    found = cache_directory() / name / "content"
    with locked(cache_directory() / f"{name}.lock"):
        if not found.is_dir():
            download(found)
    return found


def _run(program: str, jars: Path, *args: object) -> str:
    source = JAVA_SOURCES / "old" / f"{program}.java"
    programs = compiled(jars.parent, [source], str(jars / "*"))
    classpath = os.pathsep.join((str(programs), str(jars / "*")))
    command = [require_program("java"), *QUICK_FLAGS, _LOGGING, "-cp", classpath, program]
    return _output([*command, *map(str, args)], java_environment())


def _output(command: list[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, env=dict(environment), capture_output=True, check=False, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def kafka_python(code: str, *args: object) -> str:
    """What Python code with kafka-python 1.4 prints. Raises PeerUnavailableError."""
    packages = _cached(f"kafka-python-{KAFKA_PYTHON}", _download_kafka_python)
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    return _output([sys.executable, "-W", "ignore", "-c", code, *map(str, args)], environment)


def _download_kafka_python(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="pip-", dir=_parent(target)) as work:
        _pip("install", "--no-deps", "--target", f"{work}/found", f"kafka-python=={KAFKA_PYTHON}")
        (Path(work) / "found").rename(target)


def with_librdkafka(*args: object) -> str:
    """What `librdkafka_client` prints with librdkafka 0.11. Raises PeerUnavailableError."""
    wheel = _cached(f"librdkafka-{LIBRDKAFKA}", _download_librdkafka)
    library = wheel / "confluent_kafka/.libs/librdkafka.so.1"
    command = [sys.executable, str(Path(__file__).with_name("librdkafka_client.py")), str(library)]
    # The library's own dependencies are beside it.
    return _output([*command, *map(str, args)], {**os.environ, "LD_LIBRARY_PATH": str(library.parent)})


def _download_librdkafka(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="pip-", dir=_parent(target)) as work:
        wheel = ["--only-binary=:all:", "--platform", "manylinux1_x86_64", "--python-version", "3.6"]
        _pip("download", "--no-deps", *wheel, "--dest", work, f"confluent-kafka=={LIBRDKAFKA}")
        (found,) = Path(work).glob("*.whl")
        with zipfile.ZipFile(found) as archive:
            archive.extractall(f"{work}/found")
        (Path(work) / "found").rename(target)


def _parent(target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.parent


def _pip(*args: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *args]
    try:
        done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=_PIP_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise PeerUnavailableError(f"pip took {_PIP_TIMEOUT_S} s for {args[-1]}") from error
    if done.returncode != 0:
        raise PeerUnavailableError(f"pip cannot download {args[-1]}: {done.stderr.strip()[-300:]}")
