"""Chooses the output of an export: a local directory, or an object store."""

from __future__ import annotations

import re
from typing import Final

from klog.export.outputs import LocalOutput, Output
from klog.formats.errors import StorageError
from klog.replicas.files import is_remote, local_path

_WITHOUT_PLACE: Final = re.compile(r"(s3[an]?|gs|gcs|abfss?|hdfs|https?):(?!//[^/?])", re.IGNORECASE)


def open_output(place: str) -> Output:
    """The output at a path or URI. Nothing is created yet.

    Raises what `check_place` raises.
    """
    check_place(place)
    if is_remote(place):
        from klog.export.remote_output import RemoteOutput

        return RemoteOutput(place)
    return LocalOutput(local_path(place))


def check_place(place: str) -> None:
    """Raise `StorageError` for a mistyped URI, which would else be a path with a colon in it."""
    if scheme := _WITHOUT_PLACE.match(place):
        uri = f"{scheme[1].lower()}://BUCKET/PATH"
        raise StorageError("names no place in an object store", file=place, cure=f"write {uri}")
