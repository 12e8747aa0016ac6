"""Throttle times and precedence are those of Kafka 3.9's own classes, to the millisecond."""

from __future__ import annotations

import random

import pytest

from klog.security.quotas.client_quotas import ClientQuotas
from klog.security.quotas.entities import DEFAULT, Quota, QuotaEntity
from klog.security.quotas.precedence import Limits, QuotaKey
from klog.security.quotas.rates import WindowedSamples, rate_throttle_ms
from klog.security.quotas.usage import QuotaWindows
from tests.peers.kafka import KafkaPeer

pytestmark = pytest.mark.kafka

START_MS = 1_700_000_000_000
HISTORIES = 200


def _history(rng: random.Random, largest: int) -> list[tuple[int, int]]:
    now_ms, events = START_MS, []
    for _ in range(rng.randrange(1, 40)):
        now_ms += rng.choice((0, 1, 300, 999, 1000, 1001, 5000, 10_999, 11_000, 30_000))
        events.append((now_ms, rng.randrange(largest)))
    return events


def _asked(*fields: object) -> str:
    return "\t".join(map(str, fields)) + "\n"


def _events(history: list[tuple[int, int]]) -> list[str]:
    return [f"{now_ms}:{value}" for now_ms, value in history]


def test_rates_throttle_as_kafkas(kafka3: KafkaPeer) -> None:
    rng, asked, ours = random.Random(23), "", []
    for _ in range(HISTORIES):
        windows, seconds = rng.choice(((11, 1), (2, 3), (1, 1)))
        limit = rng.choice((1, 10, 333.5, 5000))
        most_ms = rng.choice((None, 1000 * seconds))
        history = _history(rng, 20_000)
        samples, times = WindowedSamples(windows, 1000 * seconds), []
        for now_ms, value in history:
            samples.record(value, now_ms)
            times.append(rate_throttle_ms(samples, limit, now_ms, most_ms))
        ours.append("\t".join(map(str, times)))
        asked += _asked("rate", windows, seconds, limit, most_ms or -1, *_events(history))
    assert kafka3.java("QuotaMeter", stdin=asked.encode()).stdout.decode().splitlines() == ours


def test_token_buckets_throttle_as_kafkas(kafka3: KafkaPeer) -> None:
    rng, asked, ours = random.Random(24), "", []
    for _ in range(HISTORIES):
        windows, seconds = rng.choice(((11, 1), (2, 3)))
        limit = rng.choice((0.5, 1, 3, 10))
        history = _history(rng, 40)
        found = ClientQuotas(mutation_windows=QuotaWindows(windows, 1000 * seconds))
        found.set_limits(QuotaEntity("u"), {Quota.MUTATION: limit})
        limited = found.of("u", "c", START_MS)
        assert limited is not None
        assert limited.mutation is not None
        charges = [limited.mutation.charge(count, now_ms, strict=False) for now_ms, count in history]
        ours.append("\t".join(str(each.throttle_ms) for each in charges))
        asked += _asked("tokens", windows, seconds, limit, *_events(history))
    assert kafka3.java("QuotaMeter", stdin=asked.encode()).stdout.decode().splitlines() == ours


def test_the_limit_and_those_who_share_it_are_kafkas(kafka3: KafkaPeer) -> None:
    rng, asked, ours = random.Random(25), "", []
    users, clients = ("", "alice", "bob", "<default>"), ("", "c1", "c2", "<default>")
    entities = [(user, client) for user in users for client in clients if user or client]
    while len(ours) < HISTORIES:
        chosen = rng.sample(entities, rng.randrange(1, 6))
        limits = Limits({QuotaEntity(_part(u), _part(c)): n for n, (u, c) in enumerate(chosen, 1)})
        user, client = rng.choice(("alice", "bob", "carol")), rng.choice(("", "c1", "c2", "c3"))
        key = limits.key(user, client)
        limit = limits.limit(key)
        if limit is None:
            # Kafka measures those, too; nobody is limited by it.
            key, limit = QuotaKey("?", "?"), 2**63
        ours.append((*key, float(limit)))
        asked += _asked("which", user, client, *(f"{u}/{c}={n}" for n, (u, c) in enumerate(chosen, 1)))
    answers = kafka3.java("QuotaMeter", stdin=asked.encode()).stdout.decode().splitlines()
    kafkas = [(user, client, float(limit)) for user, client, limit in (a.split("\t") for a in answers)]
    assert [each if each[2] < 2**63 else ("?", "?", 2.0**63) for each in kafkas] == ours


def _part(name: str) -> object:
    return DEFAULT if name == "<default>" else name or None
