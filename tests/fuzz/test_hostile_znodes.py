"""Znodes may hold anything: whatever is there at the start or comes later, controller and broker go on."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.controller.events import Startup
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.metadata import paths, znodes
from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from klog.metadata.store import MetadataStore, missing_parents
from klog.metadata.values import (
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    FinalizedFeatures,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
)
from tests.metadata.samples import encode_partitions
from tests.peer_strategies import damaged_znodes
from tests.server.handlers.admin_parts import ME, AdminCluster
from tests.server.test_broker import make_topic, started
from tests.waiting import eventually

BAD = TopicPartition("bad", 0)
TOPIC = TopicAssignment("bad", "t0p1cAAAAAAAAAAAAAAAAA", {0: ReplicaAssignment((1, 2), (2,), (3,))})
BROKER = BrokerRegistration(9, (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),), "r")
STATE = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 0, (1, 2)), 1)
NOTE = paths.CONFIG_CHANGE_PREFIX + "0000000009"

# Every node that the controller or the broker reads, with valid data.
NODES = {
    paths.broker(9): znodes.encode_broker(BROKER),
    paths.topic("bad"): znodes.encode_topic(TOPIC),
    paths.partition_state(BAD): znodes.encode_partition_state(STATE),
    paths.topic_config("bad"): znodes.encode_config({"retention.ms": "1"}),
    paths.config("brokers/1"): znodes.encode_config({"num.io.threads": "3"}),
    paths.config("brokers/<default>"): znodes.encode_config({"num.io.threads": "3"}),
    paths.config("users/u"): znodes.encode_config({"producer_byte_rate": "1"}),
    NOTE: znodes.encode_config_change("topics/bad"),
    paths.delete_topic("bad"): b"",
    paths.PREFERRED_REPLICA_ELECTION: encode_partitions([BAD]),
    paths.REASSIGN_PARTITIONS: znodes.encode_reassignments({BAD: (1, 3)}),
    f"{paths.ISR_CHANGES}/isr_change_0000000001": encode_partitions([BAD]),
    f"{paths.LOG_DIR_EVENT_PREFIX}0000000001": znodes.encode_log_dir_event(1),
    paths.PRODUCER_ID_BLOCK: znodes.encode_producer_id_block(ProducerIdBlock(1, 0, 999)),
    paths.FEATURE: znodes.encode_features(FinalizedFeatures({"metadata.version": 1})),
}
# Without them there is no controller or no identity: an error says so, again and again, or at the start.
NEEDED = {
    paths.CONTROLLER: znodes.encode_controller(ControllerRegistration(9)),
    paths.CONTROLLER_EPOCH: znodes.encode_epoch(1),
    paths.CLUSTER_ID: znodes.encode_cluster_id("c" * 22),
}


def put(store: MetadataStore, path: str, data: bytes) -> None:
    for parent in missing_parents(path):
        if store.exists(parent) is None:
            store.create(parent)
    if store.exists(path) is None:
        store.create(path, data)
    else:
        store.set(path, data)


def damaged_node(nodes: dict[str, bytes]) -> st.SearchStrategy[tuple[str, bytes]]:
    return st.sampled_from(sorted(nodes)).flatmap(
        lambda path: st.tuples(st.just(path), damaged_znodes(nodes[path]))
    )


class Errors(logging.Handler):
    """Keeps the errors that have a traceback: those that nobody expected."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.defects: list[str] = []
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if record.exc_info:
            self.defects.append(self.format(record))


@pytest.fixture(scope="module")
def errors():
    handler = Errors()
    logger = logging.getLogger("klog")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def require_healthy(cluster: AdminCluster, errors: Errors) -> None:
    assert errors.defects == []
    assert cluster.core.is_active
    assert cluster.replicas.led[TopicPartition("good", 0)] == ME
    cluster.create("another", (ME,))
    assert cluster.replicas.led[TopicPartition("another", 0)] == ME


@given(damaged_node(NODES), st.booleans())
def test_a_controller_goes_on_whatever_a_znode_holds(
    errors: Errors, node: tuple[str, bytes], late: bool
) -> None:
    path, data = node
    errors.defects.clear()
    cluster = AdminCluster(elected=late)
    cluster.create("good", (ME,))
    if path in (paths.partition_state(BAD), paths.topic_config("bad"), paths.delete_topic("bad")):
        put(cluster.store, paths.topic("bad"), NODES[paths.topic("bad")])
        cluster.settle()
    put(cluster.store, path, data)
    if not late:
        cluster._events.append(Startup())
    cluster.settle()
    require_healthy(cluster, errors)
    # What is valid again is obeyed again.
    put(cluster.store, path, NODES[path])
    cluster.settle()
    assert errors.defects == []
    assert cluster.core.is_active


@given(damaged_node(NEEDED))
def test_what_is_needed_and_damaged_is_an_error_that_names_the_znode(node: tuple[str, bytes]) -> None:
    path, data = node
    decode = {
        paths.CONTROLLER: znodes.decode_controller,
        paths.CONTROLLER_EPOCH: znodes.decode_epoch,
        paths.CLUSTER_ID: znodes.decode_cluster_id,
    }[path]
    what = ""
    try:
        decode(data)
    except KlogError as error:
        what = str(error)
    assert not what or path in what


GARBAGE = [b"[" * 3000, b"\xff", b"null", b"{}", b'{"version":99}', b""]
CONFIGS_OF_BROKERS = [path for path in NODES if path.startswith("/config/brokers/")]


@pytest.mark.parametrize("data", GARBAGE)
def test_a_broker_starts_whatever_znodes_hold(tmp_path: Path, errors: Errors, data: bytes) -> None:
    errors.defects.clear()
    with started(tmp_path / "a") as broker:
        make_topic(broker, "good")
    store = EmbeddedStore(tmp_path / "a" / FILE_NAME)
    for path in NODES.keys() - CONFIGS_OF_BROKERS:
        put(store, path, data)
    store.close()
    with started(tmp_path / "a") as broker:
        eventually(lambda: ("good", 0) in broker.replicas.partitions)
        assert broker.replicas.partitions["good", 0].state.is_leader
        make_topic(broker, "another")
    assert errors.defects == []


@pytest.mark.parametrize("name", ["7", "<default>"])
def test_a_broker_does_not_start_without_its_own_configs(tmp_path: Path, name: str) -> None:
    """They may say how long records are kept, so the defaults cannot stand for them."""
    path = paths.config(f"brokers/{name}")
    with started(tmp_path / "a") as broker:
        put(broker.store, path, b"[" * 3000)
    with pytest.raises(KlogError, match=path):
        started(tmp_path / "a").__enter__()


@pytest.mark.parametrize("path", NEEDED)
def test_a_start_without_what_is_needed_names_the_znode(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    with started(tmp_path / "a"):
        pass
    store = EmbeddedStore(tmp_path / "a" / FILE_NAME)
    put(store, path, b"[" * 3000)
    store.close()
    if path == paths.CLUSTER_ID:
        with pytest.raises(KlogError, match=path):
            started(tmp_path / "a").__enter__()
    else:
        with started(tmp_path / "a"):
            eventually(lambda: path in caplog.text)
