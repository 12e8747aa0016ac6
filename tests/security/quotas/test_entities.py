"""How entities of quotas are named in the metadata tree, and what their configs hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.errors import UsageError
from klog.security.quotas.entities import DEFAULT, Quota, QuotaEntity, entity_of_path, limits_in

names = st.text(min_size=1, max_size=12).filter(lambda text: text.isprintable())
parts = names | st.just(DEFAULT)


@pytest.mark.parametrize(
    ("path", "entity"),
    [
        ("users/alice", QuotaEntity("alice")),
        ("users/<default>", QuotaEntity(DEFAULT)),
        ("users/alice/clients/c%2F1", QuotaEntity("alice", "c/1")),
        ("users/<default>/clients/<default>", QuotaEntity(DEFAULT, DEFAULT)),
        ("users/CN%3Da%20%2A%7E", QuotaEntity("CN=a *~")),
        ("users/%3Cdefault%3E", QuotaEntity("<default>")),
        ("clients/c.1", QuotaEntity(client_id="c.1")),
        ("ips/127.0.0.1", QuotaEntity(ip="127.0.0.1")),
        ("ips/<default>", QuotaEntity(ip=DEFAULT)),
    ],
)
def test_paths_are_kafkas(path: str, entity: QuotaEntity) -> None:
    assert entity.path == path
    assert entity_of_path(path) == entity


@given(
    st.tuples(parts, st.none() | parts, st.none()).map(QuotaEntity._make)
    | st.tuples(st.none(), parts, st.none()).map(QuotaEntity._make)
    | st.tuples(st.none(), st.none(), parts).map(QuotaEntity._make)
)
def test_every_entity_is_found_again_by_its_path(entity: QuotaEntity) -> None:
    assert entity_of_path(entity.path) == entity


@pytest.mark.parametrize(
    "path", ["topics/t", "brokers/0", "users", "users/", "users/a/clients", "clients/a/b"]
)
def test_other_configs_hold_no_quotas(path: str) -> None:
    assert entity_of_path(path) is None


def test_limits_are_read_beside_other_configs_of_a_user() -> None:
    config = {"SCRAM-SHA-256": "salt=...", "producer_byte_rate": "1024", "request_percentage": "12.5"}
    assert limits_in(QuotaEntity("alice"), config) == {Quota.PRODUCE: 1024, Quota.REQUEST: 12.5}


def test_an_address_has_a_limit_for_connections_only() -> None:
    config = {"connection_creation_rate": "7", "producer_byte_rate": "1024"}
    assert limits_in(QuotaEntity(ip="10.0.0.1"), config) == {Quota.CONNECTION: 7}
    assert limits_in(QuotaEntity("alice"), {"connection_creation_rate": "7"}) == {}


@pytest.mark.parametrize("text", ["", "many", "1.5", "NaN", "1" + "0" * 400])
def test_a_limit_that_is_no_whole_number_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(UsageError, match="producer_byte_rate of clients/c"):
        limits_in(QuotaEntity(client_id="c"), {"producer_byte_rate": text})


def test_a_percentage_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(UsageError, match="request_percentage of users/u is 'NaN'"):
        limits_in(QuotaEntity("u"), {"request_percentage": "NaN"})
