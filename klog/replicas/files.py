"""Opens and lists the files that an export reads, by local paths or URIs. Each failure is a `StorageError`.

Local files are read through `klog.storage.files.files`, all others through `klog.replicas.remote`. A file
whose name ends in `.gz` is decompressed while it is read.
"""

from __future__ import annotations

import fnmatch
import glob
import io
import os
import re
import stat
from dataclasses import dataclass
from typing import BinaryIO, Final
from urllib.parse import unquote

from klog.formats.errors import StorageError
from klog.storage.files import files as local
from klog.storage.files.files import GZIP_SUFFIX, MAX_SMALL_BYTES
from klog.storage.files.gzipped import GzippedFile

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_FILE_URI: Final = re.compile(r"file:/", re.IGNORECASE)
_GZIP_MAGIC: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory; `path` opens or lists it. `size_bytes` is 0 for directories."""

    name: str
    path: str
    is_directory: bool
    size_bytes: int


def is_remote(path: str) -> bool:
    """Whether `path` is a URI of anything but the local file system."""
    return _FILE_URI.match(path) is None and _SCHEME.match(path) is not None


def local_path(path: str) -> str:
    """The path of a local file, also of a `file:` URI."""
    return unquote("/" + path[5:].lstrip("/")) if _FILE_URI.match(path) else path


def join(base: str, *names: str) -> str:
    """A path below `base`. The options of a URI (`?endpoint_override=...`) stay at its end."""
    if not is_remote(base):
        return os.path.join(local_path(base), *names)
    place, mark, options = base.partition("?")
    return "/".join([place.rstrip("/"), *names]) + mark + options


def parent(path: str) -> str:
    """The directory that holds `path`."""
    if not is_remote(path):
        return os.path.dirname(os.path.abspath(local_path(path)))
    place, mark, options = path.partition("?")
    return place.rstrip("/").rpartition("/")[0] + mark + options


def base_name(path: str) -> str:
    """The last name of `path`."""
    if not is_remote(path):
        return os.path.basename(os.path.abspath(local_path(path)))
    return path.partition("?")[0].rstrip("/").rpartition("/")[2]


def open_input(path: str) -> BinaryIO:
    """The file at `path` as a seekable stream of plain bytes with `readinto`. Raises `StorageError`.

    Reads of the stream raise only `StorageError` too. A `.gz` file that is not gzipped is read as it is.
    """
    if not is_remote(path):
        return local.open_for_reading(local_path(path))
    from klog.replicas.remote import RemoteFile

    file = RemoteFile(path)
    gzipped = base_name(path).endswith(GZIP_SUFFIX) and file.read(2) == _GZIP_MAGIC
    file.seek(0)
    return GzippedFile(file, path) if gzipped else file  # type: ignore[return-value,arg-type]


def list_directory(path: str) -> list[Entry]:
    """The entries of a directory, by name, without devices. Reading a broken link fails.

    Raises `StorageError`.
    """
    if is_remote(path):
        return _list_remote(path)
    found = []
    directory = local_path(path)
    for entry in local.list_directory(directory):
        is_directory = local.is_directory(entry)
        is_file = local.is_regular_file(entry)
        if not is_directory and not is_file and not local.is_broken_link(entry.path):
            continue
        try:
            size_bytes = entry.stat().st_size if is_file else 0
        except FileNotFoundError:
            continue  # a broker removed it meanwhile
        found.append(Entry(entry.name, os.path.join(directory, entry.name), is_directory, size_bytes))
    return found


def entry_of(path: str) -> Entry | None:
    """The entry at `path`, None if there is none. Raises `StorageError` if that cannot be found out."""
    if is_remote(path):
        return _remote_entry(path)
    name = local_path(path)
    found = local.look_up(name)
    if found is None:
        return None
    is_directory = stat.S_ISDIR(found.st_mode)
    return Entry(base_name(name), name, is_directory, 0 if is_directory else found.st_size)


def expand(path: str) -> list[str]:
    """The paths that a pattern matches, by name; a path that is no pattern as it is. Raises `StorageError`.

    Each name of a pattern may have `*`, `?` or `[...]`; in a URI `?` starts the options and is no pattern.
    """
    if not is_remote(path):
        name = local_path(path)
        return sorted(glob.glob(name)) if glob.has_magic(name) and not os.path.exists(name) else [path]
    place, mark, options = path.partition("?")
    above, _, last = place.rstrip("/").rpartition("/")
    if not glob.has_magic(place) or above.endswith(":/"):
        return [path]
    return [
        entry.path
        for directory in expand(above + mark + options)
        for entry in list_directory(directory)
        if fnmatch.fnmatchcase(entry.name, last)
    ]


def exists(path: str) -> bool:
    """Whether there is a file or directory at `path`. Raises `StorageError` if that cannot be found out."""
    return entry_of(path) is not None


def read_small(path: str) -> bytes:
    """All bytes of a file of a small kind. Raises `StorageError`, also if it is larger than such a file can
    be."""
    if not is_remote(path):
        return local.read_small(local_path(path))
    with open_input(path) as file:
        data = file.read(MAX_SMALL_BYTES + 1)
    if len(data) > MAX_SMALL_BYTES:
        raise StorageError(
            f"is larger than {MAX_SMALL_BYTES >> 20} MiB, which no valid file of its kind is",
            file=path,
            cure="it is damaged or not Kafka's: replace it by a valid copy",
        )
    return data


def open_index(path: str) -> BinaryIO:
    """An index file for lookups; one of an object store is fetched completely, in one request.

    Raises `StorageError`, also for a gzipped copy: an index is not searched in one.
    """
    if base_name(path).endswith(GZIP_SUFFIX):
        raise StorageError("an index is not read from a gzipped copy", file=path)
    file = open_input(path)
    if not is_remote(path):
        return file
    with file:
        return io.BytesIO(file.read(MAX_SMALL_BYTES))


def _list_remote(path: str) -> list[Entry]:
    import pyarrow.fs as pafs

    from klog.replicas.remote import guarded, resolve

    system, place = resolve(path)
    infos = guarded(path, "cannot be listed", lambda: system.get_file_info(pafs.FileSelector(place)))
    entries = [
        Entry(
            info.base_name,
            join(path, info.base_name),
            info.type == pafs.FileType.Directory,
            info.size or 0,
        )
        for info in infos
        if info.base_name
    ]
    return sorted(entries, key=lambda entry: entry.name)


def _remote_entry(path: str) -> Entry | None:
    import pyarrow.fs as pafs

    from klog.replicas.remote import guarded, resolve

    system, place = resolve(path)
    info = guarded(path, "cannot be read", lambda: system.get_file_info(place))
    if info.type == pafs.FileType.NotFound:
        return None
    return Entry(base_name(path), path, info.type == pafs.FileType.Directory, info.size or 0)
