"""Chooses the output of an export: a local directory, or an object store."""

from __future__ import annotations

from klog.export.outputs import LocalOutput, Output
from klog.replicas.files import is_remote, local_path


def open_output(place: str) -> Output:
    """The output at a path or URI. Nothing is created yet."""
    if is_remote(place):
        from klog.export.remote_output import RemoteOutput

        return RemoteOutput(place)
    return LocalOutput(local_path(place))
