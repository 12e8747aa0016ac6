"""`klog tokens` on brokers of klog and Kafka, and with the command lines of kafka-delegation-tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands.asking import keeps_to_the_rule
from tests.commands.running import Run, runner
from tests.peers.broker import ZooKeeperBroker, free_port
from tests.peers.tool_server import ToolServer
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

_MODULES = "org.apache.kafka.common.security"
_PLAIN = f"{_MODULES}.plain.PlainLoginModule"
_SCRAM = f"{_MODULES}.scram.ScramLoginModule"
_OWN = "listener.name.sasl_plaintext"
TOOL = "org.apache.kafka.tools.DelegationTokenCommand"
HOUR_MS = 3_600_000


@pytest.fixture(
    scope="module", params=["klog", pytest.param("kafka3", marks=(pytest.mark.kafka, pytest.mark.slow))]
)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the SASL listener of a broker that makes tokens."""
    plain, sasl = free_port(), free_port()
    config: dict[str, str | int] = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        f"{_OWN}.plain.sasl.jaas.config": f'{_PLAIN} required user_alice="a" user_bob="b";',
        f"{_OWN}.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
        "delegation.token.secret.key": "signs",
    }
    work = tmp_path_factory.mktemp("tokens")
    if request.param == "klog":
        with KlogBroker(work, config) as broker:
            broker.start()
            yield f"127.0.0.1:{sasl}"
    else:
        with ZooKeeperBroker(work, config, request.getfixturevalue("kafka3")):
            yield f"127.0.0.1:{sasl}"


class Users:
    """The command line of each user."""

    def __init__(self, klog: Run, address: str, directory: Path) -> None:
        self.address, self._klog, self._directory = address, klog, directory

    def config(self, user: str, password: str, *, by_token: bool = False) -> Path:
        mechanism, module = ("SCRAM-SHA-512", _SCRAM) if by_token else ("PLAIN", _PLAIN)
        options = f'username="{user}" password="{password}"' + ' tokenauth="true"' * by_token
        path = self._directory / f"{user}.properties"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={module} required {options};\n"
        )
        path.chmod(0o600)
        return path

    def by(self, config: Path) -> Run:
        return lambda *words: self._klog(*words, "-b", self.address, "--command-config", config)

    def rows(self, config: Path, *words: object) -> list[dict[str, Any]]:
        done = self.by(config)(*words, "-o", "json")
        assert done.code == 0, done.err
        found: list[dict[str, Any]] = json.loads(done.out)
        return found


@pytest.fixture
def users(address: str, capfd: Any, monkeypatch: Any, tmp_path: Path) -> Users:
    return Users(runner(capfd, monkeypatch), address, tmp_path)


@pytest.fixture
def alice(users: Users) -> Path:
    return users.config("alice", "a")


def made(users: Users, config: Path, *words: object) -> dict[str, Any]:
    """A new token that the broker shows. Its id does not begin with a hyphen, as some of Kafka's do."""
    (token,) = users.rows(config, "tokens", "create", *words)
    while token["token"].startswith("-"):
        (token,) = users.rows(config, "tokens", "create", *words)
    eventually(lambda: described(users, config, token["token"]))
    return token


def described(users: Users, config: Path, token_id: object) -> list[dict[str, Any]]:
    return [each for each in users.rows(config, "tokens", "describe") if each["token"] == token_id]


def test_a_token_is_made_shown_without_its_secret_and_logs_in(users: Users, alice: Path) -> None:
    token = made(users, alice, "--renewer-principal", "User:bob", "--max-life-time-period", HOUR_MS)
    assert token["ends"] - token["issued"] == HOUR_MS
    assert (token["result"], token["error"]) == ("created", None)
    (shown,) = described(users, alice, token["token"])
    assert shown == {
        "token": token["token"],
        "owner": "User:alice",
        "requester": "User:alice",
        "renewers": ["User:bob"],
        **{name: token[name] for name in ("issued", "expires", "ends")},
    }
    assert token["hmac"] not in users.by(alice)("tokens", "describe").out
    by_token = users.config(token["token"], token["hmac"], by_token=True)
    assert users.by(by_token)("topics", "list").code == 0
    refused = users.by(by_token)("tokens", "create")
    assert (refused.code, refused.out) == (1, "")
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: tokens are not given out on this connection" in refused.err


