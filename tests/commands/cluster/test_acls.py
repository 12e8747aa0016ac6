"""`klog acls`, `klog users` and `klog quotas` on real clusters, beside Kafka's tools."""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Iterator

import pytest

from klog.admin.acls import Wanted, acls_of, filters_to_list, filters_to_remove
from klog.admin.requests.scram_users import ScramMechanism, salted
from klog.formats.errors import UsageError
from klog.protocol.acls import AclFilter, AclOperation, AclResourceType, PatternType, Permission
from tests.commands.asking import keeps_to_the_rule
from tests.commands.running import Run, runner
from tests.peers import KRaftBroker, ZooKeeperBroker
from tests.peers.tool_server import ToolServer
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

ACLS = "kafka.admin.AclCommand"
CONFIGS = "kafka.admin.ConfigCommand"

_numbers = itertools.count()


@pytest.fixture(scope="session", params=["kafka3", "kafka4", "klog"])
def secured(request: pytest.FixtureRequest, tmp_path_factory) -> Iterator[str]:
    """The address of a Kafka or a klog with an authoriser, which lets everybody do everything."""
    starter, authorizer = {
        "kafka3": (ZooKeeperBroker, "kafka.security.authorizer.AclAuthorizer"),
        "kafka4": (KRaftBroker, "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        "klog": (KlogBroker, "kafka.security.authorizer.AclAuthorizer"),
    }[request.param]
    config = {
        "authorizer.class.name": authorizer,
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }
    if starter is KlogBroker:
        with KlogBroker(tmp_path_factory.mktemp("secured"), config) as broker:
            yield broker.start().bootstrap
        return
    peer = request.getfixturevalue(request.param)
    with starter(tmp_path_factory.mktemp("secured"), config, peer=peer) as broker:
        yield broker.bootstrap


@pytest.fixture
def on_secured(secured: str, capfd, monkeypatch) -> Run:
    """The command line, with the secured cluster as its default."""
    monkeypatch.setenv("KLOG_BOOTSTRAP_SERVER", secured)
    return runner(capfd, monkeypatch)


@pytest.fixture
def name() -> str:
    return f"secured-{next(_numbers)}"


def rows(klog: Run, *words: object) -> list[dict]:
    outcome = klog(*words, "--json")
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


@pytest.mark.parametrize("cluster", ["klog"], indirect=True)
@pytest.mark.parametrize(
    "words", [("acls", "list"), ("acls", "add", "--allow-principal", "User:a", "--topic", "t")]
)
def test_a_broker_without_authoriser_gives_one_message(klog: Run, words: tuple[str, ...]) -> None:
    outcome = klog(*words)
    assert (outcome.code, outcome.out) == (1, "")
    assert "SECURITY_DISABLED" in outcome.err
    assert outcome.err.count("\n") == 1


# -- acls ----------------------------------------------------------------------------------------------------


@pytest.mark.kafka
def test_acls_are_added_listed_and_removed(on_secured: Run, name: str) -> None:
    klog = on_secured
    words = ("--allow-principal", "User:shop", "--consumer", "--topic", name, "--group", name)
    assert klog("acls", "add", *words).err == "3 ACLs added\n"

    def listed(*more: str) -> list[tuple[str, str]]:
        found = rows(klog, "acls", "list", "--topic", name, "--group", name, *more)
        return sorted((each["resourceType"], each["operation"]) for each in found)

    everything = [("GROUP", "READ"), ("TOPIC", "DESCRIBE"), ("TOPIC", "READ")]
    eventually(lambda: listed() == everything)
    assert listed("--principal", "User:shop") == everything
    assert listed("--principal", "User:other") == []
    refused = klog("acls", "remove", "--topic", name)
    assert (refused.code, listed()) == (1, everything)
    one = ("--allow-principal", "User:shop", "--operation", "Read", "--topic", name, "--yes")
    assert "1 ACL removed" in klog("acls", "remove", *one).err
    eventually(lambda: listed() == [("GROUP", "READ"), ("TOPIC", "DESCRIBE")])
    assert "2 ACLs removed" in klog("acls", "remove", "--topic", name, "--group", name, "--yes").err
    eventually(lambda: listed() == [])
    assert "there are no such ACLs" in klog("acls", "remove", "--topic", name, "--yes").err


@pytest.mark.kafka
def test_acls_are_printed_as_by_kafka_acls(
    on_secured: Run, secured: str, name: str, tools: ToolServer
) -> None:
    def both(*words: str) -> tuple[list[str], list[str]]:
        options = ("--bootstrap-server", secured, *words)
        theirs, ours = tools.run(ACLS, *options), on_secured("acls", *options)
        assert (ours.code == 0) == (theirs.status == 0), (ours.err, theirs.err)
        return _ordered(ours.out), _ordered(theirs.out)

    for words in (
        ("--add", "--allow-principal", "User:a", "--producer", "--topic", name, "--transactional-id", name),
        ("--add", "--deny-principal", "User:b", "--deny-host", "10.0.0.1", "--topic", f"{name}-2"),
        ("--add", "--allow-principal", "User:c", "--operation", "Alter", "--cluster", "--force"),
        (
            *(
                "--add",
                "--allow-principal",
                "User:d",
                "--operation",
                "read",
                "--operation",
                "DescribeConfigs",
            ),
            *("--topic", name[:-1], "--resource-pattern-type", "prefixed"),
        ),
    ):
        ours, theirs = both(*words)
        assert ours == theirs, words
    described = ("--list", "--topic", name, "--resource-pattern-type", "match")
    eventually(lambda: "User:d" in on_secured("acls", *described).out)
    for words in (described, ("--list", "--topic", name), ("--list", "--principal", "User:a")):
        ours, theirs = both(*words)
        assert ours == theirs != [], words
    for words in (("--list", "--topic", "none-of-these"), ("--add", "--allow-principal", "User:a")):
        both(*words)
    on_secured("acls", "remove", "--cluster", "--yes")


def _ordered(text: str) -> list[str]:
    """The lines in order: Kafka's tool has ACLs in that of hash maps, with spaces around each group."""
    return sorted(line.strip() for line in text.splitlines())


@pytest.mark.kafka
@pytest.mark.parametrize("cluster", [pytest.param("kafka3", marks=pytest.mark.kafka)], indirect=True)
def test_a_broker_without_an_authoriser_says_so(klog: Run) -> None:
    outcome = klog("acls", "list")
    assert outcome.code == 1
    assert "SECURITY_DISABLED" in outcome.err


def test_a_producer_needs_other_operations_than_a_consumer() -> None:
    resources = (
        (AclResourceType.TOPIC, "t"),
        (AclResourceType.GROUP, "g"),
    )
    found = acls_of(Wanted(resources, allowed=("User:a",), producer=True, consumer=True))
    said = {str(pattern.name): [each.operation.name for each in acls] for pattern, acls in found.items()}
    assert said == {"t": ["WRITE", "DESCRIBE", "CREATE", "READ"], "g": ["READ"]}


def test_both_sides_have_their_own_hosts() -> None:
    wanted = Wanted(
        ((AclResourceType.TOPIC, "t"),),
        allowed=("User:a", "User:b"),
        denied=("User:c",),
        allow_hosts=("1.1.1.1",),
    )
    ((_, found),) = acls_of(wanted).items()
    assert [(each.principal, each.host, each.permission) for each in found] == [
        ("User:a", "1.1.1.1", Permission.ALLOW),
        ("User:b", "1.1.1.1", Permission.ALLOW),
        ("User:c", "*", Permission.DENY),
    ]
    assert {each.operation for each in found} == {AclOperation.ALL}


@pytest.mark.parametrize(
    "wrong",
    [
        Wanted((), allowed=("User:a",)),
        Wanted(((AclResourceType.TOPIC, "t"),)),
        Wanted(((AclResourceType.TOPIC, "t"),), PatternType.MATCH, allowed=("User:a",)),
        Wanted(((AclResourceType.GROUP, "g"),), allowed=("User:a",), producer=True),
        Wanted(((AclResourceType.TOPIC, "t"),), allowed=("User:a",), consumer=True),
        Wanted(((AclResourceType.TOPIC, "t"),), allowed=("User:a",), idempotent=True),
        Wanted(((AclResourceType.TOPIC, "t"),), allowed=("User:a", "b")),
        Wanted(((AclResourceType.TOPIC, "t"),), denied=(":b",)),
    ],
)
def test_what_is_missing_is_said(wrong: Wanted) -> None:
    with pytest.raises(UsageError):
        acls_of(wrong)


def test_filters_without_a_principal_mean_all_acls_of_the_resources() -> None:
    wanted = Wanted(((AclResourceType.TOPIC, "t"),))
    assert filters_to_remove(wanted) == [AclFilter(AclResourceType.TOPIC, "t", PatternType.LITERAL)]
    assert filters_to_list(Wanted(()), ["User:a"]) == [AclFilter(principal="User:a")]
    with pytest.raises(UsageError):
        filters_to_remove(Wanted(()))


# -- users ---------------------------------------------------------------------------------------------------


@pytest.mark.kafka
def test_acls_of_a_topic_that_is_an_argument(on_secured: Run, name: str) -> None:
    klog = on_secured
    assert klog("acls", "add", name, "--allow-principal", "User:a", "--operation", "Read").code == 0
    eventually(lambda: [each["principal"] for each in rows(klog, "acls", "list", name)] == ["User:a"])
    keeps_to_the_rule(klog, "acls remove", [name], lambda: rows(klog, "acls", "list", name))
    assert rows(klog, "acls", "list", name) == []


def test_passwords_are_set_and_removed(on_secured: Run, name: str, monkeypatch) -> None:
    klog = on_secured
    assert klog("users", "list", name).code == 1
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "scram-sha-512")
    done = klog("users", "set-password", name, *both, "--iterations", 5000)
    assert done.code == 0, done.err
    assert "secret" not in done.err
    eventually(lambda: klog("users", "list", name).code == 0)
    eventually(lambda: len(rows(klog, "users", "list", name)) == 2)
    assert rows(klog, "users", "list", name) == [
        {"user": name, "mechanism": "SCRAM-SHA-256", "iterations": 5000},
        {"user": name, "mechanism": "SCRAM-SHA-512", "iterations": 5000},
    ]
    assert klog("users", "delete", name).code == 1
    assert klog("users", "delete", name, "--mechanism", "SCRAM-SHA-512", "--yes").code == 0
    eventually(lambda: len(rows(klog, "users", "list", name)) == 1)
    assert klog("users", "delete", name, "--mechanism", "SCRAM-SHA-512", "--yes").code == 1
    assert klog("users", "delete", name, "--yes").code == 0
    eventually(lambda: klog("users", "list", name).code == 1)


