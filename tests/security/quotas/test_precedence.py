"""Which limit applies to a client, and who shares it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.security.quotas.entities import DEFAULT, QuotaEntity
from klog.security.quotas.precedence import Limits, QuotaKey

USER, CLIENT = "alice", "c1"

# In Kafka's order, with those who share the limit.
LEVELS = (
    (QuotaEntity(USER, CLIENT), QuotaKey(USER, CLIENT)),
    (QuotaEntity(USER, DEFAULT), QuotaKey(USER, CLIENT)),
    (QuotaEntity(USER), QuotaKey(USER, "")),
    (QuotaEntity(DEFAULT, CLIENT), QuotaKey(USER, CLIENT)),
    (QuotaEntity(DEFAULT, DEFAULT), QuotaKey(USER, CLIENT)),
    (QuotaEntity(DEFAULT), QuotaKey(USER, "")),
    (QuotaEntity(client_id=CLIENT), QuotaKey("", CLIENT)),
    (QuotaEntity(client_id=DEFAULT), QuotaKey("", CLIENT)),
)
OTHERS = (QuotaEntity("bob"), QuotaEntity("bob", CLIENT), QuotaEntity(client_id="c2"))


@given(st.sets(st.integers(0, 7), min_size=1))
def test_the_first_level_that_has_a_limit_decides(levels: set[int]) -> None:
    limits = Limits({LEVELS[level][0]: level for level in levels} | dict.fromkeys(OTHERS, 99))
    key = limits.key(USER, CLIENT)
    assert (key, limits.limit(key)) == (LEVELS[min(levels)][1], min(levels))


def test_without_a_limit_at_any_level_a_client_has_none() -> None:
    limits = Limits(dict.fromkeys(OTHERS, 99))
    assert limits.limit(limits.key(USER, CLIENT)) is None


@pytest.mark.parametrize("entity", [QuotaEntity(client_id=DEFAULT), QuotaEntity(DEFAULT, DEFAULT)])
def test_a_client_without_an_id_has_no_quota_of_client_ids(entity: QuotaEntity) -> None:
    limits = Limits({entity: 1})
    assert limits.limit(limits.key(USER, "")) is None


def test_a_client_without_an_id_has_the_quota_of_its_user() -> None:
    limits = Limits({QuotaEntity(USER): 5, QuotaEntity(USER, DEFAULT): 1})
    assert limits.limit(limits.key(USER, "")) == 5


def test_a_changed_limit_leaves_the_others() -> None:
    limits = Limits({QuotaEntity(USER): 5}).changed(QuotaEntity("bob"), 6)
    assert limits.by_entity == {QuotaEntity(USER): 5, QuotaEntity("bob"): 6}
    assert limits.changed(QuotaEntity(USER), None).by_entity == {QuotaEntity("bob"): 6}
