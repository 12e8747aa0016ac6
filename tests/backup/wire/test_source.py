"""Backups of a running klog broker over the wire: only what is new, whatever happens to the log meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

import klog.testing
from klog.backup.verify import VerifyOptions, verify
from klog.backup.wire import reader
from klog.client.errors import RefusedError
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.testing.cluster_view import wait_for
from klog.testing.process import BrokerProcess
from tests.backup.repositories import Backups, log_files
from tests.commands.running import runner

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("others", 0)


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with klog.testing.broker({"log.retention.check.interval.ms": 500}) as running:
        for topic in ("orders", "others"):
            running.create_topic(topic, partitions=1)
        yield running


def produce(broker: BrokerProcess, topic: str, values: int, **configs: object) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, **configs}
    producer = Producer(settings)
    for number in range(values):
        producer.produce(topic, f"value {number}".encode() * 10, str(number).encode())
        if number % 50 == 49:
            producer.flush(30)
    assert producer.flush(30) == 0


def on_disk(broker: BrokerProcess, topic: str) -> bytes:
    return b"".join(log_files(broker.partition_dir(topic)).values())


def kept(backups: Backups, topic: str) -> bytes:
    return b"".join(backups.segments(topic).values())


def test_each_run_reads_only_what_is_new(broker: BrokerProcess, backups: Backups) -> None:
    for number in range(1, 4):
        produce(broker, "orders", 200)
        result = backups.run_over_wire(broker.bootstrap_servers)
        assert result.is_clean
        assert kept(backups, "orders") == on_disk(broker, "orders")
        assert result.manifest.read_bytes == len(on_disk(broker, "orders")) // number
    assert len(backups.states()[ORDERS].pieces) == 3
    assert backups.run_over_wire(broker.bootstrap_servers).changed == 0


def test_a_backup_over_the_wire_has_the_same_as_one_of_the_log_directories(
    broker: BrokerProcess, backups: Backups, tmp_path: Path
) -> None:
    produce(broker, "orders", 500, **{"compression.type": "zstd"})
    produce(broker, "others", 100)
    backups.run_over_wire(broker.bootstrap_servers)
    of_disk = Backups(tmp_path / "of-disk")
    of_disk.run(broker.log_dirs[0], log_end=True)

    assert of_disk.states().keys() == backups.states().keys()
    for partition, state in of_disk.states().items():
        assert backups.segments(*partition) == of_disk.segments(*partition)
        other = backups.states()[partition]
        assert (other.topic_id, other.end_offset, other.log_start_offset, other.epochs) == (
            state.topic_id,
            state.end_offset,
            state.log_start_offset,
            state.epochs,
        )


def test_lost_pieces_are_fetched_again(broker: BrokerProcess, backups: Backups) -> None:
    for _ in range(2):
        produce(broker, "orders", 200)
        backups.run_over_wire(broker.bootstrap_servers)
    names = {piece.name for piece in backups.states()[ORDERS].pieces}
    for name in names:
        (Path(backups.place) / name).unlink()
    repository = backups.repository
    damaged = verify(repository, repository.ids(), VerifyOptions()).findings

    result = backups.run_over_wire(broker.bootstrap_servers, damaged=damaged)

    assert (result.is_clean, result.healed, result.changed) == (True, 2, 0)
    assert not verify(repository, repository.ids(), VerifyOptions()).findings
    assert kept(backups, "orders") == on_disk(broker, "orders")


def test_only_the_topics_that_are_asked_for_are_read(broker: BrokerProcess, backups: Backups) -> None:
    produce(broker, "orders", 10)
    produce(broker, "others", 10)
    backups.run_over_wire(broker.bootstrap_servers, patterns=("ord.*",))
    assert list(backups.states()) == [ORDERS]
    backups.run_over_wire(broker.bootstrap_servers, patterns=("oth.*",))
    assert list(backups.states()) == [ORDERS, OTHERS]


def test_what_was_deleted_in_the_cluster_is_not_in_the_next_backup(
    broker: BrokerProcess, backups: Backups
) -> None:
    produce(broker, "orders", 100)
    produce(broker, "others", 100)
    first = backups.run_over_wire(broker.bootstrap_servers).manifest.id
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["others"])["others"].result()
    admin.delete_records([Position("orders", 0, 60)])[Position("orders", 0)].result()

    result = backups.run_over_wire(broker.bootstrap_servers)
    assert result.is_clean
    assert list(backups.states()) == [ORDERS]
    state = backups.states()[ORDERS]
    assert (state.log_start_offset, state.end_offset) == (60, 100)
    assert result.manifest.read_bytes == 0
    assert list(backups.states(first)) == [ORDERS, OTHERS]


def test_a_log_that_begins_in_the_middle_of_a_batch_has_that_batch(
    broker: BrokerProcess, backups: Backups
) -> None:
    produce(broker, "orders", 100)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_records([Position("orders", 0, 60)])[Position("orders", 0)].result()
    backups.run_over_wire(broker.bootstrap_servers)
    state = backups.states()[ORDERS]
    assert (state.log_start_offset, state.end_offset) == (60, 100)
    assert state.pieces[0].first_offset < 60
    assert list(state.segments()) == [state.pieces[0].first_offset]


def created_again(broker: BrokerProcess) -> bool | None:
    """None while the topic is still being deleted."""
    try:
        broker.create_topic("orders", partitions=1)
    except RefusedError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        return None
    return True


def test_a_topic_that_was_created_again_is_another_log(broker: BrokerProcess, backups: Backups) -> None:
    produce(broker, "orders", 100)
    backups.run_over_wire(broker.bootstrap_servers)
    old = backups.states()[ORDERS]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["orders"])["orders"].result()
    wait_for(lambda: created_again(broker), "orders was not deleted")
    produce(broker, "orders", 150)
    backups.run_over_wire(broker.bootstrap_servers)
    new = backups.states()[ORDERS]
    assert new.topic_id != old.topic_id
    assert new.end_offset == 150
    assert kept(backups, "orders") == on_disk(broker, "orders")


def test_damage_at_the_source_is_named_and_what_is_around_it_kept(
    broker: BrokerProcess, backups: Backups
) -> None:
    produce(broker, "orders", 100)
    produce(broker, "orders", 100)
    whole = on_disk(broker, "orders")
    [path] = broker.partition_dir("orders").glob("*.log")
    data = bytearray(whole)
    data[70] ^= 1  # in the first batch
    path.write_bytes(data)

    result = backups.run_over_wire(broker.bootstrap_servers)
    state = backups.states()[ORDERS]
    [damage] = state.damage
    assert result.damaged == (ORDERS,)
    assert "fails its checksum" in damage.what
    assert damage.first_offset == 0
    assert damage.end_offset == state.pieces[0].first_offset > 0
    assert whole.endswith(kept(backups, "orders"))
    assert state.end_offset == 200
    again = backups.run_over_wire(broker.bootstrap_servers)
    assert not again.is_clean


@pytest.fixture
def _small_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition takes many requests."""
    monkeypatch.setattr(reader, "FETCH_BYTES", 1_000)


