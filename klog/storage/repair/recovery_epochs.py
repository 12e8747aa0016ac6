"""Plans the leader epochs of a log that is recovered: from its file, then from the recovered batches.

Rules: Kafka's `LeaderEpochFileCache` as `LogLoader` uses it: batches add epochs above the latest one.
"""

from __future__ import annotations

from klog.formats.checkpoints import EpochCheckpoint, EpochEntry, build_epochs, parse_epochs
from klog.formats.errors import FormatError
from klog.formats.names import FileKind
from klog.kernel.columns import BatchTable
from klog.storage.files.files import read_whole
from klog.storage.repair.leader_epochs import LeaderEpochs
from klog.storage.repair.recovery_plan import Finding, Step, Write
from klog.storage.repair.recovery_state import Recovery


def note_epochs(table: BatchTable, rows: int, epochs: list[EpochEntry], first: int = 0) -> None:
    """Add each epoch above those noted before, with its first offset. The batches are those from row `first`
    to before `rows`.
    """
    latest = epochs[-1].epoch if epochs else -1
    if first >= rows or max(table.leader_epoch) <= latest:
        return
    for row in range(first, rows):
        if table.leader_epoch[row] > latest and table.magic[row] >= 2:
            latest = table.leader_epoch[row]
            epochs.append(EpochEntry(latest, table.base_offset[row]))


def read_epochs(work: Recovery) -> tuple[LeaderEpochs, bytes | None, bool]:
    """The epochs from the file and then the recovered segments, the bytes of the file (None: no file), and
    whether the file could be read.
    """
    name = str(FileKind.LEADER_EPOCH_CHECKPOINT)
    data: bytes | None = None
    readable = True
    epochs = LeaderEpochs()
    if FileKind.LEADER_EPOCH_CHECKPOINT in work.files.plain:
        data = read_whole(work.files.named(name))
        try:
            epochs = LeaderEpochs(parse_epochs(data).entries)
        except FormatError as error:
            readable = False
            work.findings.append(
                Finding(name, error.what, "takes the log directory offline", error.position_bytes)
            )
    _assign_recovered(epochs, work)
    return epochs, data, readable


def _assign_recovered(epochs: LeaderEpochs, work: Recovery) -> None:
    # Segments without a usable index come first, because Kafka recovers them while it loads the others.
    ordered = sorted(work.recovered.items(), key=lambda item: (not item[1].at_load, item[0]))
    for _, recovered in ordered:
        for entry in recovered.epochs:
            epochs.assign_newer(entry)


def epochs_of_batches(work: Recovery, end_offset: int) -> LeaderEpochs:
    """The epochs of the batches of recovered segments, as if there were no file."""
    epochs = LeaderEpochs()
    _assign_recovered(epochs, work)
    epochs.truncate_from_end(end_offset)
    return epochs


def epoch_steps(epochs: LeaderEpochs, old: bytes | None, *, had_entries: bool) -> list[Step]:
    """The write of the file, if its bytes (`old`, None: no file) are not those of `epochs`."""
    name = str(FileKind.LEADER_EPOCH_CHECKPOINT)
    new = build_epochs(EpochCheckpoint(epochs.entries))
    if not epochs.entries and not had_entries:
        # Kafka takes a file that ends inside its first two lines for empty. Then it has nothing to write.
        return [Write(name, b"", "missing")] if old is None else []
    return [] if old == new else [Write(name, new, "differs from what the batches give")]
