"""Finds out which process holds the lock of a log directory, without taking it.

On Linux `/proc` names it. Elsewhere, and if the process is in another container or on another machine, it is
"another process".
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import sys
from typing import Final

ANOTHER_PROCESS: Final = "another process"
_FLOCK, _TYPE, _PID = (
    (struct.Struct("qqihh"), 3, 2) if sys.platform == "darwin" else (struct.Struct("hhqqi4x"), 0, 4)
)
"""`struct flock` of fcntl(2), and the places of its fields `l_type` and `l_pid`."""
_DIRECTORY_LOCK: Final = re.compile(r"FLOCK +ADVISORY +WRITE (\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ")


def record_lock_holder(path: str) -> str | None:
    """Who holds a record lock on the file; None if nobody does, or that cannot be found out.

    Not for a process that holds a lock on it itself: closing the file would release it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    wanted = [0] * 5  # from the start to the end of the file
    wanted[_TYPE] = fcntl.F_WRLCK
    try:
        found = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, _FLOCK.pack(*wanted)))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None if found[_TYPE] == fcntl.F_UNLCK else _process(found[_PID])


def directory_lock_holder(path: str) -> str | None:
    """Who holds a lock on the directory itself; None if nobody does, or that cannot be found out."""
    try:
        status = os.stat(path)
        with open("/proc/locks", encoding="ascii") as file:
            found = _DIRECTORY_LOCK.findall(file.read())
    except OSError:
        return None
    place = (os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)
    for process, major, minor, inode in found:
        if (int(major, 16), int(minor, 16), int(inode)) == place:
            return _process(int(process))
    return None


def _process(number: int) -> str:
    if number <= 0:
        return ANOTHER_PROCESS
    try:
        with open(f"/proc/{number}/cmdline", "rb") as file:
            arguments = file.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return ANOTHER_PROCESS if not os.path.isdir("/proc/self") else f"process {number}"
    return f"process {number} ({_program(arguments)})"


def _program(arguments: list[str]) -> str:
    """The program of a command line, without arguments that may be secret: `klog recover`, `Kafka`, `vim`."""
    if "kafka.Kafka" in arguments:
        return "Kafka"
    names = [os.path.basename(each) for each in arguments]
    if "klog" in names[:-1]:
        return f"klog {names[names.index('klog') + 1]}"
    return names[0]