@pytest.mark.usefixtures("_small_fetches")
def test_what_was_read_before_the_broker_died_is_kept_and_the_next_run_goes_on(
    broker: BrokerProcess, backups: Backups
) -> None:
    produce(broker, "orders", 500)
    whole = on_disk(broker, "orders")
    result = backups.run_over_wire(
        broker.bootstrap_servers, timeout_ms=1_000, on_bytes=lambda _bytes: broker.kill()
    )
    [problem] = [each for each in result.manifest.problems if each.partition == ORDERS]
    assert "connect" in problem.what
    first = kept(backups, "orders")
    assert first
    assert whole.startswith(first)
    assert len(first) < len(whole)

    broker.start()
    again = backups.run_over_wire(broker.bootstrap_servers)
    assert again.is_clean, again.manifest.problems
    assert again.manifest.read_bytes == len(whole) - len(first)
    assert kept(backups, "orders") == whole


@pytest.mark.usefixtures("_small_fetches")
def test_a_broker_that_starts_again_meanwhile_does_no_harm(broker: BrokerProcess, backups: Backups) -> None:
    produce(broker, "orders", 500)
    restarts = iter([True])

    def restart_once(_bytes: int) -> None:
        if next(restarts, False):
            broker.kill()
            broker.start()

    result = backups.run_over_wire(broker.bootstrap_servers, on_bytes=restart_once)
    assert result.is_clean, result.manifest.problems
    assert kept(backups, "orders") == on_disk(broker, "orders")


def test_the_command_reads_a_cluster_and_what_it_keeps_is_restored(
    broker: BrokerProcess,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    klog_command = runner(capfd, monkeypatch)
    produce(broker, "orders", 200)
    place, path = tmp_path / "repository", tmp_path / "restored"
    done = klog_command("backup", "run", "--bootstrap-server", broker.bootstrap_servers, "--to", place)
    assert done.code == 0, done.err
    assert klog_command("backup", "verify", place).code == 0
    assert klog_command("restore", place, "--to", path).code == 0
    assert b"".join(log_files(path / "orders-0").values()) == on_disk(broker, "orders")
    assert klog_command("verify", path).code == 0


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((), "missing SOURCE (or --bootstrap-server HOST:PORT)"),
        (("logs", "-b", "127.0.0.1:1"), "SOURCE and --bootstrap-server exclude each other"),
        (("-b", "127.0.0.1:1", "--log-end"), "over the wire no record above the high watermark can be read"),
    ],
)
def test_a_run_names_one_kind_of_source(
    words: tuple[str, ...],
    what: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = runner(capfd, monkeypatch)("backup", "run", "--to", tmp_path / "repository", *words)
    assert done.code == 2
    assert what in done.err
    assert not (tmp_path / "repository").exists()