def in_any_order(text: str) -> list[list[str]]:
    """The words of each line. Kafka lists entities and credentials in the orders of hash maps."""
    return sorted(sorted(re.split("[ ,]+", line)) for line in text.splitlines())


@pytest.mark.kafka
def test_users_are_described_and_altered_as_by_kafka_configs(
    on_secured: Run, secured: str, name: str, tools: ToolServer
) -> None:
    klog = on_secured
    at = ("--bootstrap-server", secured)
    who = ("--entity-type", "users", "--entity-name", name)
    for credential in ("SCRAM-SHA-256=[iterations=8192,password=x]", "SCRAM-SHA-512=[password=y]"):
        ours = klog("users", *at, "--alter", *who, "--add-config", credential)
        theirs = tools.run(CONFIGS, *at, "--alter", *who, "--add-config", credential)
        assert (ours.out, ours.code, theirs.status) == (theirs.out, 0, 0), ours.err
    described = (*at, "--describe", *who)
    eventually(lambda: klog("users", *described).out.count("SCRAM-SHA") == 2)
    assert in_any_order(klog("users", *described).out) == in_any_order(tools.run(CONFIGS, *described).out)
    few = ("--add-config", "SCRAM-SHA-256=[iterations=100,password=x]")
    assert klog("users", *at, "--alter", *who, *few).code != 0
    assert klog("users", *at, "--alter", *who, "--delete-config", "SCRAM-SHA-256").code == 0


