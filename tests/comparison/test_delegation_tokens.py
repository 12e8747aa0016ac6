"""Delegation tokens of Kafka 3.9.1 and klog in one cluster: equal answers and nodes, and logins at both."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from klog.client.sasl import Sasl, authenticate
from klog.protocol.acls import AclOperation, AclResourceType, PatternType, Permission
from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import AuthenticationFailedError
from klog.protocol.messages import build, request_class
from klog.security.authentication.token_znodes import TOKENS, decode_token, encode_token
from tests.cluster.tree import Tree
from tests.peers.broker import ZooKeeperBroker, free_port
from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.server.handlers.test_against_kafka import comparable
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OWN = "listener.name.sasl_plaintext"
CONFIG: Final = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{_OWN}.plain.sasl.jaas.config": f'{_PLAIN} required user_admin="a" user_alice="a" user_bob="b" '
    'user_carol="c";',
    f"{_OWN}.scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
    f"{_OWN}.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
    "delegation.token.secret.key": "a secret of all brokers",
    "delegation.token.max.lifetime.ms": 3_600_000,
    "delegation.token.expiry.time.ms": 600_000,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "offsets.topic.replication.factor": 1,
}
CREATE, RENEW = ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN
EXPIRE, DESCRIBE = ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN
PASSWORDS: Final = {"admin": "a", "alice": "a", "bob": "b", "carol": "c"}
# Random, or of the moment.
_APART: Final = {"token_id", "hmac", "issue_timestamp", "expiry_timestamp", "max_timestamp"}


class Broker:
    """A broker's two ports, and connections to them by who is logged in."""

    def __init__(self, plain_port: int, sasl_port: int, closing: ExitStack) -> None:
        self.plain_port, self.sasl_port = plain_port, sasl_port
        self._closing = closing
        self._channels: dict[str, Channel] = {}

    def login(self, sasl: Sasl) -> Channel:
        """A new connection."""
        channel = Channel(
            "127.0.0.1",
            self.sasl_port,
            authenticate=lambda each: authenticate(each, sasl, "n0nce"),
        )
        return self._closing.enter_context(channel)

    def of(self, user: str) -> Channel:
        """A connection on which the user is logged in by its password, or nobody over PLAINTEXT."""
        if user not in self._channels:
            self._channels[user] = (
                self.login(Sasl("PLAIN", user, PASSWORDS[user]))
                if user in PASSWORDS
                else self._closing.enter_context(Channel("127.0.0.1", self.plain_port))
            )
        return self._channels[user]

    def ask(self, user: str, api: ApiKey, version: int, /, **values: Any) -> Any:
        return self.of(user).send(request(api, version, **values))


def request(api: ApiKey, version: int, /, **values: Any) -> Any:
    return build(request_class(api, version), **values)


class World:
    """Kafka, klog, and the tree that both share."""

    def __init__(self, kafka: Broker, klog: Broker, tree: Tree) -> None:
        self.kafka, self.klog, self.tree = kafka, klog, tree
        self.both = kafka, klog

    def agree(self, user: str, api: ApiKey, version: int, /, **values: Any) -> Any:
        """Both answer the same, beside what is random. Kafka's answer."""
        kafka, klog = (each.ask(user, api, version, **values) for each in self.both)
        assert without_chance(klog) == without_chance(kafka)
        return kafka


def without_chance(answer: Any) -> Any:
    found = comparable(answer)
    return {name: each for name, each in found.items() if name not in _APART}


