"""The same random operations have the same outcomes on klog's tree and on ZooKeeper."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.metadata.errors import StoreError
from klog.metadata.local import SharedTree, TreeSession
from klog.metadata.store import (
    Check,
    Create,
    Delete,
    MetadataStore,
    MultiResult,
    Node,
    NodeStat,
    Operation,
    SetData,
)
from klog.metadata.zookeeper import ZooKeeperStore
from tests.metadata.conftest import call_at_once
from tests.metadata.memory_tree import NoJournal
from tests.peers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.kafka

_paths = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep"])
_versions = st.integers(-1, 2)
_data = st.none() | st.binary(max_size=3)
_operations = st.one_of(
    st.builds(Check, _paths, _versions),
    st.builds(Create, _paths, _data, st.booleans(), st.booleans()),
    st.builds(Create, _paths, _data),
    st.builds(SetData, _paths, _data, _versions),
    st.builds(Delete, _paths, _versions),
)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server(zookeeper: ZooKeeperServer) -> ZooKeeperServer:
    return zookeeper


@pytest.fixture(scope="module")
def theirs(server: ZooKeeperServer) -> Iterator[ZooKeeperStore]:
    store = ZooKeeperStore(f"{server.hosts}/agree", session_timeout_ms=20_000)
    yield store
    store.close()


@settings(max_examples=150)
@given(multis=st.lists(st.lists(_operations, min_size=1, max_size=4), max_size=15))
def test_the_same_operations_have_the_same_outcomes(
    theirs: ZooKeeperStore, multis: list[list[Operation]]
) -> None:
    root = f"/run{next(_numbers)}"
    ours = TreeSession(SharedTree(NoJournal(), lambda: 0), call_at_once)
    for store in (ours, theirs):
        store.create(root)
    placed = [[_under(root, each) for each in operations] for operations in multis]
    said = [_comparable(each) for each in ours.multi_many(placed)]
    assert said == [_comparable(each) for each in theirs.multi_many(placed)]
    assert _nodes(ours, root) == _nodes(theirs, root)


def _under(root: str, operation: Operation) -> Operation:
    match operation:
        case Check(path, version):
            return Check(root + path, version)
        case Create(path, data, ephemeral, sequential):
            return Create(root + path, data, ephemeral, sequential)
        case SetData(path, data, version):
            return SetData(root + path, data, version)
        case Delete(path, version):
            return Delete(root + path, version)


def _comparable(outcome: MultiResult | StoreError) -> object:
    """An outcome without what always differs: zxids, times, sessions."""
    if isinstance(outcome, StoreError):
        return type(outcome), outcome.op_index
    return [
        (each.version, each.ephemeral_owner != 0) if isinstance(each, NodeStat) else each for each in outcome
    ]


def _nodes(store: MetadataStore, path: str) -> dict[str, object]:
    node: Node = store.get(path)
    found: dict[str, object] = {path: (node.data, node.stat.version, node.stat.ephemeral_owner != 0)}
    for name in store.children(path):
        found |= _nodes(store, f"{path}/{name}")
    return found
