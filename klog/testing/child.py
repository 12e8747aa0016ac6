"""Runs the broker process of `klog.testing`, which ends when the process that started it ends.

Its arguments are its work directory, the number of brokers that it must know before it says that it serves,
and configs as `key=value`. When the broker serves, it writes its addresses as one JSON object to stdout. The
parent process holds the other end of its standard input. When the parent ends, for whatever reason, the input
ends, and the broker stops and removes the work directory.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from functools import partial
from typing import Final

from klog.formats.errors import KlogError
from klog.server.run import Launch, run
from klog.server.startup.broker import Broker

_POLL_S: Final = 0.002
_AGAIN_S: Final = 0.2
_STDIN: Final = 0


def main() -> None:
    """Run the broker until it is stopped."""
    work, known, *options = sys.argv[1:]
    orphaned = threading.Event()
    try:
        # A signal that comes before the broker handles signals must not skip the removal of the directory.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        threading.Thread(target=_stop_with_parent, args=(orphaned,), daemon=True).start()
        run(Launch(options=options), on_serving=partial(_print_addresses, int(known)))
    except KlogError as error:
        print(f"klog: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
    finally:
        if orphaned.is_set():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            shutil.rmtree(work, ignore_errors=True)


def _stop_with_parent(orphaned: threading.Event) -> None:
    while os.read(_STDIN, 1024):
        pass
    orphaned.set()
    os.kill(os.getpid(), signal.SIGTERM)
    # The others of its cluster end, too, so it must not wait for them.
    time.sleep(_AGAIN_S)
    os.kill(os.getpid(), signal.SIGTERM)


def _print_addresses(known: int, broker: Broker) -> None:
    # Before its controller has sent it metadata, a broker answers Metadata requests without any broker.
    while broker.cache.snapshot.controller_id is None or len(broker.cache.snapshot.brokers) < known:
        time.sleep(_POLL_S)
    endpoints = {each.listener: f"{each.host}:{each.port}" for each in broker.registration().endpoints}
    ports = {name: broker.network.port(name) for name in endpoints}
    addresses = {"endpoints": endpoints, "ports": ports, "log_dirs": list(broker.logs.online)}
    print(json.dumps(addresses), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
