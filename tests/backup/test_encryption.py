"""How an object is encrypted: any part is read alone, and every change of it is noticed."""

from __future__ import annotations

import io
import random
from collections import Counter

import pytest

from klog.backup import encryption
from klog.backup.encryption import CHUNK_BYTES, DataKey, Keys, OpenedObject, Sealer, stored_bytes
from klog.formats.errors import StorageError

NAME = "data/orders-0/x.log"
SIZES = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 100]


@pytest.fixture
def keys() -> Keys:
    return made_keys("00" * 8, 1)


def made_keys(identifier: str, seed: int) -> Keys:
    chance = random.Random(seed)
    return Keys(DataKey(identifier, chance.randbytes(32)), no_other_key, chance.randbytes)


def no_other_key(identifier: str) -> DataKey:
    raise StorageError(f"there is no key {identifier}")


def sealed(keys: Keys, plain: bytes, name: str = NAME, *, step_bytes: int = 100_000) -> bytes:
    stored = bytearray()
    sealer = Sealer(keys, stored.extend)
    for start in range(0, len(plain), step_bytes):
        sealer.add(plain[start : start + step_bytes])
    sealer.finish(name)
    return bytes(stored)


def opened(keys: Keys, stored: bytes, name: str = NAME) -> OpenedObject:
    return OpenedObject(io.BytesIO(stored), name, f"/repository/{name}", keys)


@pytest.mark.parametrize("size_bytes", SIZES)
@pytest.mark.parametrize("step_bytes", [1000, CHUNK_BYTES, 5 * CHUNK_BYTES])
def test_what_was_written_is_read(keys: Keys, size_bytes: int, step_bytes: int) -> None:
    plain = random.Random(size_bytes).randbytes(size_bytes)
    stored = sealed(keys, plain, step_bytes=step_bytes)

    assert len(stored) == stored_bytes(size_bytes)
    assert opened(keys, stored).read() == plain


def test_any_part_is_read_alone(keys: Keys) -> None:
    chance = random.Random(3)
    plain = chance.randbytes(40 * CHUNK_BYTES + 77)
    file = opened(keys, sealed(keys, plain))
    for _ in range(60):
        start = chance.randrange(len(plain))
        size = chance.choice([1, 100, CHUNK_BYTES, 1 << 20])
        file.seek(start)
        assert file.read(size) == plain[start : start + size]


def test_a_part_is_read_without_the_rest(keys: Keys) -> None:
    stored = _CountedFile(sealed(keys, bytes(100 * CHUNK_BYTES)))
    file = OpenedObject(stored, NAME, NAME, keys)
    file.seek(50 * CHUNK_BYTES + 9)
    file.read(10)

    assert stored.read_bytes < 2 * CHUNK_BYTES


class _CountedFile(io.BytesIO):
    read_bytes = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.read_bytes += len(data)
        return data

    def readinto(self, buffer, /) -> int:
        got = super().readinto(buffer)
        self.read_bytes += got
        return got


def test_a_flipped_bit_anywhere_is_noticed(keys: Keys) -> None:
    stored = sealed(keys, b"some batches")
    for position in range(len(stored)):
        changed = bytearray(stored)
        changed[position] ^= 1 << position % 8
        with pytest.raises(StorageError):
            opened(keys, bytes(changed)).read()


def test_a_changed_length_is_noticed(keys: Keys) -> None:
    stored = sealed(keys, bytes(3 * CHUNK_BYTES))
    step = CHUNK_BYTES + encryption.TAG_BYTES
    trailer = stored[3 * step :]
    for changed in (stored[:-1], stored[step:], stored[: 2 * step] + trailer, stored + trailer, b""):
        with pytest.raises(StorageError):
            opened(keys, changed).read()


def test_an_object_under_the_name_of_another_is_noticed(keys: Keys) -> None:
    stored = sealed(keys, b"some batches", "data/orders-0/a.log")
    with pytest.raises(StorageError, match="another object") as raised:
        opened(keys, stored, "data/orders-0/b.log")
    assert raised.value.file == "/repository/data/orders-0/b.log"


def test_chunks_cannot_change_places(keys: Keys) -> None:
    one, other = (sealed(keys, bytes([each]) * 2 * CHUNK_BYTES) for each in (1, 2))
    step = CHUNK_BYTES + encryption.TAG_BYTES
    swapped = one[step : 2 * step] + one[:step] + one[2 * step :]
    mixed = one[:step] + other[step : 2 * step] + one[2 * step :]
    for changed in (swapped, mixed):
        with pytest.raises(StorageError, match="was changed"):
            opened(keys, changed).read()


def test_another_key_reads_nothing(keys: Keys) -> None:
    stored = sealed(keys, b"some batches")
    with pytest.raises(StorageError, match="was changed"):
        opened(made_keys("00" * 8, 2), stored)
    with pytest.raises(StorageError, match="there is no key 0000000000000000"):
        opened(made_keys("11" * 8, 2), stored)


def test_no_nonce_is_used_twice_with_one_key(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of an object follows from 32 random bytes, and its nonces are numbers."""
    used: Counter[tuple[bytes, bytes]] = Counter()
    cipher_of = encryption.cipher_of

    class Recorded:
        def __init__(self, key: bytes) -> None:
            self._key, self._cipher = key, cipher_of(key)

        def encrypt(self, nonce: bytes, data: bytes, bound_to: bytes | None) -> bytes:
            used[self._key, nonce] += 1
            return self._cipher.encrypt(nonce, data, bound_to)

    monkeypatch.setattr(encryption, "cipher_of", Recorded)
    for number in range(50):
        sealed(keys, bytes(number * 10_000))

    assert len({key for key, _ in used}) == 50
    assert set(used.values()) == {1}


def test_the_key_is_not_shown(keys: Keys) -> None:
    assert keys.current.secret.hex() not in repr(keys.current)
    assert repr(keys.current.secret) not in repr(keys.current)
