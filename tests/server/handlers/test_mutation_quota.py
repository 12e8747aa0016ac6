"""Partitions that are created and deleted are charged to the quota of controller mutations (KIP-599)."""

from __future__ import annotations

import pytest

from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.security.quotas.client_quotas import ClientQuotas
from klog.security.quotas.entities import Quota, QuotaEntity
from tests.server.handlers.admin_parts import AdminCluster
from tests.server.handlers.parts import part_of

EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
RATE = 1  # partitions a second, so eleven at once


@pytest.fixture
def limited(cluster: AdminCluster) -> AdminCluster:
    quotas = ClientQuotas()
    quotas.set_limits(QuotaEntity("u"), {Quota.MUTATION: RATE})
    cluster.limits = quotas.of("u", "c", cluster.clock())
    return cluster


def create(cluster: AdminCluster, version: int, *topics: tuple[str, int], only_check=False, timeout=1000):
    """The errors by topic, and the throttle time in ms."""
    wanted = tuple(
        part_of(
            ApiKey.CREATE_TOPICS,
            version,
            "CreatableTopic",
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=(),
            configs=(),
        )
        for name, partitions in topics
    )
    answer = cluster.ask(
        ApiKey.CREATE_TOPICS, version, topics=wanted, timeout=timeout, validate_only=only_check
    )
    return [each.error_code for each in answer.topics], _milliseconds(answer)


def grow(cluster: AdminCluster, version: int, topic: str, count: int):
    wanted = part_of(
        ApiKey.CREATE_PARTITIONS, version, "CreatePartitionsTopic", name=topic, count=count, assignments=None
    )
    answer = cluster.ask(
        ApiKey.CREATE_PARTITIONS, version, topics=(wanted,), timeout=1000, validate_only=False
    )
    return [each.error_code for each in answer.results], _milliseconds(answer)


def delete(cluster: AdminCluster, version: int, *topics: str):
    answer = cluster.ask(ApiKey.DELETE_TOPICS, version, topic_names=topics, timeout=1000)
    return [each.error_code for each in answer.responses], _milliseconds(answer)


def _milliseconds(answer) -> int:
    return round(answer.throttle_time.total_seconds() * 1000)


def test_a_topic_is_created_whole_while_there_is_no_debt(limited: AdminCluster) -> None:
    assert create(limited, 7, ("a", 15)) == ([ErrorCode.NONE], 0)
    errors, throttle_ms = create(limited, 7, ("b", 1))
    assert errors == [EXCEEDED]
    assert 0 < throttle_ms <= 4000
    assert "b" not in limited.cache.snapshot.topics
    limited.clock.now_ms += 4000
    assert create(limited, 7, ("b", 1)) == ([ErrorCode.NONE], 0)


def test_each_topic_of_a_request_is_decided_by_itself(limited: AdminCluster) -> None:
    errors, throttle_ms = create(limited, 7, ("a", 12), ("b", 1), ("c", 1))
    assert errors == [ErrorCode.NONE, EXCEEDED, EXCEEDED]
    assert 0 < throttle_ms <= 1000


@pytest.mark.parametrize("version", [4, 5])
def test_clients_that_do_not_know_the_error_are_served_and_throttled(
    limited: AdminCluster, version: int
) -> None:
    errors, throttle_ms = create(limited, version, ("a", 15))
    assert errors == [ErrorCode.NONE]
    assert 0 < throttle_ms <= 4000
    assert create(limited, version, ("b", 1))[0] == [ErrorCode.NONE]


def test_what_is_only_checked_or_refused_is_free(limited: AdminCluster) -> None:
    assert create(limited, 7, ("a", 50), only_check=True) == ([ErrorCode.NONE], 0)
    assert create(limited, 7, ("not legal!", 50)) == ([ErrorCode.INVALID_TOPIC_EXCEPTION], 0)
    assert create(limited, 7, ("a", 11)) == ([ErrorCode.NONE], 0)
    assert create(limited, 7, ("b", 1)) == ([ErrorCode.NONE], 0)


@pytest.mark.parametrize(("version", "errors"), [(2, ErrorCode.NONE), (3, EXCEEDED)])
def test_only_the_partitions_that_are_added_count(
    limited: AdminCluster, version: int, errors: ErrorCode
) -> None:
    create(limited, 7, ("a", 9))
    assert grow(limited, version, "a", 11) == ([ErrorCode.NONE], 0)
    assert grow(limited, version, "a", 12)[0] == [ErrorCode.NONE]
    assert grow(limited, version, "a", 13)[0] == [errors]


@pytest.mark.parametrize(("version", "errors"), [(4, ErrorCode.NONE), (5, EXCEEDED)])
def test_all_partitions_of_a_deleted_topic_count(
    limited: AdminCluster, version: int, errors: ErrorCode
) -> None:
    limits, limited.limits = limited.limits, None
    create(limited, 7, ("a", 12), ("b", 1))
    limited.limits = limits
    assert delete(limited, version, "a")[0] == [ErrorCode.NONE]
    assert delete(limited, version, "b")[0] == [errors]
    assert ("b" in limited.cache.snapshot.topics) == (errors is EXCEEDED)


def test_topics_that_are_created_by_themselves_are_charged_but_not_throttled(limited: AdminCluster) -> None:
    for number in range(12):
        answer = limited.ask(
            ApiKey.METADATA,
            9,
            topics=(part_of(ApiKey.METADATA, 9, "MetadataRequestTopic", name=f"auto{number}"),),
            allow_auto_topic_creation=True,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        assert _milliseconds(answer) == 0
    assert create(limited, 7, ("b", 1))[0] == [EXCEEDED]
