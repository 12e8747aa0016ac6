"""The limits of replication between brokers, from the configs of the broker and of topics.

Rules: KIP-73 and Kafka's `ReplicationQuotaManager`. The rates are dynamic configs of brokers, the lists of
replicas configs of topics: `partition:broker` members, or `*` for all replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

from klog.config.dynamic import throttle
from klog.replication.quota import ReplicationQuota
from klog.server.configs.live_config import LiveConfig

_ALL: Final = "*"

Side = Literal["leader", "follower"]


class ThrottledReplicas:
    """Which partitions a topic config lists for a broker. A list is read again when it has changed."""

    def __init__(self, name: str, broker_id: int, overrides: Callable[[str], Mapping[str, str]]) -> None:
        self._name = name
        self._broker_id = broker_id
        self._overrides = overrides
        self._read: dict[str, tuple[str, frozenset[int] | None]] = {}

    def __call__(self, key: tuple[str, int]) -> bool:
        topic, partition = key
        text = self._overrides(topic).get(self._name, "")
        if not text:
            self._read.pop(topic, None)
            return False
        known = self._read.get(topic)
        if known is None or known[0] != text:
            known = self._read[topic] = text, self._partitions(text)
        return known[1] is None or partition in known[1]

    def _partitions(self, text: str) -> frozenset[int] | None:
        """The partitions listed for this broker; None if all are."""
        if text.strip() == _ALL:
            return None
        members = [member.strip().split(":") for member in text.split(",") if member.strip()]
        return frozenset(int(number) for number, broker_id in members if int(broker_id) == self._broker_id)


def replication_quota(side: Side, live: LiveConfig, broker_id: int) -> ReplicationQuota:
    """The limit for what this broker sends as a leader, or fetches as a follower."""
    config = live.broker()
    return ReplicationQuota(
        lambda: throttle(live.broker(), f"{side}.replication.throttled.rate"),
        ThrottledReplicas(f"{side}.replication.throttled.replicas", broker_id, live.overrides),
        windows=config.number("replication.quota.window.num"),
        window_ms=1000 * config.number("replication.quota.window.size.seconds"),
    )
