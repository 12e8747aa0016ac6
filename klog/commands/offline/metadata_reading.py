"""How the commands of `klog metadata` read a source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klog.commands.offline.zookeeper_access import ZooKeeperConfig, access_of
from klog.commands.shared.messages import print_error, print_note
from klog.commands.shared.option_sets import flag
from klog.formats.errors import KlogError, UnsupportedFormatError

if TYPE_CHECKING:
    from klog.cluster_metadata.forms import Reading
    from klog.metadata.zookeeper_access import ZooKeeperAccess

SOURCE_HELP: Final = (
    "host:port/chroot of a ZooKeeper, a directory with metadata of klog, KRaft or ZooKeeper (several with"
    " commas), or a file that `show -o json` wrote."
)

Source = Annotated[str, typer.Argument(metavar="SOURCE", help=SOURCE_HELP, show_default=False)]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read a source."""

    skip_unknown: bool = flag("Leave out records of a later Kafka, and name them, instead of stopping there.")

    zookeeper_config: ZooKeeperConfig = None

    def access(self) -> ZooKeeperAccess:
        """How a ZooKeeper is read and written. Raises ConfigError, UsageError, StorageError."""
        return access_of(self.zookeeper_config)

    def read(self, source: str) -> Reading:
        """The cluster at a source; says what there is to know about it."""
        from klog.cluster_metadata.forms import raise_problem
        from klog.cluster_metadata.sources import read_source

        on_problem = leave_out_unknown if self.skip_unknown else raise_problem
        reading = read_source(source, on_problem, self.access())
        for note in reading.notes:
            print_note(f"note: {note}")
        return reading


def leave_out_unknown(error: KlogError) -> None:
    """Names what a later Kafka wrote; any other error is raised."""
    if not isinstance(error, UnsupportedFormatError):
        raise error
    error.cure = "left out"
    print_error(error)
