"""Reads from properties files of nodes where their directories are, and who votes.

Those of brokers with ZooKeeper are translated first.

Rules: Kafka's documentation of process.roles, node.id, log.dirs, metadata.log.dir, controller.quorum.voters
and controller.quorum.bootstrap.servers (KIP-853). Other configs are not looked at.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from klog.cluster_metadata.kraft_layout import Layout, Node, Role, with_directory_ids
from klog.cluster_metadata.model import SupportedVersions, Voter, VoterEndpoint
from klog.cluster_metadata.translated_files import TranslatedFile, read_lines, translated
from klog.config.kraft_properties import KRaftNode, to_kraft
from klog.config.password_encoder import SECRET
from klog.config.properties_draft import is_of_kraft
from klog.formats.errors import UsageError
from klog.formats.java_properties import entries

KRAFT_SUFFIX: Final = ".kraft"
"""Ends the name of a translated file."""
_STATIC: Final = "controller.quorum.voters"
_DYNAMIC: Final = "controller.quorum.bootstrap.servers"
# What controllers since 3.9 say when they register.
_KRAFT_VERSIONS: Final = SupportedVersions(0, 1)


@dataclass(frozen=True, slots=True)
class NodeProperties:
    """What a properties file says. A broker's and a controller's may name the same node.

    `translation` is set if the file is for ZooKeeper; then the other values are those of its translation.
    """

    file: str
    texts: Mapping[str, str]
    node_id: int
    roles: frozenset[Role]
    log_dirs: tuple[str, ...]
    metadata_directory: str
    password_secret: str | None = None
    translation: TranslatedFile | None = None

    def text(self, name: str) -> str:
        """A config's text; empty if it is not set."""
        return self.texts.get(name, "").strip()


def read(file: str, node: KRaftNode | None = None) -> NodeProperties:
    """What one file says. One for ZooKeeper is translated for `node`.

    Raises StorageError, `FormatError`, UsageError.
    """
    old = texts = entries(read_lines(file))
    translation = None
    if not is_of_kraft(texts):
        translation = translated(file, file + KRAFT_SUFFIX, partial(to_kraft, node=node or KRaftNode()))
        texts = entries(translation.translation.lines)
    roles = texts["process.roles"]
    unknown = [word for word in _words(roles) if word not in list(Role)]
    number = texts.get("node.id", texts.get("broker.id", "")).strip()
    if unknown or not number.isdecimal():
        wrong = f"process.roles={roles}" if unknown else f"node.id={number or '(not set)'}"
        cure = "--node-id gives the id of a broker that had generated it" if translation else None
        raise UsageError(f"{wrong} is not valid", file=file, cure=cure)
    log_dirs = _words(texts.get("log.dirs", "")) or _words(texts.get("log.dir", ""))
    metadata = texts.get("metadata.log.dir", "").strip() or next(iter(log_dirs), "")
    if not metadata:
        raise UsageError("sets neither log.dirs nor metadata.log.dir", file=file)
    return NodeProperties(
        file,
        texts,
        int(number),
        frozenset(map(Role, _words(roles))),
        tuple(map(os.path.abspath, log_dirs)),
        os.path.abspath(metadata),
        old.get(SECRET, "").strip() or None,
        translation,
    )


def layout_of(found: Sequence[NodeProperties], random_bytes: Callable[[int], bytes]) -> Layout:
    """The nodes of properties files, with the ids of their directories.

    Raises UsageError if the files contradict each other or a voter is missing, StorageError, `FormatError`.
    """
    owners: dict[str, NodeProperties] = {}
    by_id: dict[int, NodeProperties] = {}
    for each in found:
        if by_id.setdefault(each.node_id, each) is not each:
            raise UsageError(
                f"node.id {each.node_id} is also in {by_id[each.node_id].file}",
                file=each.file,
                cure="a controller and a broker of their own need two ids; a combined node has one file",
            )
        for directory in _directories(each):
            if owners.setdefault(directory, each) is not each:
                raise UsageError(f"{directory} is also in {owners[directory].file}", file=each.file)
    nodes = tuple(
        Node(
            each.node_id,
            each.roles,
            with_directory_ids(_directories(each), random_bytes),
            each.metadata_directory,
        )
        for each in found
    )
    return Layout(nodes, _voters(found, nodes))


def _directories(found: NodeProperties) -> list[str]:
    """A controller that is no broker uses only the directory of the metadata."""
    of_logs = found.log_dirs if Role.BROKER in found.roles else ()
    return list(dict.fromkeys((found.metadata_directory, *of_logs)))


def _voters(found: Sequence[NodeProperties], nodes: Sequence[Node]) -> dict[int, Voter]:
    """The voters of a dynamic quorum; none of a static one, whose voters all must be here."""
    controllers = {each.node_id: each for each in found if Role.CONTROLLER in each.roles}
    static = next((each for each in found if each.text(_STATIC)), None)
    if static is not None:
        _require_voters(static, controllers)
        return {}
    without = next((each for each in found if not each.text(_DYNAMIC)), None)
    if without is not None:
        cure = "--voters names the controllers" if without.translation else None
        raise UsageError(f"sets neither {_STATIC} nor {_DYNAMIC}", file=without.file, cure=cure)
    ids = {node.node_id: node.directories[node.metadata_directory] for node in nodes}
    return {
        node_id: Voter(ids[node_id], (_endpoint(each),), _KRAFT_VERSIONS)
        for node_id, each in controllers.items()
    }


def _require_voters(static: NodeProperties, controllers: Mapping[int, NodeProperties]) -> None:
    """A voter without the metadata could be elected with an empty log. Brokers alone need none."""
    numbers = (word.partition("@")[0] for word in _words(static.text(_STATIC)))
    named = {int(number) for number in numbers if number.isdecimal()}
    if controllers and named != controllers.keys():
        different = sorted(named ^ controllers.keys())[0]
        what = (
            f"names voter {different}, and no --config is that controller's"
            if different in named
            else f"does not name controller {different}"
        )
        raise UsageError(
            f"{_STATIC} {what}",
            file=static.file,
            cure="give the properties files of all controllers: each of them gets the metadata",
        )


def _endpoint(found: NodeProperties) -> VoterEndpoint:
    """Where a controller listens: an address that others can reach."""
    name = next(iter(_words(found.text("controller.listener.names"))), "CONTROLLER")
    for config in ("advertised.listeners", "listeners"):
        for word in _words(found.text(config)):
            listener, _, address = word.partition("://")
            host, _, port = address.rpartition(":")
            if listener == name and host and port.isdecimal():
                return VoterEndpoint(name, host.strip("[]"), int(port))
    raise UsageError(
        f"no host and port of listener {name} in advertised.listeners or listeners",
        file=found.file,
        cure="the voters of a dynamic quorum are written with their addresses",
    )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
