"""Kafka 3.9.1 with SASL_SSL, SCRAM and ACLs: the rights of docs/backup.md are enough, and each is needed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic

from klog.admin import connect
from klog.admin.requests.scram_users import ScramMechanism, alter_users, salted
from klog.admin.settings import settings_of
from klog.backup.producing.groups import is_of_brokers
from klog.commands.shared.properties import properties_file
from klog.formats.names import CONSUMER_OFFSETS
from klog.protocol.errors import AuthenticationFailedError
from tests.backup import seen
from tests.backup.repositories import Backups
from tests.commands.running import Outcome, Run, runner
from tests.docs.backup_page import blocks
from tests.peers.broker import ZooKeeperBroker, free_port
from tests.peers.kafka import KafkaPeer
from tests.server.network.servers import TLS_FILES
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

CERTIFICATE = TLS_FILES / "certificate.pem"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
USERS = ("backup", "restore")
RECORDS = 50


class Right(NamedTuple):
    """What `klog acls` calls a resource and an operation."""

    resource: tuple[str, ...]
    operation: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource[0].removeprefix('--')}"


def rights_of(heading: str, user: str) -> list[Right]:
    """The rights that a section of the page grants to a user."""
    found = []
    (block,) = (each for each in blocks(heading) if each.startswith("klog acls add"))
    for line in block.splitlines():
        words = shlex.split(line)[3:]
        assert words[:2] == ["--allow-principal", f"User:{user}"]
        first = words.index("--operation")
        found += [Right(tuple(words[2:first]), each) for each in words[first + 1 :: 2]]
    return found


TO_BACK_UP = rights_of("Managed Kafka", "backup")
TO_RESTORE = rights_of("Into a running cluster", "restore")


@dataclass(frozen=True)
class Secured:
    """A broker with a listener for the administrator, and one for users with passwords."""

    plain: str
    address: str
    work: Path
    backups: Backups

    def login(self, user: str) -> tuple[object, ...]:
        return (
            "-b",
            self.address,
            "--command-config",
            self.work / f"{user}.properties",
            "--timeout-ms",
            10_000,
        )


def fill(plain: str) -> None:
    admin = AdminClient({"bootstrap.servers": plain})
    for made in admin.create_topics([NewTopic("orders", 1), NewTopic("clicks", 1)]).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": plain, "transactional.id": "shop"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce("orders", f"order {number}".encode())
        producer.produce("clicks", f"click {number}".encode())
    producer.commit_transaction(60)
    consumer = Consumer({"bootstrap.servers": plain, "group.id": "billing"})
    consumer.commit(offsets=[Position("orders", 0, 20)], asynchronous=False)
    # The coordinator writes the markers after its answer, and backups are compared with what is there now.
    written = [Position("orders", 0), Position("clicks", 0)]
    eventually(lambda: {consumer.get_watermark_offsets(each, 30)[1] for each in written} == {RECORDS + 1})
    consumer.close()
    with connect.cluster(settings_of({}, bootstrap=plain)) as client:
        alter_users(
            client, [salted(user, "pencil", ScramMechanism.SCRAM_SHA_512, b"s" * 16) for user in USERS]
        )


def is_known(address: str, login: Path) -> bool:
    """Whether the broker lets a user in."""
    try:
        with connect.cluster(settings_of(properties_file(login), bootstrap=address)):
            return True
    except AuthenticationFailedError:
        return False


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, kafka3: KafkaPeer) -> Iterator[Secured]:
    work = tmp_path_factory.mktemp("secured")
    keystore = work / "keystore.pem"
    keystore.write_text((TLS_FILES / "key.pem").read_text() + CERTIFICATE.read_text())
    plain, address = f"127.0.0.1:{free_port()}", f"localhost:{free_port()}"
    config = {
        "listeners": f"PLAINTEXT://{plain},SASL_SSL://{address}",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    for user in USERS:
        path = work / f"{user}.properties"
        path.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={CERTIFICATE}\n"
            f'sasl.jaas.config={SCRAM} username="{user}" password="pencil";\n'
        )
        path.chmod(0o600)
    with ZooKeeperBroker(work / "kafka", config, kafka3):
        fill(plain)
        # The broker learns of passwords after its answer, too.
        eventually(lambda: all(is_known(address, work / f"{user}.properties") for user in USERS))
        backups = Backups(work / "repository")
        assert backups.run_over_wire(plain).is_clean
        yield Secured(plain, address, work, backups)


Acl = Callable[..., None]


@pytest.fixture
def klog_command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture
def acl(klog_command: Run, secured: Secured) -> Iterator[Acl]:
    """Adds and removes ACLs of users. None is left after a test."""
    made: list[tuple[str, ...]] = []

    def change(verb: str, user: str, right: Right, kind: str = "--allow-principal") -> None:
        words = (kind, f"User:{user}", *right.resource, "--operation", right.operation)
        more = ("--yes",) if verb == "remove" else ()
        done = klog_command("acls", verb, *words, *more, "-b", secured.plain)
        assert done.code == 0, done.err
        made.append(words) if verb == "add" else made.remove(words)

    yield change
    for words in made:
        assert klog_command("acls", "remove", *words, "--yes", "-b", secured.plain).code == 0


BackUp = Callable[[], Outcome]


@pytest.fixture
def back_up(klog_command: Run, secured: Secured, acl: Acl, backups: Backups) -> BackUp:
    """Makes a backup as a user with the rights of the page."""
    for right in TO_BACK_UP:
        acl("add", "backup", right)
    return lambda: klog_command("backup", "run", *secured.login("backup"), "--to", backups.place)


def kept(backups: Backups) -> Mapping[str, bytes]:
    """The logs of the topics that a backup has records of."""
    return {
        str(each): log
        for each in backups.states()
        if (log := b"".join(backups.segments(*each).values())) and not is_of_brokers(each.topic)
    }


def test_the_rights_of_the_page_are_enough_for_a_backup(
    back_up: BackUp, secured: Secured, backups: Backups
) -> None:
    done = back_up()

    assert done.code == 0, done.err
    untold = [line for line in done.err.splitlines() if "the SCRAM-SHA-512 credential of user" not in line]
    assert untold == []
    assert backups.states().keys() == secured.backups.states().keys()
    assert kept(backups) == kept(secured.backups)


@pytest.mark.parametrize("missing", [each for each in TO_BACK_UP if each.operation != "Read"], ids=str)
def test_without_one_of_them_records_are_backed_up_and_what_is_missing_is_said(
    back_up: BackUp, acl: Acl, secured: Secured, backups: Backups, missing: Right
) -> None:
    of_groups = missing.resource[0] == "--group"
    if of_groups:
        acl("add", "backup", Right(("--topic", CONSUMER_OFFSETS), "Read"), "--deny-principal")
    acl("remove", "backup", missing)

    done = back_up()

    assert done.code == (1 if of_groups else 0)
    said = {
        "DescribeConfigs on topic": ("configs of topic __consumer_offsets: TOPIC_", "and so for 3 more"),
        "Describe on cluster": ("ACLs: CLUSTER_", "SCRAM users: CLUSTER_", "are not noticed"),
        "DescribeConfigs on cluster": (
            "configs of all brokers: ",
            "configs of broker 0: ",
            "quotas: CLUSTER_",
        ),
        "Describe on group": ("offsets of group billing: GROUP_AUTHORIZATION_FAILED",),
    }
    for each in (*said[str(missing)], f"it needs {missing.operation}"):
        assert each in done.err
    assert kept(backups) == kept(secured.backups)


def test_without_a_right_to_any_topic_the_first_backup_names_them_all(back_up: BackUp, acl: Acl) -> None:
    for right in TO_BACK_UP:
        if right.resource[0] == "--topic":
            acl("remove", "backup", right)

    done = back_up()

    assert done.code == 1
    for topic in ("orders", "clicks"):
        assert f"{topic}-0: topic {topic}: TOPIC_AUTHORIZATION_FAILED" in done.err
    assert "it needs Read" in done.err


@pytest.mark.parametrize("denied", ["Read", "Describe"])
def test_a_topic_that_may_not_be_read_is_named_and_the_backup_keeps_what_it_had(
    back_up: BackUp, acl: Acl, secured: Secured, backups: Backups, denied: str
) -> None:
    assert back_up().code == 0
    before = kept(backups)
    acl("add", "backup", Right(("--topic", "clicks"), denied), "--deny-principal")
    producer = Producer({"bootstrap.servers": secured.plain})
    producer.produce("clicks", b"later")
    assert producer.flush(30) == 0

    done = back_up()

    assert done.code == 1
    (line,) = (line for line in done.err.splitlines() if "TOPIC_AUTHORIZATION_FAILED" in line)
    assert line.startswith("klog: clicks-0: ")
    assert "it needs Read" in line
    assert kept(backups) == before


@pytest.mark.parametrize("missing", [None, *TO_RESTORE], ids=str)
def test_a_restore_needs_the_rights_of_the_page(
    klog_command: Run, acl: Acl, secured: Secured, tmp_path: Path, missing: Right | None
) -> None:
    name = f"restored-{TO_RESTORE.index(missing) if missing else 'whole'}"
    if str(missing) == "DescribeConfigs on topic":  # it is asked for if the topic exists
        admin = AdminClient({"bootstrap.servers": secured.plain})
        admin.create_topics([NewTopic(name, 1)])[name].result(30)

    def of_name(right: Right) -> Right:
        return right._replace(resource=tuple(name if word == "orders" else word for word in right.resource))

    for right in TO_RESTORE:
        if right != missing:
            acl("add", "restore", of_name(right))

    def restore(*how: str) -> Outcome:
        words = ("--topic", "orders|__.*", "--rename", f"orders={name}", "--mapping", tmp_path / "offsets")
        login = secured.login("restore")
        return klog_command("restore", secured.backups.place, *words, *login, "--quiet", *how)

    said = {
        "Create on topic": f"creating topic {name}: TOPIC_AUTHORIZATION_FAILED",
        "Write on topic": f"writing to topic {name}: TOPIC_AUTHORIZATION_FAILED",
        "Read on topic": f"offsets of group billing for {name}: TOPIC_AUTHORIZATION_FAILED",
        "Read on group": f"offsets of group billing for {name}: GROUP_AUTHORIZATION_FAILED",
    }
    what = said.get(str(missing))
    if missing is not None and what is not None:
        for how in (["--dry-run"], []):
            done = restore(*how)
            assert done.code == 1
            assert what in done.err
            assert f"it needs {missing.operation}" in done.err
        assert name not in AdminClient({"bootstrap.servers": secured.plain}).list_topics(timeout=30).topics
        assert not (tmp_path / "offsets").exists()
        acl("add", "restore", of_name(missing))

    done = restore()

    assert done.code == 0, done.err
    values = [each[2] for each in seen.messages(secured.plain, 0, name)]
    assert values == [f"order {number}".encode() for number in range(RECORDS)]
