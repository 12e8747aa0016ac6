"""The process that `klog.testing` starts: a broker that tells on stdout where it is, and outlives nobody.

Its arguments are its work directory and configs as `key=value`. When it serves, it writes one JSON object on
stdout. Its standard input is held open by whoever started it: when that ends, of whatever, the broker stops
and removes the work directory.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from typing import Final

from klog.formats.errors import KlogError
from klog.server.broker import Broker
from klog.server.run import Launch, run

_POLL_S: Final = 0.002
_STDIN: Final = 0


def main() -> None:
    """Run the broker of this process."""
    work, *options = sys.argv[1:]
    orphaned = threading.Event()
    try:
        # Until the broker listens to signals itself, one must not end Python before the directory is removed.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        threading.Thread(target=_follow_parent, args=(orphaned,), daemon=True).start()
        run(Launch(options=options), on_serving=_tell_where)
    except KlogError as error:
        print(f"klog: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
    finally:
        if orphaned.is_set():
            shutil.rmtree(work, ignore_errors=True)


def _follow_parent(orphaned: threading.Event) -> None:
    while os.read(_STDIN, 1024):
        pass
    orphaned.set()
    os.kill(os.getpid(), signal.SIGTERM)


def _tell_where(broker: Broker) -> None:
    # Until its controller has told it of itself, a broker answers Metadata without any broker.
    while broker.cache.snapshot.controller_id is None:
        time.sleep(_POLL_S)
    endpoints = {each.listener: f"{each.host}:{each.port}" for each in broker.registration().endpoints}
    ports = {name: broker.network.port(name) for name in endpoints}
    where = {"endpoints": endpoints, "ports": ports, "log_dirs": list(broker.logs.online)}
    print(json.dumps(where), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