def test_people_see_the_secret_once(users: Users, alice: Path) -> None:
    done = users.by(alice)("tokens", "create")
    assert done.code == 0
    assert "HMAC" in done.out
    assert "It is not shown again" in done.err
    dry = users.by(alice)("tokens", "create", "--dry-run")
    assert (dry.code, dry.out) == (0, "")


def test_a_renewer_renews_by_the_id(users: Users, alice: Path) -> None:
    token = made(users, alice, "--renewer-principal", "User:bob")
    bob = users.config("bob", "b")
    (renewed,) = users.rows(bob, "tokens", "renew", token["token"], "--renew-time-period", 2 * 24 * HOUR_MS)
    assert renewed["expires"] > token["expires"] + 12 * HOUR_MS
    eventually(lambda: described(users, alice, token["token"])[0]["expires"] == renewed["expires"])
    foreign = made(users, alice)
    refused = users.by(bob)("tokens", "renew", foreign["token"])
    assert (refused.code, refused.out) == (1, "")
    assert "DELEGATION_TOKEN_OWNER_MISMATCH: the delegation token is another user's" in refused.err
    unknown = users.by(bob)("tokens", "renew", "x")
    assert (unknown.code, unknown.out) == (1, "")
    assert "there is no token x that this user may see" in unknown.err


def test_a_token_is_removed_only_after_a_yes(users: Users, alice: Path) -> None:
    token = made(users, alice)
    klog = users.by(alice)
    (row,) = keeps_to_the_rule(
        klog, "tokens expire", [token["token"]], lambda: described(users, alice, token["token"])
    )
    assert (row["token"], row["result"]) == (token["token"], "removed")
    assert described(users, alice, token["token"]) == []
    by_token = users.config(token["token"], token["hmac"], by_token=True)
    assert users.by(by_token)("topics", "list").code == 1


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("create", "--renewer-principal", "bob"), "'bob' is no principal"),
        (("renew",), "TOKEN"),
        (("expire", "--hmac", "?"), "--hmac is no base64"),
    ],
)
def test_wrong_use_is_said(users: Users, alice: Path, words: tuple[str, ...], what: str) -> None:
    done = users.by(alice)("tokens", *words)
    assert (done.code, done.out) == (2, "")
    assert what in done.err


@pytest.mark.kafka
@pytest.mark.slow
def test_the_command_lines_of_kafkas_tool(users: Users, alice: Path, tools: ToolServer) -> None:
    """Kafka's tool reads what klog's command prints, as far as it is no secret that was shown before."""
    where = ("--bootstrap-server", users.address, "--command-config", alice)
    klog = users._klog

    def shape(text: str) -> list[list[str]]:
        """The words of each line without those that differ between two tokens; without empty lines."""
        lines = [line.split() for line in text.splitlines() if line.strip() and "Calling" not in line]
        return [line[2:] if len(line) == 8 and line[0] != "TOKENID" else line[:-1] for line in lines]

    create = ("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    ours, theirs = klog("tokens", *create, *where), tools.run(TOOL, *create, *where)
    assert (ours.code, theirs.status) == (0, 0), (ours, theirs)
    assert shape(ours.out) == shape(theirs.out)
    hmacs = [text.split("MAXDATE")[1].split()[1] for text in (ours.out, theirs.out)]
    for action, period in (("--renew", "--renew-time-period"), ("--expire", "--expiry-time-period")):
        words = [(action, period, "60000", "--hmac", each, *where) for each in hmacs]
        ours, theirs = klog("tokens", *words[0]), tools.run(TOOL, *words[1])
        assert (ours.code, theirs.status) == (0, 0), (ours, theirs)
        assert shape(ours.out) == shape(theirs.out)
    # Without an owner Kafka's tool asks for the tokens of nobody.
    describe = ("--describe", "--owner-principal", "User:alice", *where)
    ours, theirs = klog("tokens", *describe), tools.run(TOOL, *describe)
    assert hmacs[0] not in ours.out
    assert hmacs[0] in theirs.out
    assert ours.out.splitlines()[0] == theirs.out.splitlines()[1]
