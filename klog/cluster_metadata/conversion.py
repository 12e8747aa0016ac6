"""The forms that a cluster's metadata is converted to, each with what plans it. A plan also writes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from klog.cluster_metadata import json_form, kraft_conversion, tree_output, zookeeper_conversion
from klog.cluster_metadata.conversion_plan import Plan, Step, Target
from klog.cluster_metadata.forms import Reading, require_secrets, require_stopped
from klog.cluster_metadata.kraft_layout import identity
from klog.cluster_metadata.sources import zookeeper_address
from klog.cluster_metadata.translated_files import TranslatedFile, translated, with_files
from klog.cluster_metadata.tree_plan import tree_plan
from klog.cluster_metadata.without_kraft import cluster_without_kraft
from klog.config.zookeeper_properties import to_zookeeper
from klog.formats.errors import StorageError, UsageError
from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from klog.storage.files.directory_lock import locked
from klog.storage.files.files import atomic_output, read_whole, size_bytes, storage_errors, write_atomically
from klog.storage.files.scratch_directory import scratch_directory

Planner: TypeAlias = Callable[[Reading, Target], Plan]


class Form(StrEnum):
    """A form that can be written."""

    KRAFT = "kraft"
    JSON = "json"
    TREE = "tree"
    ZOOKEEPER = "zookeeper"


def plan(reading: Reading, form: Form, target: Target) -> Plan:
    """What a conversion will do; nothing is changed.

    Raises UsageError (the target does not fit the form), StorageError (it is in use or not empty),
    `FormatError`.
    """
    return PLANNERS[form](reading, target)


def _place(target: Target, what: str) -> str:
    """The target of a form that has one file or directory."""
    if target.metadata_version is not None or target.features:
        raise UsageError("--metadata-version and --feature are for --to kraft")
    if target.place is None:
        raise UsageError(f"name {what} to write to, after the source")
    return target.place


def _plan_json(reading: Reading, target: Target) -> Plan:
    """A new file. Its owner alone may read it, because it has the secrets."""
    path = _place(target, "the file")
    if target.configs:
        raise UsageError("--config has no meaning with --to json")
    if os.path.isdir(path) or (os.path.exists(path) and size_bytes(path)):
        raise StorageError("is there already; nothing was changed", file=path, cure="name a new file")

    content = json_form.encode(reading.cluster, secrets=True)
    hidden = reading.cluster.hidden_secrets
    lacking = f"without {len(hidden)} secret{'' if len(hidden) == 1 else 's'} that the source lacks"
    secrets = lacking if hidden else "with passwords and credentials"

    def write() -> None:
        with storage_errors("cannot be written", path):
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        write_atomically(path, content)

    step = Step(path, f"all metadata, {secrets}", len(content))
    return Plan((step,), write, reading.cluster, places=(path,))


def _plan_tree(reading: Reading, target: Target) -> Plan:
    """klog's own tree in a log directory that has none."""
    directory = _place(target, "the first of log.dirs")
    path = os.path.join(directory, FILE_NAME)
    if os.path.exists(path):
        raise StorageError("is there already; nothing was changed", file=path, cure="name another directory")
    found = identity(directory)
    if found is not None and found.cluster_id not in (None, reading.cluster.cluster_id):
        raise StorageError(
            f"the directory belongs to cluster {found.cluster_id}, the metadata to another one:"
            f" {reading.cluster.cluster_id}",
            file=directory,
        )
    require_stopped(reading)
    cluster, left_out = cluster_without_kraft(reading.cluster)
    require_secrets(cluster)

    def write() -> None:
        os.makedirs(directory, exist_ok=True)
        # A tree is written in many transactions, so it is made elsewhere and then put there at once.
        with locked(directory), scratch_directory("klog-metadata-") as scratch:
            store = EmbeddedStore(Path(scratch) / FILE_NAME)
            try:
                tree_output.write(store, cluster)
            finally:
                store.close()
            with atomic_output(path) as file:
                file.write(read_whole(os.path.join(scratch, FILE_NAME)))

    tree = replace(tree_plan(path, "klog's own tree", cluster, write, left_out), places=(directory,))
    return with_files(tree, _translated_back(target, ".klog", ""))


def _plan_zookeeper(reading: Reading, target: Target) -> Plan:
    place = _place(target, "the address of a ZooKeeper")
    files = _translated_back(target, ".zookeeper", zookeeper_address(place))
    return with_files(zookeeper_conversion.plan(reading, place, target.access), files)


def _translated_back(target: Target, suffix: str, zookeeper_connect: str) -> list[TranslatedFile]:
    """The properties files of KRaft nodes, for brokers without it."""
    back = partial(to_zookeeper, zookeeper_connect=zookeeper_connect)
    return [translated(each, each + suffix, back) for each in target.configs]


PLANNERS: Final[Mapping[Form, Planner]] = {
    Form.KRAFT: kraft_conversion.plan,
    Form.JSON: _plan_json,
    Form.TREE: _plan_tree,
    Form.ZOOKEEPER: _plan_zookeeper,
}
