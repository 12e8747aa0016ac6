"""The clients of a run: each thread has one of its own, which knows the leaders of all topics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from klog.client.cluster import Cluster
from klog.client.retry import Retry

OpenCluster = Callable[[], AbstractContextManager[Cluster]]
"""Connects to the cluster. Raises `KlogError`."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client of one thread. `retry` counts failures in a row of whatever it reads, so that a broker that is
    gone is not waited for once for each of its partitions. `ahead` fetches while the thread works.
    """

    cluster: Cluster
    retry: Retry
    ahead: ThreadPoolExecutor


class Clients:
    """Opens a client for each thread that asks for one; `close` closes them all."""

    def __init__(self, open_cluster: OpenCluster) -> None:
        self._open = open_cluster
        self._own = threading.local()
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self.topics: Collection[str] = ()

    def get(self) -> Client:
        """The client of this thread. Raises `KlogError`."""
        found: Client | None = getattr(self._own, "client", None)
        if found is None:
            opened = ExitStack()
            with self._lock:
                self._stack.enter_context(opened)
            cluster = opened.enter_context(self._open())
            ahead = opened.enter_context(ThreadPoolExecutor(1, thread_name_prefix="klog-fetch"))
            if self.topics:
                cluster.refresh_existing(self.topics)
            found = self._own.client = Client(cluster, cluster.new_retry(), ahead)
        return found

    def close(self) -> None:
        """Close all clients. No thread uses one any more."""
        self._stack.close()