@pytest.fixture(scope="module")
def world(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    work: Path = tmp_path_factory.mktemp("tokens")
    ports = [(free_port(), free_port()) for _ in range(2)]
    with ExitStack() as closing:
        zookeeper = closing.enter_context(ZooKeeperServer(work / "zookeeper", kafka3))
        kafka, klog = (
            {
                **CONFIG,
                "broker.id": number,
                "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}",
                "zookeeper.connect": zookeeper.hosts,
            }
            for number, (plain, sasl) in enumerate(ports)
        )
        closing.enter_context(ZooKeeperBroker(work / "kafka", kafka, kafka3))
        closing.enter_context(KlogBroker(work / "klog", klog)).start()
        tree = closing.enter_context(Tree(zookeeper.hosts))
        yield World(Broker(*ports[0], closing), Broker(*ports[1], closing), tree)


def renewers(*names: str, kind: str = "User") -> list[dict[str, str]]:
    return [{"principal_type": kind, "principal_name": name} for name in names]


def new_token(broker: Broker, user: str, *names: str, lifetime_ms: int = -1) -> Any:
    token = broker.ask(user, CREATE, 3, **asked(*names, lifetime_ms=lifetime_ms))
    assert token.error_code == ErrorCode.NONE
    return token


def shared_token(world: World, maker: Broker, user: str, *names: str, lifetime_ms: int = -1) -> Any:
    """A new token that both brokers know."""
    token = new_token(maker, user, *names, lifetime_ms=lifetime_ms)
    for broker in world.both:
        eventually(lambda: known_to(broker, token))  # noqa: B023 (it is called at once)
    return token


def asked(*names: str, lifetime_ms: int = -1, **owner: str | None) -> dict[str, Any]:
    return {
        "owner_principal_type": None,
        "owner_principal_name": None,
        "renewers": renewers(*names),
        "max_lifetime": lifetime_ms,
        **owner,
    }


def known_to(broker: Broker, token: Any) -> bool:
    """Whether the broker has heard of the token."""
    found = broker.ask("admin", DESCRIBE, 3, owners=None)
    return any(each.token_id == token.token_id for each in found.tokens)


def token_login(token: Any, mechanism: str = "SCRAM-SHA-256") -> Sasl:
    return Sasl(mechanism, token.token_id, b64encode(token.hmac).decode(), by_token=True)


@pytest.mark.parametrize("version", range(4))
def test_a_new_token_has_the_same_fields(world: World, version: int) -> None:
    kafka = world.agree("alice", CREATE, version, **asked("bob", lifetime_ms=1_800_000))
    assert kafka.error_code == ErrorCode.NONE
    for broker in world.both:
        token = broker.ask("alice", CREATE, version, **asked(lifetime_ms=1_800_000))
        lives, valid = (
            each - token.issue_timestamp for each in (token.max_timestamp, token.expiry_timestamp)
        )
        assert (lives.total_seconds(), valid.total_seconds()) == (1800, 600)
        assert (len(token.token_id), len(token.hmac)) == (22, 64)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("maker", ["kafka", "klog"])
def test_a_token_of_one_broker_is_a_login_at_both(world: World, maker: str, mechanism: str) -> None:
    token = shared_token(world, getattr(world, maker), "alice", "bob")
    for broker in world.both:
        channel = broker.login(token_login(token, mechanism))
        # Who has logged in by a token may not ask for tokens.
        answer = channel.send(request(DESCRIBE, 3, owners=None))
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        wrong = Sasl(mechanism, token.token_id, "guess", by_token=True)
        with pytest.raises(AuthenticationFailedError, match="invalid credentials"):
            broker.login(wrong)


@pytest.mark.parametrize("maker", ["kafka", "klog"])
def test_the_node_of_a_token_is_the_same_byte_for_byte(world: World, maker: str) -> None:
    token = new_token(getattr(world, maker), "alice", "bob", "car ol")
    stored, _ = world.tree.client.get(f"{TOKENS}/{token.token_id}")
    read = decode_token(token.token_id, stored)
    assert read is not None
    assert encode_token(read).decode() == stored.decode()
    changes = world.tree.client.get_children("/delegation_token/token_changes")
    last = world.tree.client.get(f"/delegation_token/token_changes/{max(changes)}")[0]
    assert (last, max(changes)[:13]) == (token.token_id.encode(), "token_change_")


def test_a_session_ends_with_the_token(world: World) -> None:
    token = shared_token(world, world.klog, "alice", lifetime_ms=50_000)
    lifetimes: list[int] = []

    def login(channel: Channel) -> int:
        lifetimes.append(authenticate(channel, token_login(token), "n0nce"))
        return 0

    for broker in world.both:
        with Channel("127.0.0.1", broker.sasl_port, authenticate=login):
            assert 0 < lifetimes[-1] <= 50_000


def test_who_may_not_ask(world: World) -> None:
    for version in range(4):
        assert world.agree("nobody", CREATE, version, **asked()).error_code == (
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        )
        world.agree("nobody", DESCRIBE, version, owners=None)
    for version in range(3):
        world.agree("nobody", RENEW, version, hmac=b"x", renew_period=1)
        world.agree("nobody", EXPIRE, version, hmac=b"x", expiry_time_period=1)


def test_renewers_are_users(world: World) -> None:
    wrong = {**asked(), "renewers": renewers("bob", kind="Group")}
    assert world.agree("alice", CREATE, 3, **wrong).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def allow(world: World, user: str, operation: AclOperation, kind: AclResourceType, name: str) -> None:
    creation = {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": f"User:{user}",
        "host": "*",
        "operation": operation,
        "permission_type": Permission.ALLOW,
    }
    answer = world.klog.ask("admin", ApiKey.CREATE_ACLS, 3, creations=[creation])
    assert answer.results[0].error_code == ErrorCode.NONE


def test_a_token_for_another_owner_needs_a_right(world: World) -> None:
    for_carol = asked(owner_principal_type="User", owner_principal_name="carol")
    refused = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert world.agree("alice", CREATE, 3, **for_carol).error_code == refused
    allow(world, "alice", AclOperation.CREATE_TOKENS, AclResourceType.USER, "User:carol")
    eventually(lambda: not world.kafka.ask("alice", CREATE, 3, **for_carol).error_code)
    made = world.agree("alice", CREATE, 3, **for_carol)
    assert (made.principal_name, made.token_requester_principal_name) == ("carol", "alice")


def owners_of(tokens: list[dict[str, Any]]) -> set[str]:
    return {each["principal_name"] for each in tokens}


def test_who_sees_which_tokens(world: World) -> None:
    shared_token(world, world.kafka, "bob", "carol")
    answers: list[Any] = []

    def seen(user: str, version: int, owners: list[dict[str, str]] | None) -> Any:
        """What both brokers answer, once each has heard of all changes."""

        def agreed() -> bool:
            found = [each.ask(user, DESCRIBE, version, owners=owners) for each in world.both]
            answers[:] = [(each.error_code, sorted(map(comparable, each.tokens), key=repr)) for each in found]
            return bool(answers[1] == answers[0])

        eventually(agreed, 30, lambda: f"Kafka: {answers[0]}\nklog: {answers[1]}")
        return answers[0][1]

    for version in range(4):
        for user in ("admin", "alice", "bob", "carol"):
            for owners in (None, [], renewers("bob"), renewers("alice", "carol"), renewers("nobody")):
                seen(user, version, owners)
    assert "bob" not in owners_of(seen("alice", 3, renewers("bob")))
    allow(world, "alice", AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, "User:bob")
    eventually(lambda: "bob" in owners_of(seen("alice", 3, renewers("bob"))))
    other = shared_token(world, world.kafka, "carol")
    allow(world, "bob", AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, other.token_id)
    eventually(lambda: other.token_id in {each["token_id"] for each in seen("bob", 3, None)})


def set_time(broker: Broker, user: str, api: ApiKey, version: int, token: Any, period_ms: int) -> Any:
    """The error, and how many whole minutes after its beginning the token expires now."""
    period = {"renew_period": period_ms, "expiry_time_period": period_ms}
    answer = broker.ask(user, api, version, hmac=token.hmac, **period)
    if answer.expiry_timestamp is None:
        return answer.error_code, None
    return answer.error_code, (answer.expiry_timestamp - token.issue_timestamp).total_seconds() // 60


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("api", [RENEW, EXPIRE])
def test_who_may_change_a_token_and_until_when(world: World, api: ApiKey, version: int) -> None:
    found = []
    for broker in world.both:
        token = new_token(broker, "alice", "bob")
        users = [set_time(broker, user, api, version, token, 120_000) for user in PASSWORDS]
        periods = [set_time(broker, "bob", api, version, token, each) for each in (60_000, 10**12)]
        default = set_time(broker, "bob", RENEW, version, token, -1)
        unknown = broker.ask("bob", api, version, hmac=b"?", renew_period=1, expiry_time_period=1)
        found.append((users, periods, default, unknown.error_code, unknown.expiry_timestamp))
    assert found[1] == found[0]


@pytest.mark.parametrize("version", range(3))
def test_a_token_that_has_expired_can_only_be_removed(world: World, version: int) -> None:
    found = []
    for broker in world.both:
        token = new_token(broker, "alice")
        set_time(broker, "alice", EXPIRE, version, token, 0)
        time.sleep(0.002)
        found.append([set_time(broker, "alice", api, version, token, 10_000) for api in (RENEW, EXPIRE)])
        found[-1].append(set_time(broker, "alice", EXPIRE, version, token, -1))
    assert found[1] == found[0]
    assert [each[0] for each in found[0]] == [
        ErrorCode.DELEGATION_TOKEN_EXPIRED,
        ErrorCode.DELEGATION_TOKEN_EXPIRED,
        ErrorCode.NONE,
    ]


@pytest.mark.parametrize("maker", ["kafka", "klog"])
def test_a_token_that_was_removed_is_no_login_anywhere(world: World, maker: str) -> None:
    broker = getattr(world, maker)
    token = shared_token(world, broker, "alice", "bob")
    assert set_time(broker, "bob", EXPIRE, 2, token, -1) == (ErrorCode.NONE, 0)
    assert world.tree.client.exists(f"{TOKENS}/{token.token_id}") is None
    for other in world.both:
        eventually(lambda: not known_to(other, token))  # noqa: B023 (it is called at once)
        with pytest.raises(AuthenticationFailedError):
            other.login(token_login(token))
    assert {set_time(each, "bob", EXPIRE, 2, token, -1) for each in world.both} == {
        (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, None)
    }
