"""Limits of replication come from dynamic configs of the broker and from the topics' lists of replicas."""

from __future__ import annotations

import pytest

from klog.config.broker import BrokerConfig
from klog.server.configs.live_config import LiveConfig
from klog.server.fetching.replication_throttles import replication_quota

OWN = 7
LISTED = "follower.replication.throttled.replicas"


def live_config(**cluster: str) -> LiveConfig:
    given = {name.replace("_", "."): text for name, text in cluster.items()}
    return LiveConfig(BrokerConfig({"broker.id": str(OWN)}, cluster=given), {})


@pytest.mark.parametrize(
    ("text", "throttled"),
    [("", ()), ("*", (0, 1, 2)), ("0:7,2:7", (0, 2)), ("0:8,1:7", (1,)), ("0:8", ())],
)
def test_the_replicas_of_this_broker_are_throttled(text: str, throttled: tuple[int, ...]) -> None:
    live = live_config()
    quota = replication_quota("follower", live, OWN)
    live.set_topic("t", {LISTED: text} if text else {})
    assert tuple(number for number in range(3) if quota.is_throttled(("t", number))) == throttled
    assert not quota.is_throttled(("other", 0))
    assert not replication_quota("leader", live, OWN).is_throttled(("t", 0))
    live.set_topic("t", {LISTED: "1:7"})
    assert [quota.is_throttled(("t", number)) for number in range(3)] == [False, True, False]


def test_the_rate_is_that_of_the_broker_or_of_the_cluster() -> None:
    live = live_config()
    quota = replication_quota("follower", live, OWN)
    quota.record(1_000_000, 0)
    assert not quota.exceeded(0)
    live.set_broker(live_config(follower_replication_throttled_rate="1000").broker())
    assert quota.exceeded(0)
    # The windows that counted are over.
    assert not quota.exceeded(12_000)
