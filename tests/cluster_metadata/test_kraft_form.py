"""A KRaft directory is read as Kafka would: the latest whole snapshot and the log after it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import construct as c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.client.admin import Resource, ResourceType
from klog.cluster_metadata import kraft_form, kraft_records
from klog.cluster_metadata.forms import Reading
from klog.cluster_metadata.kraft_replay import KRAFT_VERSION, MetadataReplay
from klog.cluster_metadata.model import (
    METADATA_VERSION,
    Cluster,
    Partition,
    SupportedVersions,
    Topic,
    Voter,
    VoterEndpoint,
)
from klog.formats import cluster_metadata
from klog.formats.errors import (
    CorruptRecordError,
    FormatError,
    KlogError,
    StorageError,
    UnsupportedFormatError,
    UsageError,
)
from klog.metadata.values import LeaderAndIsr, ReplicaAssignment
from klog.security.quotas.entities import DEFAULT, QuotaEntity
from tests.cluster_metadata.kraft_files import CLUSTER_ID, batch, control, directory, metadata, snapshot
from tests.cluster_strategies import clusters
from tests.corpora import FIXTURES

FIXTURE = FIXTURES / "k4-kraft" / "logs"
TOPIC_ID, OTHER_ID = "ey5g-FnqTD-kdOop3hS1Qw", "frJNbmKCSHu4o8p06x_jmw"
DIRECTORY_ID = "0GGzwpLNmJPrCrKx-lOUsQ"
VERSIONS = SupportedVersions(0, 1)
LOG = "00000000000000000000.log"
LEVEL = metadata(12, name=METADATA_VERSION, featureLevel=27)


def topic(name: str = "t", topic_id: str = TOPIC_ID) -> bytes:
    return metadata(2, name=name, topicId=topic_id)


def partition(**changes: object) -> bytes:
    fields: dict[str, object] = {
        "partitionId": 0,
        "topicId": TOPIC_ID,
        "replicas": [1, 2],
        "isr": [1, 2],
        "removingReplicas": [],
        "addingReplicas": [],
        "leader": 1,
        "leaderEpoch": 4,
        "partitionEpoch": 7,
        "directories": [DIRECTORY_ID, DIRECTORY_ID],
    }
    return metadata(3, 2, (), **(fields | changes))


def config(value: str | None, name: str = "retention.ms") -> bytes:
    return metadata(4, resourceType=2, resourceName="t", name=name, value=value)


def written(path: Path, values: Sequence[bytes]) -> str:
    """A directory whose log has these records, each in a batch of its own."""
    log = directory(path)
    (log / LOG).write_bytes(b"".join(batch([value], offset) for offset, value in enumerate(values)))
    return str(path)


def read(*directories: Path | str) -> Reading:
    return kraft_form.read([str(each) for each in directories])


def only_partition(reading: Reading) -> Partition:
    return reading.cluster.topics["t"].partitions[0]


# --- what real Kafka wrote ---


def test_a_directory_of_kafka_4_is_read() -> None:
    reading = read(FIXTURE)
    cluster = reading.cluster
    assert reading.notes == ()
    assert reading.details == (
        f"{FIXTURE}: the snapshot up to offset 96, and the log up to offset 129 in epoch 1",
    )
    assert cluster.cluster_id == "_sEEsoO3R8KWMpPrG_sTow"
    assert {name: len(each.partitions) for name, each in cluster.topics.items()} == {"m-many": 14, "m-one": 1}
    assert cluster.topics["m-one"].topic_id == "frJNbmKCSHu4o8p06x_jmw"
    assert cluster.configs[Resource(ResourceType.TOPIC, "m-one")]["retention.ms"] == "3600029"
    assert cluster.configs[Resource(ResourceType.GROUP, "a-group")] == {
        "consumer.session.timeout.ms": "50000"
    }
    assert cluster.quotas == {
        QuotaEntity("Zoë", DEFAULT): {"producer_byte_rate": 1048576.0},
        QuotaEntity(ip="127.0.0.9"): {"connection_creation_rate": 10.0},
    }
    assert [user.user for user in cluster.scram] == ["alice"]
    assert [acl.principal for acl in cluster.acls] == ["User:alice"]
    assert (cluster.next_producer_id, cluster.features[METADATA_VERSION]) == (1000, 27)
    assert read(FIXTURE / "__cluster_metadata-0") == reading


@pytest.mark.parametrize("end_offset", [41, 68, 96])
def test_each_snapshot_of_kafka_says_what_the_log_before_it_says(end_offset: int, tmp_path: Path) -> None:
    name = f"{end_offset:020}-0000000001.checkpoint"
    from_snapshot = _copy(tmp_path / "snapshot", keep=name)
    from_log = _copy(tmp_path / "log", keep=LOG)
    full = (from_log / "__cluster_metadata-0" / LOG).read_bytes()
    (from_log / "__cluster_metadata-0" / LOG).write_bytes(full[: _position(full, end_offset)])
    assert read(from_snapshot).cluster == read(from_log).cluster


def test_the_log_alone_says_the_same_as_the_latest_snapshot_and_the_log(tmp_path: Path) -> None:
    assert read(_copy(tmp_path, keep=LOG)).cluster == read(FIXTURE).cluster


def test_the_value_makes_the_records_that_kafka_has_in_its_snapshot(tmp_path: Path) -> None:
    name = "00000000000000000096-0000000001.checkpoint"
    dump = (FIXTURES / "k4-kraft" / "dump_4.1" / "__cluster_metadata-0.checkpoint.decoded.txt").read_text()
    lines = dump.partition(f"/{name}\n")[2].partition("Dumping ")[0].splitlines()
    payloads = [json.loads(line.partition("payload: ")[2]) for line in lines if "payload: {" in line]
    expected = sorted((each["type"], each["version"]) for each in payloads)
    cluster = read(_copy(tmp_path, keep=name)).cluster
    made = [cluster_metadata.parse(value) for value in kraft_records.values(cluster)]
    found = sorted((_dump_name(each["type"]), each["version"]) for each in made)
    assert found == expected


def _dump_name(kind: int) -> str:
    return re.sub("(?<!^)(?=[A-Z])", "_", cluster_metadata.TYPE_NAMES[kind]).upper()


def _copy(target: Path, keep: str) -> Path:
    """The fixture with one file of its metadata log."""
    log = directory(target)
    shutil.copy(FIXTURE / "__cluster_metadata-0" / keep, log)
    shutil.copy(FIXTURE / "meta.properties", target)
    return target


def _position(log: bytes, offset: int) -> int:
    """Where the batch with this base offset begins."""
    position = 0
    while int.from_bytes(log[position : position + 8], "big") < offset:
        position += 12 + int.from_bytes(log[position + 8 : position + 12], "big")
    return position


# --- what records mean ---


@given(clusters, st.integers(7, 27))
def test_records_of_a_cluster_make_the_same_cluster(cluster: Cluster, level: int) -> None:
    topics = {
        name: replace(each, topic_id=each.topic_id or OTHER_ID) for name, each in cluster.topics.items()
    }
    unique = {each.topic_id: name for name, each in topics.items()}
    wanted = replace(
        cluster,
        topics={name: topics[name] for name in unique.values()},
        features=dict(cluster.features) | {METADATA_VERSION: level},
        voters={},
    )
    held, losses = kraft_records.held(wanted)
    replay = MetadataReplay()
    for value in kraft_records.values(held):
        replay.apply(cluster_metadata.parse(value))
    found = replay.cluster(held.cluster_id, held.controller_epoch)
    levels = {name: each for name, each in held.features.items() if each}  # 0 takes a feature away
    assert found == replace(held, features=levels)
    assert (held == wanted) == (losses == ())
    assert kraft_records.held(held) == (held, ())


def test_a_change_counts_epochs_and_keeps_what_it_does_not_name(tmp_path: Path) -> None:
    leader = metadata(5, 2, [(0, "isr", [2]), (1, "leader", 2)], partitionId=0, topicId=TOPIC_ID)
    shrunk = metadata(5, 2, [(0, "isr", [2, 1])], partitionId=0, topicId=TOPIC_ID)
    found = only_partition(read(written(tmp_path, [topic(), partition(), leader, shrunk])))
    assert found == Partition(
        ReplicaAssignment((1, 2)),
        LeaderAndIsr(2, 5, (2, 1), partition_epoch=9),
        (DIRECTORY_ID, DIRECTORY_ID),
    )


def test_a_reassignment_is_begun_and_ended_by_changes(tmp_path: Path) -> None:
    begun = metadata(
        5,
        2,
        [(2, "replicas", [3, 1, 2]), (3, "removingReplicas", [1, 2]), (4, "addingReplicas", [3])],
        partitionId=0,
        topicId=TOPIC_ID,
    )
    ended = metadata(
        5,
        2,
        [
            (0, "isr", [3]),
            (1, "leader", 3),
            (2, "replicas", [3]),
            (3, "removingReplicas", []),
            (4, "addingReplicas", []),
        ],
        partitionId=0,
        topicId=TOPIC_ID,
    )
    records = [topic(), partition(), begun]
    assert only_partition(read(written(tmp_path / "begun", records))).assignment == ReplicaAssignment(
        (3, 1, 2), (3,), (1, 2)
    )
    assert only_partition(
        read(written(tmp_path / "ended", [*records, ended]))
    ).assignment == ReplicaAssignment((3,))


def test_a_removed_topic_takes_its_configs_along(tmp_path: Path) -> None:
    removed = metadata(9, topicId=TOPIC_ID)
    again = topic(topic_id=OTHER_ID)
    cluster = read(written(tmp_path, [topic(), partition(), config("1"), removed, again])).cluster
    assert cluster.topics == {"t": Topic(OTHER_ID, {})}
    assert cluster.configs == {}


def test_a_config_without_a_value_is_removed(tmp_path: Path) -> None:
    records = [topic(), config("1"), config("2", "segment.ms"), config(None)]
    cluster = read(written(tmp_path, records)).cluster
    assert cluster.configs == {Resource(ResourceType.TOPIC, "t"): {"segment.ms": "2"}}


@pytest.mark.parametrize(
    ("last", "values"), [(metadata(24), {"retention.ms": "2"}), (metadata(25), {"retention.ms": "1"})]
)
def test_records_of_a_transaction_count_when_it_ends(
    last: bytes, values: dict[str, str], tmp_path: Path
) -> None:
    reading = read(written(tmp_path, [topic(), config("1"), metadata(23), config("2"), last]))
    assert reading.cluster.configs[Resource(ResourceType.TOPIC, "t")] == values
    assert reading.notes == ()


def test_records_of_an_open_transaction_do_not_count(tmp_path: Path) -> None:
    reading = read(written(tmp_path, [topic(), config("1"), metadata(23), config("2")]))
    assert reading.cluster.configs[Resource(ResourceType.TOPIC, "t")] == {"retention.ms": "1"}
    assert reading.notes == ("the last metadata transaction is not complete: its records do not count",)


def test_voters_of_a_dynamic_quorum_are_read(tmp_path: Path) -> None:
    voter = c.Container(
        voterId=3,
        voterDirectoryId=DIRECTORY_ID,
        endpoints=[c.Container(name="CONTROLLER", host="h", port=9093, taggedFields=[])],
        kRaftVersionFeature=c.Container(minSupportedVersion=0, maxSupportedVersion=1, taggedFields=[]),
        taggedFields=[],
    )
    voters = control("KRAFT_VOTERS", c.Container(version=0, voters=[voter], taggedFields=[]), 2)
    version = control("KRAFT_VERSION", c.Container(version=0, kRaftVersion=1, taggedFields=[]), 3)
    log = directory(tmp_path, node_id=3)
    (log / f"{0:020}-{0:010}.checkpoint").write_bytes(snapshot([LEVEL], more=(voters, version)))
    cluster = read(tmp_path).cluster
    assert cluster.voters == {3: Voter(DIRECTORY_ID, (VoterEndpoint("CONTROLLER", "h", 9093),), VERSIONS)}
    assert cluster.features == {METADATA_VERSION: 27, KRAFT_VERSION: 1}


def test_a_directory_that_was_only_formatted_has_its_bootstrap_metadata(tmp_path: Path) -> None:
    directory(tmp_path)
    (tmp_path / "bootstrap.checkpoint").write_bytes(snapshot([LEVEL]))
    reading = read(tmp_path)
    assert reading.cluster == Cluster(CLUSTER_ID, features={METADATA_VERSION: 27})
    assert "there is no metadata log" in reading.notes[0]


# --- damage, and records of later Kafkas ---


def test_a_log_that_is_cut_anywhere_ends_with_its_last_whole_batch(tmp_path: Path) -> None:
    records = [topic(), config("1"), config("2")]
    whole = Path(written(tmp_path, records), "__cluster_metadata-0", LOG)
    data = whole.read_bytes()
    last = _position(data, 2)
    for size in range(last, len(data)):
        whole.write_bytes(data[:size])
        reading = read(tmp_path)
        assert reading.cluster.configs[Resource(ResourceType.TOPIC, "t")] == {"retention.ms": "1"}
        assert len(reading.notes) == (size > last)


def test_a_last_batch_with_a_bad_checksum_is_a_torn_one(tmp_path: Path) -> None:
    whole = Path(written(tmp_path, [topic(), config("1"), config("2")]), "__cluster_metadata-0", LOG)
    data = bytearray(whole.read_bytes())
    data[-1] ^= 1
    whole.write_bytes(data)
    reading = read(tmp_path)
    assert reading.cluster.configs[Resource(ResourceType.TOPIC, "t")] == {"retention.ms": "1"}
    assert "fails its checksum" in reading.notes[0]


def test_damage_before_the_end_is_refused_with_its_position(tmp_path: Path) -> None:
    whole = Path(written(tmp_path, [topic(), config("1"), config("2")]), "__cluster_metadata-0", LOG)
    data = bytearray(whole.read_bytes())
    position = _position(bytes(data), 1)
    data[_position(bytes(data), 2) - 1] ^= 1
    whole.write_bytes(data)
    with pytest.raises(CorruptRecordError, match="fails its checksum") as caught:
        read(tmp_path)
    assert (caught.value.file, caught.value.position_bytes) == (str(whole), position)
    assert "the directory of another controller" in (caught.value.cure or "")


def test_an_incomplete_snapshot_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    log = directory(tmp_path)
    (log / f"{1:020}-{1:010}.checkpoint").write_bytes(snapshot([topic()]))
    (log / f"{2:020}-{1:010}.checkpoint").write_bytes(snapshot([topic(), config("9")])[:-5])
    (log / f"{1:020}.log").write_bytes(batch([config("1")], 1))
    reading = read(tmp_path)
    assert reading.cluster.configs[Resource(ResourceType.TOPIC, "t")] == {"retention.ms": "1"}
    assert "a snapshot is not used" in reading.notes[0]
    assert "klog recover" not in reading.notes[0], "it cuts logs, not snapshots"
    assert f"{2:020}-{1:010}.checkpoint" in reading.notes[0]


def test_records_that_are_missing_between_snapshot_and_log_are_named(tmp_path: Path) -> None:
    log = directory(tmp_path)
    (log / f"{1:020}-{1:010}.checkpoint").write_bytes(snapshot([topic()]))
    (log / f"{5:020}.log").write_bytes(batch([config("1")], 5))
    with pytest.raises(
        StorageError, match="goes on at offset 5, but the records from offset 1 on are missing"
    ):
        read(tmp_path)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (b"\x01\x63\x00", "offset 1 has type 99, which klog does not know"),
        (b"\x01\x02\x09", "offset 1 has version 9 of TopicRecord; klog knows versions 0 to 0"),
    ],
)
def test_a_record_of_a_later_kafka_is_named_and_may_be_left_out(
    value: bytes, what: str, tmp_path: Path
) -> None:
    path = written(tmp_path, [topic(), value, config("1")])
    with pytest.raises(UnsupportedFormatError, match=what):
        read(path)
    problems: list[KlogError] = []
    reading = kraft_form.read([path], problems.append)
    assert reading.cluster.configs[Resource(ResourceType.TOPIC, "t")] == {"retention.ms": "1"}
    assert len(problems) == 1


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (topic("a/b", OTHER_ID), "'a/b' is no name of a topic"),
        (topic("t", OTHER_ID), "topic t has two ids"),
        (partition(topicId=OTHER_ID), "topic frJNbmKCSHu4o8p06x_jmw is changed, but was never created"),
        (metadata(8, id=7, epoch=1), "broker 7 is changed, but was never created"),
        (metadata(4, resourceType=3, resourceName="", name="a", value="b"), "3 is no ResourceType"),
        (metadata(22, name="u", mechanism=9), "9 is no SCRAM mechanism"),
        (b"\x01\x02\x00", "offset 1 "),
        (b"", "offset 1 "),
    ],
)
def test_a_record_that_contradicts_is_refused(value: bytes, what: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=what):
        read(written(tmp_path, [topic(), value]))


# --- several directories ---


def _quorum_state(path: Path, voters: Sequence[int]) -> None:
    state = {
        "clusterId": "",
        "leaderId": 1,
        "leaderEpoch": 1,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter} for voter in voters],
        "data_version": 0,
    }
    (path / "__cluster_metadata-0" / "quorum-state").write_text(json.dumps(state))


def _controllers(path: Path, logs: Sequence[tuple[int, Sequence[bytes]]]) -> list[Path]:
    """The directories of controllers 1, 2, ... with these records, the last in this epoch."""
    made = []
    for node_id, (epoch, values) in enumerate(logs, 1):
        log = directory(path / str(node_id), node_id)
        batches = [
            batch([value], offset, epoch if value is values[-1] else 1) for offset, value in enumerate(values)
        ]
        (log / LOG).write_bytes(b"".join(batches))
        _quorum_state(path / str(node_id), [1, 2, 3])
        made.append(path / str(node_id))
    return made


def test_the_log_with_the_latest_epoch_counts_also_if_it_is_shorter(tmp_path: Path) -> None:
    logs = [(1, [topic(), config("1"), config("2")]), (3, [topic(), config("3")])]
    one, two = _controllers(tmp_path, logs)
    reading = read(one, two)
    assert reading.cluster.configs[Resource(ResourceType.TOPIC, "t")] == {"retention.ms": "3"}
    assert reading.cluster.controller_epoch == 3
    (note,) = reading.notes
    assert note.startswith(f"{one} ends at offset 3 in epoch 1, {two} at offset 2 in epoch 3: the latter")


def test_of_logs_in_one_epoch_the_longest_counts(tmp_path: Path) -> None:
    one, two = _controllers(tmp_path, [(1, [topic(), config("1")]), (1, [topic(), config("1"), config("2")])])
    assert read(one, two).cluster.configs[Resource(ResourceType.TOPIC, "t")] == {"retention.ms": "2"}


def test_a_minority_of_the_voters_may_lack_records(tmp_path: Path) -> None:
    (one,) = _controllers(tmp_path, [(1, [topic()])])
    (note,) = read(one).notes
    assert note.startswith("this is the metadata of 1 of 3 voters: later records may be elsewhere")


def test_directories_of_different_clusters_are_refused(tmp_path: Path) -> None:
    directory(tmp_path / "a")
    directory(tmp_path / "b", cluster_id="_sEEsoO3R8KWMpPrG_sTow")
    with pytest.raises(UsageError, match="different clusters"):
        read(tmp_path / "a", tmp_path / "b")