def test_a_credential_is_that_of_rfc_7677() -> None:
    import base64
    import hashlib
    import hmac

    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    found = salted("user", "pencil", ScramMechanism.SCRAM_SHA_256, salt, 4096)
    stored = hashlib.sha256(hmac.digest(found.salted_password, b"Client Key", "sha256")).digest()
    assert base64.b64encode(stored) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="


def test_an_empty_password_is_refused(klog: Run, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert klog("users", "set-password", "alice").code == 2
    assert klog("users", "set-password", "alice", "--password-file", "no-such-file").code == 1
    assert klog("users", "set-password", "alice", "--mechanism", "PLAIN").code == 2


# -- quotas --------------------------------------------------------------------------------------------------


@pytest.mark.kafka
def test_quotas_are_set_listed_and_removed(on_secured: Run, name: str) -> None:
    klog = on_secured

    def listed() -> list[tuple]:
        found = rows(klog, "quotas", "list", "--user", name)
        return [(each["clientId"], each["key"], each["value"]) for each in found]

    assert listed() == []
    rates = ("--set", "producer_byte_rate=1024", "--set", "request_percentage=12.5")
    assert klog("quotas", "alter", "--user", name, *rates).code == 0
    assert klog("quotas", "alter", "--user", name, "--client-id-defaults", *rates[:2]).code == 0
    expected = [
        (None, "producer_byte_rate", 1024),
        (None, "request_percentage", 12.5),
        ("<default>", "producer_byte_rate", 1024),
    ]
    eventually(lambda: listed() == expected)
    assert klog("quotas", "alter", "--user", name, "--delete", "producer_byte_rate").code == 0
    eventually(lambda: listed() == expected[1:])
    wrong = klog("quotas", "alter", "--user", name, "--set", "no_such_rate=1")
    assert wrong.code == 1
    assert "no_such_rate" in wrong.err


@pytest.mark.kafka
def test_quotas_are_printed_as_by_kafka_configs(
    on_secured: Run, secured: str, name: str, tools: ToolServer
) -> None:
    at = ("--bootstrap-server", secured)

    def both(*words: str) -> None:
        theirs, ours = tools.run(CONFIGS, *at, *words), on_secured("quotas", *at, *words)
        assert (ours.out, ours.code == 0) == (theirs.out, theirs.status == 0), (words, ours.err, theirs.err)

    user = ("--entity-type", "users", "--entity-name", name)
    both("--alter", *user, "--add-config", "producer_byte_rate=5000,consumer_byte_rate=7")
    both("--alter", "--entity-type", "ips", "--entity-default", "--add-config", "connection_creation_rate=9")
    for entity in (user, ("--entity-type", "ips", "--entity-default")):
        eventually(lambda entity=entity: on_secured("quotas", *at, "--describe", *entity).out)
        both("--describe", *entity)
    both("--alter", *user, "--delete-config", "producer_byte_rate,consumer_byte_rate")
    both("--alter", "--entity-type", "ips", "--entity-default", "--delete-config", "connection_creation_rate")
    for pair in (
        (*user, "--entity-type", "clients", "--entity-default"),
        ("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-name", name),
    ):
        both("--alter", *pair, "--add-config", "producer_byte_rate=31")
        eventually(lambda pair=pair: on_secured("quotas", *at, "--describe", *pair).out)
        both("--describe", *pair)
        both("--alter", *pair, "--delete-config", "producer_byte_rate")


@pytest.mark.kafka
def test_users_clients_and_ips_are_configured_as_by_kafka_configs(
    on_secured: Run, secured: str, name: str, tools: ToolServer
) -> None:
    at = ("--bootstrap-server", secured)

    def both(*words: str) -> None:
        theirs, ours = tools.run(CONFIGS, *at, *words), on_secured("configs", *at, *words)
        assert in_any_order(ours.out) == in_any_order(theirs.out), words
        assert (ours.code == 0) == (theirs.status == 0), (words, ours.err, theirs.err)

    def described(*words: str, holding: str) -> None:
        eventually(lambda: holding in on_secured("configs", *at, "--describe", *words).out)
        both("--describe", *words)

    user = ("--entity-type", "users", "--entity-name", name)
    both("--alter", *user, "--add-config", "producer_byte_rate=5000")
    both("--alter", *user, "--add-config", "SCRAM-SHA-512=[iterations=5000,password=secret]")
    described(*user, holding="SCRAM-SHA-512=iterations=5000")
    described("--user", name, holding="producer_byte_rate")
    described("--entity-type", "users", holding=f"SCRAM credential configs for user-principal '{name}'")
    client = ("--entity-type", "clients", "--entity-name", f"{name}-c")
    both("--alter", *user, *client, "--add-config", "consumer_byte_rate=7")
    described(*user, *client, holding="consumer_byte_rate")
    both("--alter", "--client-defaults", "--add-config", "request_percentage=50")
    described("--client-defaults", holding="request_percentage")
    both("--alter", "--ip", "10.1.2.3", "--add-config", "connection_creation_rate=9")
    described("--entity-type", "ips", holding="10.1.2.3")
    # What is refused
    both("--alter", *user, "--add-config", "no_such_rate=1")
    both("--alter", *user, "--add-config", "SCRAM-SHA-512=[password=x],producer_byte_rate=1")
    both("--alter", *client, "--add-config", "SCRAM-SHA-512=[password=x]")
    both("--alter", "--user-defaults", "--add-config", "SCRAM-SHA-512=[password=x]")
    both("--alter", "--entity-type", "users", "--add-config", "producer_byte_rate=1")
    # And removed
    removing = (*at, "--alter", *user, "--delete-config", "SCRAM-SHA-512")
    ours = on_secured("configs", *removing)
    assert ours.code == 0, ours.err
    eventually(lambda: "SCRAM" not in on_secured("configs", *at, "--describe", *user).out)
    both(*removing[2:])  # what is not there cannot be removed
    on_secured("configs", *at, "--alter", *user, "--add-config", "SCRAM-SHA-512=[password=x]")
    eventually(lambda: "SCRAM" in on_secured("configs", *at, "--describe", *user).out)
    assert tools.run(CONFIGS, *removing).out == ours.out
    both("--alter", *user, "--delete-config", "producer_byte_rate")
    both("--alter", *user, *client, "--delete-config", "consumer_byte_rate")
    both("--alter", "--client-defaults", "--delete-config", "request_percentage")
    both("--alter", "--ip", "10.1.2.3", "--delete-config", "connection_creation_rate")


@pytest.mark.kafka
@pytest.mark.parametrize("force", [True, False])
def test_acls_are_removed_as_by_kafka_acls(
    on_secured: Run, secured: str, name: str, tools: ToolServer, *, force: bool
) -> None:
    """With --force it says nothing; without, and without anyone to answer, neither removes anything."""
    at = ("--bootstrap-server", secured)
    found = []
    for number in range(2):
        topic = ("--topic", f"{name}-{number}")
        assert on_secured("acls", *at, "--add", "--allow-principal", "User:a", "--producer", *topic).code == 0
        eventually(lambda topic=topic: rows(on_secured, "acls", "list", *topic))
        words = (*at, "--remove", *topic, *(("--force",) if force else ()))
        done = on_secured("acls", *words) if number else tools.run(ACLS, *words)
        left = bool(rows(on_secured, "acls", "list", *topic)) if not force else False
        if force:
            eventually(lambda topic=topic: not rows(on_secured, "acls", "list", *topic))
        found.append((done.out.strip() if force else "", left))
        on_secured("acls", "remove", *topic, "--yes")
    assert found == [("", not force)] * 2


def test_whose_quota_it_is_must_be_said(klog: Run) -> None:
    rate = ("--set", "producer_byte_rate=1")
    for words in (
        ("quotas", "alter", *rate),
        ("quotas", "alter", "--user", "a"),
        ("quotas", "alter", "--user", "a", "--user-defaults", *rate),
        ("quotas", "alter", "--user", "a", "--ip", "10.0.0.1", *rate),
        ("quotas", "alter", "--user", "a", "--set", "producer_byte_rate=fast"),
        ("quotas", "alter", "--user", "a", *rate, "--delete", "producer_byte_rate"),
        ("quotas", "list", "--entity-type", "topics"),
    ):
        assert klog(*words).code == 2, words
