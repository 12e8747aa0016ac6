"""A read-only broker in this process, on any paths."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from klog.server.read_only.opening import opened_backup
from klog.server.startup.broker import Broker
from klog.server.startup.config_reading import read_config

TIMEOUT_S = 60
LISTENER = ("listeners=PLAINTEXT://127.0.0.1:0", "group.initial.rebalance.delay.ms=0")


@contextmanager
def served(*paths: Path | str, options: tuple[str, ...] = (), checked: bool = False) -> Iterator[str]:
    """The address of a broker that serves the paths. With `checked` the search for damage has ended."""
    with ExitStack() as closing:
        opened = closing.enter_context(opened_backup(list(map(str, paths)), None, (*LISTENER, *options)))
        broker = Broker(read_config(None, opened.options), is_read_only=True)
        closing.callback(broker.stop)
        if checked:
            opened.search.start()
            opened.search.join(TIMEOUT_S)
        endpoint = broker.registration().endpoints[0]
        yield f"{endpoint.host}:{endpoint.port}"


def state_of(*directories: Path) -> dict[str, tuple[Any, ...]]:
    """Size, times of content and of the inode, and bytes of everything below directories."""
    found: dict[str, tuple[Any, ...]] = {}
    for directory in directories:
        for place, names, files in os.walk(directory):
            for name in [*names, *files]:
                path = Path(place) / name
                about = path.stat()
                data = path.read_bytes() if path.is_file() else b""
                found[str(path)] = (about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_mode, data)
    return found
