"""Chooses the replica of a partition that a backup reads, if there are several.

Rules: `klog.replicas.replicas`. The replica with the highest leader epoch is chosen, and among those the
longest: the others would follow it. Of several in the same epoch that one comes first whose broker has noted
the highest high watermark: no more of it is read while the broker runs. Replicas in use come before those
that a move or a deletion has left.
"""

from __future__ import annotations

from collections.abc import Sequence

from klog.backup.scanning import Listed
from klog.formats.errors import KlogError
from klog.replicas.replica_contents import ReplicaContents, read_contents
from klog.replicas.replica_files import Found, read_replica
from klog.replicas.replicas import current_replicas, rank


def in_order_of_choice(
    replicas: Sequence[Listed], problems: list[KlogError], *, log_end: bool = False
) -> list[Listed]:
    """The replicas in use, the best one first; unreadable files are added to `problems`.

    `log_end` says that what is above the high watermark is read, too.
    """
    if len(replicas) < 2:
        return list(replicas)
    found = Found()
    by_path = {listed.path: listed for listed in replicas}
    read = [
        read_replica(listed.path, listed.name, [file.entry for file in listed.files], found)
        for listed in replicas
    ]
    current = current_replicas(read, found)
    if len(current) == 1:
        return [by_path[current[0].directory]]
    contents = []
    for replica in current:
        bases = [segment.base_offset for segment in replica.segments[-1:]]
        contents.append(read_contents(replica, found, bases[0] if bases else 0))
    contents.sort(key=lambda one: one.replica.directory)

    def order(one: ReplicaContents) -> tuple[int, int, int, int]:
        epoch, end_offset, first = rank(one)
        bound = None if log_end else by_path[one.replica.directory].bound()
        return epoch, end_offset if bound is None else min(end_offset, bound), end_offset, first

    contents.sort(key=order, reverse=True)
    problems += found.problems
    return [by_path[one.replica.directory] for one in contents]
