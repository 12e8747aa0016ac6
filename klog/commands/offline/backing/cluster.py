"""A running cluster as the source of `klog backup run`, and where the metadata comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

from klog.commands.offline.backing.running import Origin, RunningOptions
from klog.commands.offline.zookeeper_access import access_of
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_note

if TYPE_CHECKING:
    from klog.admin.settings import ClientSettings

_JOBS: Final = 4
_SCHEME: Final = "kafka://"


def cluster_origin(running: RunningOptions, connection: ConnectionOptions) -> Origin:
    """The cluster that the options name; each run opens it anew. Raises UsageError for bad options."""
    from klog.admin import connect
    from klog.backup.wire.source import WireSource

    settings = connection.settings()
    name = ",".join(map(str, settings.bootstrap))
    metadata = metadata_reader(running, connection) or _Metadata(settings).read
    on_note = cache(print_note)  # said once, not in each run

    def find() -> None:
        with connect.cluster(settings):
            pass

    return Origin(lambda: WireSource(lambda: connect.cluster(settings), name, on_note), _JOBS, metadata, find)


def metadata_reader(running: RunningOptions, connection: ConnectionOptions) -> Callable[[], bytes] | None:
    """Gives the JSON form of the metadata that --metadata names, None if it names nothing."""
    source = running.metadata
    if source is None:
        return None
    if source.startswith(_SCHEME):
        named = replace(connection, bootstrap_server=source.removeprefix(_SCHEME))
        return _Metadata(named.settings()).read

    def read() -> bytes:
        from klog.cluster_metadata import json_form
        from klog.cluster_metadata.forms import raise_problem
        from klog.cluster_metadata.sources import read_source

        reading = read_source(source, raise_problem, access_of(running.zookeeper_config))
        return json_form.encode(reading.cluster, secrets=running.secrets)

    return read


class _Metadata:
    """Reads the cluster's metadata, and says what it does not tell, but not again in each run."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._said: tuple[str, ...] = ()

    def read(self) -> bytes:
        """The JSON form. Raises `KlogError`."""
        from klog.admin import connect
        from klog.admin.metadata_reading import read_metadata
        from klog.cluster_metadata import json_form

        with connect.cluster(self._settings) as client:
            found = read_metadata(client)
        untold = (*found.untold, *found.cluster.hidden_secrets)
        if untold != self._said:
            for each in untold:
                print_note(f"not in the backup's metadata: {each}")
            self._said = untold
        return json_form.encode(found.cluster, secrets=False)
