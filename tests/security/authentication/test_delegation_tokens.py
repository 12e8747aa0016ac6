"""Delegation tokens: who may change them, until when they are valid, and how the tree keeps them."""

from __future__ import annotations

import itertools
from base64 import b64encode

import pytest

from klog.client import sasl
from klog.metadata.errors import InvalidZnodeError
from klog.metadata.local import SharedTree
from klog.protocol.error_codes import ErrorCode
from klog.security.authentication.delegation_tokens import (
    DelegationToken,
    KnownTokens,
    TokenLimits,
    expired,
    issued,
    renewed,
)
from klog.security.authentication.errors import FailedLoginError
from klog.security.authentication.scram import Scram
from klog.security.authentication.steps import Login
from klog.security.authentication.token_store import TokenStore
from klog.security.authentication.token_znodes import CHANGES, TOKENS, decode_token, encode_token
from klog.security.principal import KafkaPrincipal
from tests.metadata.conftest import call_at_once
from tests.metadata.memory_tree import MemorySession, NoJournal

ALICE, BOB, CAROL = (KafkaPrincipal("User", name) for name in ("alice", "bob", "carol"))
LIMITS = TokenLimits(max_lifetime_ms=1000, renewal_ms=100)
DAY_MS = 86_400_000


def token(lifetime_ms: int = -1, now_ms: int = 0) -> DelegationToken:
    return issued("t0ken", ALICE, CAROL, [BOB], lifetime_ms, LIMITS, now_ms)


@pytest.mark.parametrize(
    ("lifetime_ms", "ends_ms", "expires_ms"),
    [(-1, 1000, 100), (0, 1000, 100), (500, 500, 100), (50, 50, 50), (2**63 - 1, 1000, 100)],
)
def test_how_long_a_new_token_lives(lifetime_ms: int, ends_ms: int, expires_ms: int) -> None:
    made = token(lifetime_ms, now_ms=7)
    assert (made.ends_ms - 7, made.expires_ms - 7) == (ends_ms, expires_ms)


@pytest.mark.parametrize(("period_ms", "expires_ms"), [(-1, 150), (0, 50), (300, 350), (2**63 - 1, 1000)])
def test_a_renewed_token_lives_on_but_never_longer_than_it_may(period_ms: int, expires_ms: int) -> None:
    made = renewed(token(), BOB, period_ms, LIMITS, now_ms=50)
    assert isinstance(made, DelegationToken)
    assert made.expires_ms == expires_ms


def test_owner_and_renewers_may_change_a_token_and_its_requester_may_not() -> None:
    assert isinstance(renewed(token(), ALICE, 1, LIMITS, 0), DelegationToken)
    assert renewed(token(), CAROL, 1, LIMITS, 0) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert expired(token(), CAROL, -1, 0) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert expired(None, ALICE, -1, 0) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_what_has_expired_cannot_be_renewed_but_removed() -> None:
    assert renewed(token(), ALICE, 1, LIMITS, 101) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expired(token(), ALICE, 1, 101) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expired(token(), ALICE, -1, 101) is None
    assert isinstance(renewed(token(), ALICE, 1, LIMITS, 100), DelegationToken)


# -- logins --------------------------------------------------------------------------------------------------


def server(known: KnownTokens) -> Scram:
    return Scram(
        "SCRAM-SHA-256", lambda _: None, lambda: "n0nce", lambda name: known.login("SCRAM-SHA-256", name)
    )


def log_in(known: KnownTokens, password: str, *, by_token: bool = True) -> Login | None:
    client = sasl.scram(sasl.Sasl("SCRAM-SHA-256", "t0ken", password, by_token), "c1ient")
    scram = server(known)
    return scram.respond(client.send(scram.respond(next(client)).message)).login


def test_a_login_by_a_token_is_its_owners_and_ends_with_it() -> None:
    known = KnownTokens("secret")
    known.put(token())
    password = b64encode(known.hmac_of("t0ken")).decode()
    assert log_in(known, password) == Login("alice", 100, by_token=True)
    with pytest.raises(FailedLoginError, match="password is wrong"):
        log_in(known, "guess")
    with pytest.raises(FailedLoginError, match="no credential"):
        log_in(known, password, by_token=False)
    known.remove("t0ken")
    with pytest.raises(FailedLoginError, match="no such delegation token"):
        log_in(known, password)


