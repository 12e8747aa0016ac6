"""What a broker reads of topics in the metadata store while a controller's request waits for it.

The reads wait for the store, however long it is away. The controller would count a partition that gets no log
as one in a failed directory, and would not ask for it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from klog.metadata.configs import read_config
from klog.metadata.errors import ConnectionLossError
from klog.metadata.store import MetadataStore
from klog.metadata.topics import read_valid_topics

_Found = TypeVar("_Found")


def read_topic_config(store: MetadataStore, topic: str) -> dict[str, str]:
    """The overrides of one topic. Raises `InvalidZnodeError`, `SessionExpiredError`."""
    return _when_connected(store, lambda: read_config(store, f"topics/{topic}"))


def read_topic_ids(store: MetadataStore, topics: Collection[str]) -> Mapping[str, str | None]:
    """The ids of those topics that exist and have a valid znode. Raises `SessionExpiredError`."""
    found = _when_connected(store, lambda: read_valid_topics(store, list(topics)))
    return {name: topic.topic_id for name, topic in found.items()}


def _when_connected(store: MetadataStore, read: Callable[[], _Found]) -> _Found:
    while True:
        try:
            return read()
        except ConnectionLossError:
            store.wait_connected()
