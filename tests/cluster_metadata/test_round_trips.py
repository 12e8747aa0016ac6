"""A cluster goes through all forms: what one can hold comes back equal, and just what is listed is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.cluster_metadata import (
    comparison,
    json_form,
    kraft_form,
    kraft_records,
    tree_form,
    tree_output,
    zookeeper_form,
)
from klog.cluster_metadata.forms import Held
from klog.cluster_metadata.kraft_replay import MetadataReplay
from klog.cluster_metadata.losses import covers, is_covered
from klog.cluster_metadata.model import METADATA_VERSION, Cluster
from klog.formats import cluster_metadata
from tests.cluster_metadata.kraft_files import directory, snapshot
from tests.cluster_metadata.trees import empty_tree, log_file, tree_operations
from tests.cluster_strategies import clusters

OTHER_ID = "frJNbmKCSHu4o8p06x_jmw"
Form = Callable[[Cluster], Cluster]


def through_json(cluster: Cluster) -> Cluster:
    return json_form.decode(json_form.encode(cluster, secrets=True))


def through_tree(cluster: Cluster) -> Cluster:
    tree = empty_tree()
    assert tree_output.write(tree, cluster) == ()
    return tree_form.read(tree, "").cluster


def through_zookeepers_files(cluster: Cluster) -> Cluster:
    with TemporaryDirectory() as place:
        Path(place, "log.1").write_bytes(log_file(tree_operations(cluster)))
        return zookeeper_form.read([place]).cluster


def through_records(cluster: Cluster) -> Cluster:
    replay = MetadataReplay()
    for value in kraft_records.values(cluster):
        replay.apply(cluster_metadata.read(value))
    return replay.cluster(cluster.cluster_id, cluster.controller_epoch)


def through_snapshot(cluster: Cluster) -> Cluster:
    with TemporaryDirectory() as place:
        log = directory(Path(place), cluster_id=cluster.cluster_id or OTHER_ID)
        content = snapshot(list(kraft_records.values(cluster)), cluster.controller_epoch)
        (log / f"{10:020}-{cluster.controller_epoch:010}.checkpoint").write_bytes(content)
        found = kraft_form.read([place]).cluster
    return found if cluster.cluster_id else replace(found, cluster_id=None)


def for_kraft(cluster: Cluster, level: int) -> Cluster:
    """With what KRaft demands: ids of topics that differ, features above 0, and no dynamic quorum."""
    unique = {each.topic_id or OTHER_ID: name for name, each in cluster.topics.items()}
    features = {name: found for name, found in cluster.features.items() if found}
    return replace(
        cluster,
        topics={name: replace(cluster.topics[name], topic_id=topic_id) for topic_id, name in unique.items()},
        features=features | {METADATA_VERSION: level},
        voters={},
    )


levels = st.integers(7, 27)


@settings(max_examples=40)
@given(clusters, levels, st.permutations(["json", "tree", "files", "records", "snapshot"]))
def test_what_all_forms_can_hold_comes_back_equal_through_all_of_them(
    cluster: Cluster, level: int, order: list[str]
) -> None:
    forms: dict[str, Form] = {
        "json": through_json,
        "tree": through_tree,
        "files": through_zookeepers_files,
        "records": through_records,
        "snapshot": through_snapshot,
    }
    in_kraft = kraft_records.held(for_kraft(cluster, level)).cluster
    common = tree_output.held(in_kraft).cluster
    features = in_kraft.features
    for name in order:
        # A tree has no features, and each record has the form of the metadata version.
        sent = replace(common, features=features if name in ("records", "snapshot") else {})
        assert forms[name](sent) == sent, name


def require_exact(cluster: Cluster, held: Held) -> None:
    """Each difference is listed, and whatever is listed differs."""
    items = [each.item for each in comparison.differences(cluster, held.cluster)]
    assert [item for item in items if not is_covered(item, held.losses)] == []
    assert [loss for loss in held.losses if not any(map(covers(loss), items))] == []


@given(clusters)
def test_just_what_is_listed_is_lost_in_a_tree(cluster: Cluster) -> None:
    require_exact(cluster, tree_output.held(cluster))


@given(clusters, levels)
def test_just_what_is_listed_is_lost_in_kraft(cluster: Cluster, level: int) -> None:
    wanted = for_kraft(cluster, level)
    require_exact(wanted, kraft_records.held(wanted))


@pytest.mark.parametrize("secrets", [False, True])
@given(cluster=clusters)
def test_json_loses_secrets_only_and_only_if_it_is_to(secrets: bool, cluster: Cluster) -> None:
    found = json_form.decode(json_form.encode(cluster, secrets=secrets))
    assert found == (cluster if secrets else cluster.without_secrets())
