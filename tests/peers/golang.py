"""Builds our Go programs, which use Go clients of Kafka, in a cache directory that later runs use.

Go downloads the clients through its module proxy. `go.sum` beside each program holds their checksums.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from tests.peers.maven import PeerUnavailableError, cache_directory, locked, require_program

GO_SOURCES = Path(__file__).parent / "go"
_BUILD_TIMEOUT_S = 280


def go_program(name: str) -> Path:
    """The compiled program of `tests/peers/go/NAME`. It is built again if a source has changed.

    Raises PeerUnavailableError if Go is missing, is too old, or reaches no module proxy.
    """
    go = require_program("go", "needed: Go 1.21 or later")
    source = GO_SOURCES / name
    program = cache_directory() / f"go-{name}-{_digest(source)}" / name
    with locked(cache_directory() / f"go-{name}.lock"):
        if not program.is_file():
            _build(go, source, program)
    return program


def _build(go: str, source: Path, program: Path) -> None:
    """Builds beside the program's place. The rename makes it complete from its first appearance."""
    program.parent.mkdir(parents=True, exist_ok=True)
    built = program.with_suffix(".new")
    # The toolchain that is installed has to do, and the sources stay as they are.
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    command = [go, "build", "-buildvcs=false", "-o", str(built), "."]
    try:
        done = subprocess.run(
            command,
            cwd=source,
            env=environment,
            capture_output=True,
            check=False,
            text=True,
            timeout=_BUILD_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise PeerUnavailableError(f"go build of {source} took {_BUILD_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise PeerUnavailableError(f"go build of {source}: {done.stderr.strip()[-500:]}")
    built.rename(program)


def _digest(source: Path) -> str:
    files = sorted(path for path in source.iterdir() if path.is_file())
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]
