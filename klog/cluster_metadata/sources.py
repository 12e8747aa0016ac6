"""Recognises where a cluster's metadata is by looking at it, and reads it. Reading changes nothing.

A source is a ZooKeeper address, a directory or a JSON file. Several directories are divided by commas. If
files of ZooKeeper hold several clusters, `DIR/chroot` names one, and `DIR//` that without a chroot.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from klog.cluster_metadata import json_form, kraft_form, tree_form, zookeeper_form
from klog.cluster_metadata.forms import OnProblem, Reading, raise_problem
from klog.cluster_metadata.kraft_log import is_kraft_directory
from klog.cluster_metadata.model import Cluster
from klog.formats.errors import MissingInputError, placed
from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from klog.metadata.errors import StoreError
from klog.metadata.store import Node
from klog.metadata.zookeeper_access import PLAIN_ACCESS, ZooKeeperAccess
from klog.storage.files.directory_lock import holder_of, require_no_holder
from klog.storage.files.files import no_such_file, read_whole
from klog.storage.files.scratch_directory import scratch_directory

_SCHEME: Final = "zookeeper://"
_ADDRESS: Final = re.compile(r"[^/\s]+:[0-9]{1,5}(,[^/\s]+:[0-9]{1,5})*(/\S*)?")


def read_source(
    source: str,
    on_problem: OnProblem = raise_problem,
    access: ZooKeeperAccess = PLAIN_ACCESS,
) -> Reading:
    """The cluster at a source. A live ZooKeeper is read with `access`.

    Raises MissingInputError (nothing of the kind is there), `StorageError`, `StoreError`, `FormatError`.
    """
    place = _chroot_in_files(source)
    if source.startswith(_SCHEME):
        reading = _read_zookeeper(zookeeper_address(source), on_problem, access)
    elif place is not None:
        reading = zookeeper_form.read(place[0], on_problem, place[1])
    elif os.path.exists(source):
        reading = _read_path(source, on_problem)
    elif "," in source and all(os.path.isdir(each) for each in source.split(",")):
        reading = _read_directories(source.split(","), on_problem)
    elif _ADDRESS.fullmatch(source):
        reading = _read_zookeeper(zookeeper_address(source), on_problem, access)
    else:
        raise no_such_file(source)
    cluster = reading.cluster
    if not (cluster.cluster_id or cluster.topics or cluster.features or cluster.brokers):
        raise MissingInputError(
            "holds no metadata of a Kafka cluster", file=source, cure="check the chroot or path"
        )
    return reading


def zookeeper_address(text: str) -> str:
    """The `host:port,host:port/chroot` that a text names, with `zookeeper://` before it or not."""
    return text.removeprefix(_SCHEME)


def _chroot_in_files(source: str) -> tuple[Sequence[str], str] | None:
    """Directories of ZooKeeper's files, and the chroot that is named after the last of them."""
    *others, last = source.split(",")
    directory = last.rstrip("/") if last.endswith("//") else last
    while directory and not os.path.isdir(directory):
        directory = directory.rpartition("/")[0]
    directories = [*others, directory]
    if directory == last or not all(map(zookeeper_form.is_zookeeper_directory, directories)):
        return None
    return directories, last[len(directory) :].rstrip("/")


def _read_path(path: str, on_problem: OnProblem) -> Reading:
    if not os.path.isdir(path):
        return Reading(_read_json(path), "JSON file")
    is_kraft = is_kraft_directory(path)
    if os.path.isfile(os.path.join(path, FILE_NAME)):
        reading = _read_embedded(path, on_problem)
        note = "the directory also has a metadata log of KRaft, which is not read: klog's own tree is newer"
        return reading._replace(notes=(*reading.notes, note)) if is_kraft else reading
    return _read_directories([path], on_problem)


def _read_directories(directories: Sequence[str], on_problem: OnProblem) -> Reading:
    """Directories of KRaft nodes, or those of the snapshots and logs of one ZooKeeper server."""
    if all(is_kraft_directory(each) for each in directories):
        users = tuple((each, user) for each in directories if (user := holder_of(each)) is not None)
        reading = kraft_form.read(directories, on_problem)
        notes = (f"{user} is using {each}: it may write more" for each, user in users)
        return reading._replace(notes=(*reading.notes, *notes), users=users)
    if all(zookeeper_form.is_zookeeper_directory(each) for each in directories):
        return zookeeper_form.read(directories, on_problem)
    raise MissingInputError(
        f"holds no metadata: neither {FILE_NAME}, nor a metadata log of KRaft, nor files of ZooKeeper",
        file=",".join(directories),
        cure="name the directory with the metadata: the first of log.dirs, metadata.log.dir, or dataDir;"
        " if it is lost, `klog adopt` makes topics of log directories",
    )


def _read_json(path: str) -> Cluster:
    with placed(path):
        return json_form.decode(read_whole(path))


def _read_embedded(directory: str, on_problem: OnProblem) -> Reading:
    """The tree of a stopped broker, from a copy of its file, because opening one changes it."""
    require_no_holder(directory, "stop it first, or ask it (klog topics, ...)")
    with scratch_directory("klog-metadata-") as copies:
        for file in Path(directory).glob(f"{FILE_NAME}*"):
            shutil.copy(file, copies)
        store = EmbeddedStore(Path(copies) / FILE_NAME)
        try:
            return tree_form.read(store, "klog's embedded tree", on_problem)
        finally:
            store.close()


def _read_zookeeper(hosts: str, on_problem: OnProblem, access: ZooKeeperAccess) -> Reading:
    with zookeeper_tree(hosts, access) as tree:
        return tree_form.read(tree, f"ZooKeeper at {hosts}", on_problem)._replace(is_live=True)


@contextmanager
def zookeeper_tree(hosts: str, access: ZooKeeperAccess) -> Iterator[tree_form.Tree]:
    """The tree below a chroot, which is not created. Raises `StoreError`, ConfigError.

    If it needs another access than none, the error says which option gives it.
    """
    from klog.metadata.zookeeper import ZooKeeperStore

    servers, _, root = hosts.partition("/")
    try:
        with closing(ZooKeeperStore(servers, access)) as store:
            yield _Below(store.children, store.get_many, f"/{root.strip('/')}" if root.strip("/") else "")
    except StoreError as error:
        if error.cure and access == PLAIN_ACCESS:
            error.cure += "; --zookeeper-config names a file with these"
        raise


class _Below:
    """The part of a tree below a chroot."""

    def __init__(
        self,
        children: Callable[[str], list[str]],
        get_many: Callable[[Sequence[str]], list[Node | None]],
        root: str,
    ) -> None:
        self._children = children
        self._get_many = get_many
        self._root = root

    def children(self, path: str) -> list[str]:
        return self._children((self._root + path).rstrip("/") or "/")

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return self._get_many([self._root + path for path in paths])
