"""The SHA-256 that another thread computes is the SHA-256."""

from __future__ import annotations

import hashlib
import random
from contextlib import closing

from klog.backup.hashing import BackgroundHash


def test_the_hash_is_of_all_parts_in_their_order() -> None:
    chance = random.Random(7)
    parts = [chance.randbytes(chance.choice([0, 10, 300_000, 900_000])) for _ in range(20)]
    with closing(BackgroundHash()) as digest:
        for part in parts:
            digest.begin(part)
        assert digest.hexdigest() == hashlib.sha256(b"".join(parts)).hexdigest()


def test_a_buffer_may_change_after_it_was_waited_for() -> None:
    buffer = bytearray(1 << 20)
    with closing(BackgroundHash()) as digest:
        digest.begin(buffer)
        digest.wait()
        buffer[:] = b"x" * len(buffer)
        assert digest.hexdigest() == hashlib.sha256(bytes(1 << 20)).hexdigest()


def test_all_but_the_last_bytes_may_change_after_they_were_waited_for() -> None:
    first, second = bytearray(b"1" * (1 << 20)), bytes(1 << 20)
    with closing(BackgroundHash()) as digest:
        digest.begin(first)
        digest.begin(second)
        digest.wait_for_earlier()
        first[:] = b"x" * len(first)
        assert digest.hexdigest() == hashlib.sha256(b"1" * (1 << 20) + second).hexdigest()
