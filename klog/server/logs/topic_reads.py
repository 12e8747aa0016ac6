"""Reads topics from the metadata store while a controller's request waits for them.

The reads wait for the store, however long it is away. The controller would count a partition that gets no log
as one in a failed directory, and would not ask for it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

from klog.formats.errors import UsageError
from klog.metadata.configs import read_config, valid_configs
from klog.metadata.errors import ConnectionLossError, InvalidZnodeError
from klog.metadata.store import MetadataStore
from klog.metadata.topics import read_valid_topics

_log = logging.getLogger(__name__)

_Found = TypeVar("_Found")

KEEP_ALL_RECORDS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
"""The configs of a topic whose own are lost or invalid: with the broker's defaults, records could be deleted
that the topic's configs keep."""

SetTopic = Callable[[str, Mapping[str, str]], None]


def read_topic_config(store: MetadataStore, topic: str) -> dict[str, str]:
    """The overrides of one topic. Raises `InvalidZnodeError`, `SessionExpiredError`."""
    return _when_connected(store, lambda: read_config(store, f"topics/{topic}"))


def load_topic_configs(store: MetadataStore, set_topic: SetTopic) -> None:
    """Give `set_topic` the overrides of every topic, at the start.

    Topics whose overrides are invalid keep all records.
    """
    configs, invalid = valid_configs(store, "topics")
    for topic, error in invalid.items():
        _keep_all(set_topic, topic, error)
    for topic, overrides in configs.items():
        try:
            set_topic(topic, overrides)
        except UsageError as error:
            _keep_all(set_topic, topic, error)


def load_topic_config(store: MetadataStore, topic: str, set_topic: SetTopic) -> None:
    """Give `set_topic` the overrides of one topic. It keeps all records if they are invalid.

    Raises `SessionExpiredError`.
    """
    try:
        set_topic(topic, read_topic_config(store, topic))
    except (InvalidZnodeError, UsageError) as error:
        _keep_all(set_topic, topic, error)


def _keep_all(set_topic: SetTopic, topic: str, error: Exception) -> None:
    _log.error("topic %s keeps all its records, because its configs are invalid: %s", topic, error)
    set_topic(topic, KEEP_ALL_RECORDS)


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
