"""A running cluster as the source of `klog backup run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klog.commands.offline.backing.running import Origin
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_note

if TYPE_CHECKING:
    from klog.admin.settings import ClientSettings

_JOBS: Final = 4


def cluster_origin(connection: ConnectionOptions) -> Origin:
    """The cluster that the options name; each run opens it anew. Raises UsageError for bad options."""
    from klog.admin import connect
    from klog.backup.wire.source import WireSource

    settings = connection.settings()
    name = ",".join(map(str, settings.bootstrap))
    metadata = _Metadata(settings)
    return Origin(lambda: WireSource(lambda: connect.cluster(settings), name), _JOBS, metadata.read)


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
