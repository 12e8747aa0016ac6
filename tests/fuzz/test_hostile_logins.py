"""Attacks on logins, a few rounds of what `python -m tests.fuzz.fuzz_logins` plays for hours."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import jwt
import pytest

from klog.security.authentication.plain import Plain
from klog.security.authentication.scram import Scram
from klog.security.authentication.steps import Login, Reply
from tests.fuzz import login_attacks as attacks
from tests.fuzz.fuzz_logins import FoundError, exchange_settings, fuzzer, play_on_exchange

ROUNDS = 3


def test_attacks_on_a_broker_find_nothing_and_disturb_nobody(tmp_path: Path) -> None:
    with fuzzer(tmp_path) as found:
        for seed in range(ROUNDS):
            found.play_round(seed)
        counts = found.counts
    assert counts["rounds"] == ROUNDS
    # Some attackers know the password, and their logins are whole: the attacks reach all of an exchange.
    assert counts["logins"] > 100
    assert min(counts["half-open handshakes"], counts["failed logins"], counts["connections"]) > 50


def test_every_mechanism_is_reached_to_its_end() -> None:
    settings, chance = exchange_settings(), random.Random(3)
    done: Counter[str] = Counter()
    for mechanism in attacks.MECHANISMS:
        counts: Counter[str] = Counter()
        alone = replace(settings, mechanisms={mechanism: settings.mechanisms[mechanism]})
        for _ in range(600):
            play_on_exchange(alone, chance, counts)
        done[mechanism] = counts["logins"]
    assert min(done.values()) > 0, done


def _let_in(self: object, message: bytes) -> Reply:
    return Reply(b"", Login(attacks.USER))


def _trust(*_: object, **__: object) -> bool:
    return True


DEFECTS = {
    "PLAIN takes any password": (Plain, "_is_right", _trust),
    "SCRAM is content with the first message": (Scram, "respond", _let_in),
    "RSA signatures are not checked": (jwt.algorithms.RSAAlgorithm, "verify", _trust),
}


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS.keys())
def test_a_login_without_the_password_is_found(defect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*defect)
    settings, chance, counts = exchange_settings(), random.Random(1), Counter[str]()

    def attack() -> None:
        for _ in range(400):
            play_on_exchange(settings, chance, counts)

    with pytest.raises(FoundError, match="alice"):
        attack()