def test_the_secret_of_a_token_needs_the_secret_of_the_brokers() -> None:
    one, other = KnownTokens("secret"), KnownTokens("other")
    assert one.hmac_of("t0ken") != other.hmac_of("t0ken")
    assert len(one.hmac_of("t0ken")) == 64


# -- the tree ------------------------------------------------------------------------------------------------


class World:
    """Two brokers with a tree, and the clock of both."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        shared = SharedTree(NoJournal(), lambda: self.now_ms)
        ids = map("t{}".format, itertools.count(1))
        self.tree = MemorySession(shared, call_at_once)
        self.one, self.other = (
            TokenStore(
                MemorySession(shared, call_at_once),
                KnownTokens("secret"),
                LIMITS,
                lambda: self.now_ms,
                lambda: next(ids),
            )
            for _ in range(2)
        )
        self.one.follow()
        self.other.follow()

    @property
    def stored(self) -> list[str]:
        return self.tree.children(TOKENS)


@pytest.fixture
def world() -> World:
    return World()


def test_the_node_of_a_token_has_kafkas_bytes(world: World) -> None:
    owner = KafkaPrincipal("User", "ca rol")
    world.one.create(owner, ALICE, [BOB], -1)
    assert world.tree.get(f"{TOKENS}/t1").data == (
        b'{"issueTimestamp":1000,"renewers":["User%3Abob"],"tokenRequester":"User%3Aalice","tokenId":"t1",'
        b'"owner":"User%3Aca%20rol","expiryTimestamp":1100,"maxTimestamp":2000,"version":3}'
    )
    notes = world.tree.children(CHANGES)
    assert notes == ["token_change_0000000000"]
    assert world.tree.get(f"{CHANGES}/{notes[0]}").data == b"t1"


def test_every_broker_hears_of_a_change(world: World) -> None:
    made = world.one.create(ALICE, ALICE, [], -1)
    assert world.other.known.all() == [made]
    token_hmac = world.one.known.hmac_of("t1")
    assert isinstance(world.other.renew(ALICE, token_hmac, 500), DelegationToken)
    assert [each.expires_ms for each in world.one.known.all()] == [1500]
    assert world.one.expire(ALICE, token_hmac, -1) == 1000
    assert world.other.known.all() == []
    assert world.stored == []


def test_what_has_expired_is_removed_everywhere(world: World) -> None:
    world.one.create(ALICE, ALICE, [], 50)
    world.one.create(BOB, BOB, [], -1)
    world.now_ms += 51
    world.one.remove_expired()
    assert world.stored == ["t2"]
    assert [each.token_id for each in world.other.known.all()] == ["t2"]


def test_a_broker_that_starts_reads_all_tokens_and_forgets_those_that_are_gone(world: World) -> None:
    world.one.create(ALICE, ALICE, [], -1)
    world.other.known.put(token())
    world.other.follow()
    assert [each.token_id for each in world.other.known.all()] == ["t1"]


def test_a_token_that_cannot_be_read_does_not_hide_the_others(world: World, caplog) -> None:
    world.tree.create(f"{TOKENS}/bad", b"{")
    world.one.create(ALICE, ALICE, [], -1)
    world.other.follow()
    assert [each.token_id for each in world.other.known.all()] == ["t1"]
    assert "A delegation token is ignored" in caplog.text


def test_tokens_of_older_versions_name_no_requester() -> None:
    stored = encode_token(token()).replace(b'"version":3', b'"version":2')
    read = decode_token("t0ken", stored)
    assert read is not None
    assert read.requester == ALICE


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (b'"version":3', b'"version":4', "version 4"),
        (b'"t0ken"', b'"other"', "another id"),
        (b"User%3Abob", b"bob", "TYPE:NAME"),
        (b'"issueTimestamp":0', b'"issueTimestamp":"x"', "issueTimestamp"),
    ],
)
def test_a_damaged_node_is_named(old: bytes, new: bytes, what: str) -> None:
    stored = encode_token(token())
    assert old in stored
    with pytest.raises(InvalidZnodeError, match=what):
        decode_token("t0ken", stored.replace(old, new))


@pytest.mark.parametrize("note", [b"", b"../x", b"a/b", b"\xff"])
def test_a_note_that_names_no_token_changes_nothing(world: World, note: bytes, caplog) -> None:
    world.tree.create(f"{CHANGES}/token_change_", note, sequential=True)
    assert "names no delegation token" in caplog.text
    assert world.one.known.all() == []
