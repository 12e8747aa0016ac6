"""How many connections a second an address may open."""

from __future__ import annotations

import pytest

from klog.security.quotas import ip_limits
from klog.security.quotas.entities import DEFAULT, Part
from klog.security.quotas.ip_limits import IpLimits
from klog.security.quotas.usage import QuotaWindows

HOSTS = {"here": "10.0.0.1"}


def limits(by_ip: dict[Part, float]) -> IpLimits:
    found = IpLimits(QuotaWindows(), lambda name: HOSTS.get(name, name))
    for ip, limit in by_ip.items():
        found.set_limit(ip, limit)
    return found


def test_without_a_limit_an_address_may_connect_at_any_rate() -> None:
    found = limits({"10.0.0.2": 1})
    assert [found.charge("10.0.0.1", 0) for _ in range(100)] == [0] * 100


def test_a_connection_beyond_the_rate_is_held_and_does_not_count() -> None:
    found = limits({"10.0.0.1": 5})
    assert [found.charge("10.0.0.1", 0) for _ in range(50)] == [0] * 50
    # 51 in 10 s are 5.1 a second: 0.2 s more make it 5.
    assert [found.charge("10.0.0.1", 0) for _ in range(2)] == [200, 200]
    assert found.charge("10.0.0.1", 11_000) == 0


def test_a_connection_is_held_for_one_window_at_most() -> None:
    found = limits({"10.0.0.1": 1})
    for _ in range(10):
        found.charge("10.0.0.1", 0)
    assert found.charge("10.0.0.1", 0) == 1000
    assert limits({"10.0.0.1": 0}).charge("10.0.0.1", 0) == 1000


def test_the_default_is_for_each_address_by_itself() -> None:
    found = limits({DEFAULT: 1, "10.0.0.1": 2})
    assert [found.charge("10.0.0.2", 0) for _ in range(11)] == [0] * 10 + [1000]
    assert [found.charge("10.0.0.3", 0) for _ in range(10)] == [0] * 10
    assert [found.charge("10.0.0.1", 0) for _ in range(20)] == [0] * 20


def test_a_limit_of_a_host_is_one_of_its_address() -> None:
    found = limits({"here": 0})
    assert found.charge("10.0.0.1", 0) == 1000
    # The name stands for another address now, and goes.
    HOSTS["here"], address = "10.0.0.9", HOSTS["here"]
    found.set_limit("here", None)
    HOSTS["here"] = address
    assert found.charge("10.0.0.1", 0) == 0


def test_a_removed_limit_does_not_hold() -> None:
    found = limits({DEFAULT: 0})
    assert found.charge("10.0.0.1", 0) == 1000
    found.set_limit(DEFAULT, None)
    assert found.charge("10.0.0.1", 0) == 0


def test_ever_new_addresses_do_not_use_ever_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ip_limits, "_MOST_ADDRESSES", 100)
    found = limits({DEFAULT: 1})
    for number in range(1000):
        assert found.charge(f"10.0.0.{number}", number) == 0
    assert len(found._measured) <= 100
    assert [found.charge("10.0.0.999", 999) for _ in range(10)] == [0] * 9 + [1000]
