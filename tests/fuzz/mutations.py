"""Damages of partition directories: bits, whole batches, header fields, payloads, sizes and sidecar files.

Each takes a random source, so a seed names a damage. Checksums are patched in about half of the cases:
a broker trusts what its checksum covers.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from klog.formats.checksums import crc32c

Damage = Callable[[Path, random.Random], str]

EDGES_64 = (0, 1, -1, 2, 2**31 - 1, 2**31, 2**62, 2**63 - 1, 2**63 - 2, -(2**63), -2)
EDGES_32 = (0, 1, -1, 2, 127, 2**15, 2**31 - 1, 2**31 - 2, -(2**31), -2)
EDGES_16 = (0, 1, -1, 7, 15, 0x20, 0x30, 2**15 - 1, -(2**15))
EDGES_8 = (0, 1, 2, 3, 127, -1, -128)
# Name, position in the batch, layout; magic 0 and 1 have the first three.
FIELDS = (
    ("base offset", 0, ">q", EDGES_64),
    ("size", 8, ">i", EDGES_32),
    ("magic", 16, ">b", EDGES_8),
    ("leader epoch", 12, ">i", EDGES_32),
    ("attributes", 21, ">h", EDGES_16),
    ("last offset delta", 23, ">i", EDGES_32),
    ("base timestamp", 27, ">q", EDGES_64),
    ("largest timestamp", 35, ">q", EDGES_64),
    ("producer id", 43, ">q", EDGES_64),
    ("producer epoch", 51, ">h", EDGES_16),
    ("base sequence", 53, ">i", EDGES_32),
    ("count", 57, ">i", EDGES_32),
)


def batches(data: bytes | bytearray) -> list[tuple[int, int]]:
    """Start and end of each whole batch."""
    found = []
    at = 0
    while at + 17 <= len(data):
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        if size < 26 or at + size > len(data):
            break
        found.append((at, at + size))
        at += size
    return found


def seal(data: bytearray, start: int, end: int) -> None:
    """Make the checksum of a batch fit its bytes."""
    if data[start + 16] >= 2 and end - start >= 61:
        struct.pack_into(">I", data, start + 17, crc32c(bytes(data[start + 21 : end])))
    elif end - start >= 17:
        struct.pack_into(">I", data, start + 12, zlib.crc32(data[start + 16 : end]))


def _flip_bits(data: bytearray, chance: random.Random, start: int, end: int) -> None:
    for _ in range(chance.choice((1, 1, 2, 8))):
        data[chance.randrange(start, end)] ^= 1 << chance.randrange(8)


def _flip(data: bytearray, chance: random.Random) -> str:
    start, end = chance.choice(batches(data))
    place = chance.choice(("batch", "header", "payload"))
    header = 61 if data[start + 16] >= 2 else 26
    low = min(start + header, end - 1) if place == "payload" else start
    high = min(start + header, end) if place == "header" else end
    _flip_bits(data, chance, low, high)
    sealed = chance.random() < 0.5
    if sealed:
        seal(data, start, end)
    return f"bits of a {place} at {start}, sealed {sealed}"


def _set_field(data: bytearray, chance: random.Random) -> str:
    start, end = chance.choice(batches(data))
    fields = FIELDS if data[start + 16] >= 2 and end - start >= 61 else FIELDS[:3]
    name, at, layout, edges = chance.choice(fields)
    old = struct.unpack_from(layout, data, start + at)[0]
    value = chance.choice((*edges, *(near for near in (old - 1, old + 1, old - 7) if near in edges)))
    if name == "base offset" and chance.random() < 0.5:
        value = max(0, old + chance.choice((-40, -5, -1, 1, 3, 50)))
    struct.pack_into(layout, data, start + at, value)
    sealed = chance.random() < 0.7
    if sealed and name != "size":
        seal(data, start, end)
    return f"{name} {old} -> {value} at {start}, sealed {sealed}"


def _bad_payload(data: bytearray, chance: random.Random) -> str:
    start, end = chance.choice(batches(data))
    if data[start + 16] < 2 or end - start < 62:
        return _flip(data, chance)
    size = end - start - 61
    how = chance.choice(("random", "zeros", "cut", "codec"))
    if how == "codec":
        data[start + 22] = (data[start + 22] & 0xF8) | chance.randrange(8)
    elif how == "cut":
        gone = chance.randrange(1, size + 1)
        del data[end - gone : end]
        end -= gone
        struct.pack_into(">i", data, start + 8, end - start - 12)
    else:
        data[start + 61 : end] = chance.randbytes(size) if how == "random" else bytes(size)
    seal(data, start, end)
    return f"payload {how} at {start}"


def _move_batches(data: bytearray, chance: random.Random) -> str:
    found = [bytes(data[start:end]) for start, end in batches(data)]
    tail = bytes(data[sum(map(len, found)) :])
    one = chance.randrange(len(found))
    how = chance.choice(("duplicate", "duplicate next", "drop", "swap", "reverse"))
    if how == "duplicate":
        found.insert(chance.randrange(one, len(found)) + 1, found[one])
    elif how == "duplicate next":
        found.insert(one, found[one])
    elif how == "drop":
        del found[one]
    elif how == "swap":
        other = chance.randrange(len(found))
        found[one], found[other] = found[other], found[one]
    else:
        found.reverse()
    data[:] = b"".join(found) + tail
    return f"{how} batch {one}"


def _change_size(data: bytearray, chance: random.Random) -> str:
    how = chance.choice(("truncate", "zeros", "random", "partial batch", "empty"))
    if how == "truncate":
        del data[chance.randrange(len(data)) :]
    elif how == "zeros":
        data += bytes(chance.randrange(1, 3000))
    elif how == "random":
        data += chance.randbytes(chance.randrange(1, 300))
    elif how == "partial batch":
        start, end = chance.choice(batches(data))
        data += data[start : chance.randrange(start, end)]
    else:
        data.clear()
    return f"size: {how}"


def _on_log(change: Callable[[bytearray, random.Random], str]) -> Damage:
    def damage(directory: Path, chance: random.Random) -> str:
        logs = [log for log in sorted(directory.glob("*.log")) if batches(log.read_bytes())]
        if not logs:
            return "nothing"
        log = chance.choice(logs)
        data = bytearray(log.read_bytes())
        what = change(data, chance)
        log.write_bytes(data)
        return f"{log.name}: {what}"

    return damage


LOG_DAMAGES: tuple[Damage, ...] = tuple(
    map(_on_log, (_flip, _set_field, _set_field, _bad_payload, _move_batches, _change_size))
)

_ENTRIES = {".index": (">ii", (EDGES_32, EDGES_32)), ".timeindex": (">qi", (EDGES_64, EDGES_32))}


def _entry(suffix: str, chance: random.Random) -> bytes:
    if suffix == ".txnindex":
        return struct.pack(">h4q", chance.choice(EDGES_16), *(chance.choice(EDGES_64) for _ in range(4)))
    layout, edges = _ENTRIES[suffix]
    return struct.pack(layout, *map(chance.choice, edges))


def damage_index(directory: Path, chance: random.Random) -> str:
    """Change, make or remove an offset, time or transaction index."""
    log = chance.choice(sorted(directory.glob("*.log")))
    suffix = chance.choice((".index", ".timeindex", ".txnindex"))
    path = log.with_suffix(suffix)
    data = bytearray(path.read_bytes()) if path.exists() else bytearray()
    how = chance.choice(("append", "append", "set", "flip", "cut", "random", "zeros", "reverse", "delete"))
    if how == "append":
        data += _entry(suffix, chance)
    elif how == "set" and data:
        entry = _entry(suffix, chance)
        at = chance.randrange(len(data)) // len(entry) * len(entry)
        data[at : at + len(entry)] = entry
    elif how == "flip" and data:
        _flip_bits(data, chance, 0, len(data))
    elif how == "cut" and data:
        del data[chance.randrange(len(data)) :]
    elif how == "random":
        data[:] = chance.randbytes(chance.choice((1, 7, 8, 12, 24, 34, 68, 96, 1000)))
    elif how == "zeros":
        data += bytes(chance.choice((1, 8, 12, 24, 34, 4096)))
    elif how == "reverse":
        data.reverse()
    elif how == "delete":
        path.unlink(missing_ok=True)
        return f"{path.name}: deleted"
    path.write_bytes(data)
    return f"{path.name}: {how}"


def damage_snapshot(directory: Path, chance: random.Random) -> str:
    """Change, copy, make or remove a producer snapshot; its checksum fits in half of the cases."""
    found = sorted(directory.glob("*.snapshot"))
    path = chance.choice(found) if found else directory / "00000000000000000000.snapshot"
    data = bytearray(path.read_bytes()) if found else bytearray(struct.pack(">hIi", 1, 0, 0))
    how = chance.choice(("flip", "cut", "set", "random", "copy", "delete", "producer"))
    if how == "flip" and data:
        _flip_bits(data, chance, 0, len(data))
    elif how == "cut":
        del data[chance.randrange(len(data) + 1) :]
    elif how == "set" and len(data) >= 4:
        struct.pack_into(">i", data, chance.randrange(len(data) - 3), chance.choice(EDGES_32))
    elif how == "random":
        data[:] = chance.randbytes(chance.choice((0, 1, 10, 14, 100)))
    elif how == "copy":
        offset = chance.choice((0, 1, 3, 7, 9000, 2**63 - 1))
        path = directory / f"{offset:020}.snapshot"
    elif how == "producer":
        wide, narrow, small = chance.choice(EDGES_64), chance.choice(EDGES_32), chance.choice(EDGES_16)
        data[:] = struct.pack(">hIi", 1, 0, 1)
        data += struct.pack(">qhiqiqiq", wide, small, narrow, wide, narrow, wide, narrow, wide)
    else:
        path.unlink(missing_ok=True)
        return f"{path.name}: deleted"
    if chance.random() < 0.5 and len(data) >= 6:
        struct.pack_into(">I", data, 2, crc32c(bytes(data[6:])))
    path.write_bytes(data)
    return f"{path.name}: {how}"


def damaged_text(data: bytes, chance: random.Random) -> bytes:
    """The text of a checkpoint with a damage."""
    lines = data.splitlines() or [b"0", b"0"]
    how = chance.choice(("flip", "cut", "number", "double", "swap", "garbage", "empty", "blank lines"))
    if how == "flip" and data:
        changed = bytearray(data)
        _flip_bits(changed, chance, 0, len(changed))
        return bytes(changed)
    if how == "cut":
        return data[: chance.randrange(len(data) + 1)]
    if how == "number":
        at = chance.randrange(len(lines))
        words = lines[at].split() or [b"0"]
        value = chance.choice((*EDGES_64, 2**63, 2**64, 10**30, -(10**20)))
        words[chance.randrange(len(words))] = b"%d" % value
        lines[at] = b" ".join(words)
    elif how == "double":
        lines.append(lines[-1])
        if chance.random() < 0.7 and len(lines) > 2:
            lines[1] = b"%d" % (len(lines) - 2)
    elif how == "swap" and len(lines) > 3:
        lines[2], lines[-1] = lines[-1], lines[2]
    elif how == "garbage":
        return chance.randbytes(chance.randrange(1, 200))
    elif how == "empty":
        return b""
    elif how == "blank lines":
        return b"\n\n" + data
    return b"\n".join(lines) + b"\n"


def damage_epochs(directory: Path, chance: random.Random) -> str:
    """Change, make or remove the leader epochs."""
    path = directory / "leader-epoch-checkpoint"
    if chance.random() < 0.15:
        path.unlink(missing_ok=True)
        return "leader epochs: deleted"
    data = path.read_bytes() if path.exists() else b"0\n1\n0 0\n"
    path.write_bytes(damaged_text(data, chance))
    return f"leader epochs: {path.read_bytes()[:60]!r}"


def leave_over(directory: Path, chance: random.Random) -> str:
    """Files that an interrupted cleaning, deletion or write leaves behind, and files of nobody."""
    files = sorted(path for path in directory.iterdir() if path.is_file())
    path = chance.choice(files)
    how = chance.choice(("deleted", "cleaned", "swap", "4711.tmp", "tmp", "renamed", "lone", "part"))
    if how == "renamed":
        path.rename(path.with_name(f"{chance.choice((3, 9000)):020}{path.suffix}"))
        return f"{path.name}: renamed"
    if how == "lone":
        path.with_name(
            f"{chance.choice((3, 9000)):020}{chance.choice(('.index', '.snapshot', '.txnindex'))}"
        ).touch()
        return "a lone file"
    if chance.random() < 0.5:
        path.rename(f"{path}.{how}")
        return f"{path.name}: is .{how}"
    Path(f"{path}.{how}").write_bytes(path.read_bytes())
    return f"{path.name}: has a copy .{how}"


SIDECAR_DAMAGES: tuple[Damage, ...] = (damage_index, damage_index, damage_snapshot, damage_epochs)
DAMAGES: tuple[Damage, ...] = (*LOG_DAMAGES, *SIDECAR_DAMAGES, leave_over)


def damage(directory: Path, chance: random.Random, damages: tuple[Damage, ...] = DAMAGES) -> list[str]:
    """Damage a partition directory once or a few times; says how."""
    return [
        chance.choice(damages)(directory, chance)
        for _ in range(chance.choice((1, 1, 1, 2, 3)))
        if any(directory.glob("*.log"))
    ]
