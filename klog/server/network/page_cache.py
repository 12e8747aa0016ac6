"""Whether a slice of a file is in the page cache, so that sending it does not wait for a disk.

Linux answers with `preadv2` and RWF_NOWAIT, which fails rather than waits. One byte is asked for at the start
of the slice, at the end, and every 256 KiB between: a slice of which other pages only are missing counts as
cached. On systems without that call, and for file systems without it (those in memory), all slices do; a
`ProbedFile` of such a file system is asked only once.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

from klog.protocol.file_slice import FileSlice
from klog.storage.log.cold_reads import ProbedFile

_STEP_BYTES: Final = 256 * 1024
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", None)

IsCached = Callable[[FileSlice], bool]


def is_cached(part: FileSlice) -> bool:
    """Whether the slice can be read without waiting, as far as its looked at pages tell. A slice that cannot
    be read at all counts as cached: sending it finds the error.
    """
    file = part.file
    probed = file if isinstance(file, ProbedFile) else None
    if _NOWAIT is None or (probed is not None and probed.refuses_probes):
        return True
    byte = [bytearray(1)]
    last = part.position_bytes + part.size_bytes - 1
    try:
        fd = file.fileno()
        for position in range(part.position_bytes, last, _STEP_BYTES):
            os.preadv(fd, byte, position, _NOWAIT)
        os.preadv(fd, byte, last, _NOWAIT)
    except ValueError:
        return True
    except OSError as error:
        if probed is not None and error.errno == errno.EOPNOTSUPP:
            probed.refuses_probes = True
        return error.errno != errno.EAGAIN
    return True
