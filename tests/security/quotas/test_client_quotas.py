"""The quotas of clients on one broker: what is charged, what is shared, what is forgotten."""

from __future__ import annotations

from klog.security.quotas import client_quotas
from klog.security.quotas.client_quotas import IDLE_MS, ClientLimits, ClientQuotas
from klog.security.quotas.entities import DEFAULT, Quota, QuotaEntity
from klog.security.quotas.precedence import QuotaKey
from klog.security.quotas.usage import MutationCharge, MutationQuota, QuotaWindows, RateQuota

NOW_MS = 1_700_000_000_000


def quotas(**limits_of_clients: float) -> ClientQuotas:
    """Quotas of client ids for produced bytes."""
    found = ClientQuotas()
    for client_id, limit in limits_of_clients.items():
        found.set_limits(QuotaEntity(client_id=client_id), {Quota.PRODUCE: limit})
    return found


def limits(found: ClientQuotas, user: str, client_id: str, now_ms: int = NOW_MS) -> ClientLimits:
    limited = found.of(user, client_id, now_ms)
    assert limited is not None
    return limited


def produce(found: ClientQuotas, user: str, client_id: str, now_ms: int = NOW_MS) -> RateQuota:
    quota = limits(found, user, client_id, now_ms).produce
    assert quota is not None
    return quota


def test_without_any_limit_quotas_are_off() -> None:
    found = ClientQuotas()
    assert not found.is_enabled
    assert found.of("alice", "c", NOW_MS) is None


def test_a_client_without_a_limit_has_none_while_others_have() -> None:
    found = quotas(c=1024)
    assert found.is_enabled
    assert found.of("alice", "other", NOW_MS) is None


def test_the_last_limit_that_goes_turns_quotas_off() -> None:
    found = quotas(c=1024)
    found.set_limits(QuotaEntity(client_id="c"), {})
    assert not found.is_enabled
    assert found.of("alice", "c", NOW_MS) is None


def test_clients_with_one_key_share_what_they_use() -> None:
    found = quotas(c=1000)
    assert produce(found, "alice", "c").charge(9000, NOW_MS) == 0
    assert produce(found, "bob", "c").charge(2000, NOW_MS) == 1000


def test_a_default_gives_each_its_own_limit() -> None:
    found = ClientQuotas()
    found.set_limits(QuotaEntity(DEFAULT), {Quota.PRODUCE: 1000})
    assert produce(found, "alice", "c").charge(20_000, NOW_MS) == 10_000
    assert produce(found, "bob", "c").charge(9000, NOW_MS) == 0
    # A user's limit is for all its client ids together.
    assert produce(found, "bob", "d").charge(2000, NOW_MS) == 1000


def test_a_changed_limit_holds_for_what_was_used_before() -> None:
    found = quotas(c=1000)
    produce(found, "alice", "c").charge(10_000, NOW_MS)
    found.set_limits(QuotaEntity(client_id="c"), {Quota.PRODUCE: 500})
    assert produce(found, "alice", "c").charge(0, NOW_MS) == 10_000


def test_each_quota_has_a_limit_of_its_own_level() -> None:
    found = ClientQuotas()
    found.set_limits(QuotaEntity("alice"), {Quota.PRODUCE: 1000, Quota.REQUEST: 50})
    found.set_limits(QuotaEntity(client_id="c"), {Quota.FETCH: 10, Quota.PRODUCE: 5})
    limited = limits(found, "alice", "c")
    assert [None if each is None else each.limit for each in limited] == [1000, 10, 50, None]
    assert [each.key for each in limited if each is not None] == [
        QuotaKey("alice", ""),
        QuotaKey("", "c"),
        QuotaKey("alice", ""),
    ]


def test_request_time_is_throttled_for_one_window_at_most() -> None:
    found = ClientQuotas(QuotaWindows(11, 2000))
    found.set_limits(QuotaEntity("alice"), {Quota.REQUEST: 1, Quota.PRODUCE: 1})
    limited = limits(found, "alice", "c")
    assert limited.request is not None
    assert limited.request.charge(100_000, NOW_MS) == 2000
    assert produce(found, "alice", "c").charge(100_000, NOW_MS) == 99_980_000


def test_more_than_fits_into_the_windows_is_always_throttled() -> None:
    quota = produce(quotas(c=1000), "alice", "c")
    assert quota.most_in_windows == 10_000
    assert quota.charge(10_000, NOW_MS) == 0
    quota.take_back(10_000, NOW_MS)
    assert quota.charge(10_001, NOW_MS) > 0


def test_all_limits_are_replaced_at_once() -> None:
    found = quotas(c=1000, d=1000)
    found.replace({QuotaEntity(client_id="c"): {Quota.PRODUCE: 7}})
    assert produce(found, "alice", "c").limit == 7
    assert found.of("alice", "d", NOW_MS) is None


def test_what_nobody_has_used_for_an_hour_is_forgotten() -> None:
    found = quotas(c=1000, d=1000)
    produce(found, "alice", "c").charge(10_000, NOW_MS)
    produce(found, "alice", "d").charge(10_000, NOW_MS + 1)
    found.forget_idle(NOW_MS + IDLE_MS)
    assert [each.key.client_id for each in found.rates()] == ["d"]
    # A client that comes again has another quota than the one that was forgotten.
    assert produce(found, "alice", "c", NOW_MS + IDLE_MS) in found.rates()


def test_clients_that_choose_ever_new_ids_do_not_use_ever_more_memory(monkeypatch) -> None:
    monkeypatch.setattr(client_quotas, "_MOST_KEYS", 100)
    found = ClientQuotas()
    found.set_limits(QuotaEntity(client_id=DEFAULT), {Quota.PRODUCE: 1000})
    for number in range(1000):
        produce(found, "alice", f"c{number}", NOW_MS + number)
    assert len(found.rates()) <= 100
    assert produce(found, "alice", "c999", NOW_MS + 1000) in found.rates()


# -- controller mutations ------------------------------------------------------------------------------------


def mutations(limit: float) -> MutationQuota:
    found = ClientQuotas()
    found.set_limits(QuotaEntity("alice"), {Quota.MUTATION: limit})
    quota = limits(found, "alice", "c").mutation
    assert quota is not None
    return quota


def test_old_versions_are_always_accepted_and_throttled() -> None:
    quota = mutations(1)
    assert quota.charge(15, NOW_MS, strict=False) == MutationCharge(True, 4000)
    assert quota.charge(15, NOW_MS + 150, strict=False) == MutationCharge(True, 18_850)


def test_a_topic_is_accepted_whole_as_long_as_there_is_no_debt() -> None:
    quota = mutations(1)
    assert quota.charge(15, NOW_MS, strict=True) == MutationCharge(True, 0)
    assert quota.charge(1, NOW_MS, strict=True) == MutationCharge(False, 4000)
    assert quota.charge(1, NOW_MS + 3999, strict=True) == MutationCharge(False, 1)
    assert quota.charge(1, NOW_MS + 4000, strict=True) == MutationCharge(True, 0)


def test_a_rate_of_zero_accepts_what_leaves_no_debt() -> None:
    quota = mutations(0)
    assert quota.charge(1, NOW_MS, strict=True).is_accepted
    assert not quota.charge(1, NOW_MS + 10**9, strict=True).is_accepted
