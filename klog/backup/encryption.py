"""How an object is stored in an encrypted repository: AES-256-GCM in chunks of 64 KiB, and a trailer.

Each object has a key of its own: HKDF-SHA256 of the repository's data key, with 32 random bytes as salt. A
chunk's nonce is its number, so no key is used with one nonce twice, and chunks of an object cannot change
places with each other or with those of another object. The trailer authenticates the number of bytes and the
object's name under the same key: an object that was cut off, or lies under another name, is noticed when it
is opened. As all chunks but the last one have the same size, any part can be read alone.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from klog.formats.checksums import Bytes
from klog.formats.errors import StorageError, UsageError
from klog.formats.optional import install_command
from klog.storage.files.files import read_at
from klog.storage.files.seekable import SeekableStream

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

METHOD: Final = "AES-256-GCM"
KEY_BYTES: Final = 32
CHUNK_BYTES: Final = 64 << 10
TAG_BYTES: Final = 16
_MAGIC: Final = b"klogenc1"
_KEY_ID_BYTES: Final = 8
_SALT_BYTES: Final = 32
_NONCE: Final = struct.Struct(">IQ")
_SIZE: Final = struct.Struct(">Q")
_TRAILER: Final = struct.Struct(f">{_SALT_BYTES}s{_SIZE.size + TAG_BYTES}s{_KEY_ID_BYTES}s{len(_MAGIC)}s")
# The first number of a nonce.
_OF_CHUNK: Final = 0
_OF_TRAILER: Final = 1
# So a frame of 1 MiB that begins anywhere is one read.
_CHUNKS_AT_ONCE: Final = 17

RandomBytes = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class DataKey:
    """What the objects of a repository are encrypted under; `id` has 16 hex digits."""

    id: str
    secret: bytes = field(repr=False)

    def derived(self, purpose: bytes, salt: bytes | None = None) -> bytes:
        """A key for one purpose."""
        _require_library()
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return HKDF(hashes.SHA256(), KEY_BYTES, salt, b"klog backup " + purpose).derive(self.secret)

    def digest(self, purpose: bytes, data: bytes) -> str:
        """A keyed hash in hex, which tells nothing about `data` to those who do not have the key."""
        return hmac.new(self.derived(purpose), data, hashlib.sha256).hexdigest()


class Keys:
    """The data keys of a repository: new objects are under `current`, and `load` finds another one by its id.

    There is more than one if several runs made the repository at the same time.
    """

    def __init__(self, current: DataKey, load: Callable[[str], DataKey], random_bytes: RandomBytes) -> None:
        self.current = current
        self.random_bytes = random_bytes
        self._load = load
        self._known = {current.id: current}
        self._naming_key = current.derived(b"names")

    def key(self, identifier: str) -> DataKey:
        """The key with an id. Raises `KlogError`."""
        if identifier not in self._known:
            self._known[identifier] = self._load(identifier)
        return self._known[identifier]

    def content_id(self, sha256: str) -> str:
        """What stands for the SHA-256 of contents in names: who guesses the contents cannot compare them."""
        return hmac.new(self._naming_key, bytes.fromhex(sha256), hashlib.sha256).hexdigest()


class Sealer:
    """Encrypts an object that is written in order; `write` receives what is stored."""

    def __init__(self, keys: Keys, write: Callable[[Bytes], object]) -> None:
        self._write = write
        self._key_id = keys.current.id
        self._salt = keys.random_bytes(_SALT_BYTES)
        self._cipher = cipher_of(keys.current.derived(b"object", self._salt))
        self._waiting = bytearray()
        self._chunks = 0
        self._size_bytes = 0

    def add(self, data: Bytes) -> None:
        """Encrypt some bytes; less than a chunk of them waits for more."""
        view = memoryview(data).cast("B")
        self._size_bytes += len(view)
        if self._waiting:
            room = CHUNK_BYTES - len(self._waiting)
            self._waiting += view[:room]
            view = view[room:]
            if len(self._waiting) == CHUNK_BYTES:
                self._seal_chunk(self._waiting)
                self._waiting = bytearray()
        whole = len(view) - len(view) % CHUNK_BYTES
        for start in range(0, whole, CHUNK_BYTES):
            self._seal_chunk(view[start : start + CHUNK_BYTES])
        self._waiting += view[whole:]

    def finish(self, name: str) -> None:
        """Write the rest, and the trailer for an object of this name."""
        if self._waiting:
            self._seal_chunk(self._waiting)
        key_id = bytes.fromhex(self._key_id)
        size = self._cipher.encrypt(
            _NONCE.pack(_OF_TRAILER, 0), _SIZE.pack(self._size_bytes), _bound_to(key_id, name)
        )
        self._write(_TRAILER.pack(self._salt, size, key_id, _MAGIC))

    def _seal_chunk(self, data: Bytes) -> None:
        self._write(self._cipher.encrypt(_NONCE.pack(_OF_CHUNK, self._chunks), data, None))
        self._chunks += 1


class OpenedObject(SeekableStream):
    """The plain bytes of an encrypted object. Closes `file`. Raises `StorageError` for any change of it.

    `path` is for messages.
    """

    def __init__(self, file: BinaryIO, name: str, path: str, keys: Keys) -> None:
        super().__init__(file)
        self._file = file
        self._path = path
        end = file.seek(0, io.SEEK_END)
        start = end - _TRAILER.size
        trailer = read_at(file, max(0, start), _TRAILER.size)
        if len(trailer) < _TRAILER.size or not trailer.endswith(_MAGIC):
            raise self._damaged("is no encrypted object, or was cut off", max(0, start))
        salt, sealed, key_id, _ = _TRAILER.unpack(trailer)
        self._cipher = cipher_of(keys.key(key_id.hex()).derived(b"object", salt))
        size = decrypted(self._cipher, _NONCE.pack(_OF_TRAILER, 0), sealed, _bound_to(key_id, name))
        if size is None:
            raise self._damaged("was changed, or is another object that was put under this name", start)
        (self.size_bytes,) = _SIZE.unpack(size)
        if stored_bytes(self.size_bytes) != end:
            raise self._damaged(f"has {end} bytes, {stored_bytes(self.size_bytes)} were written", start)
        self._plain: Bytes = b""
        self._plain_start = 0

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 (io's own signature)
        """Fill some of `buffer`; 0 at the end."""
        view = memoryview(buffer).cast("B")
        if self._position >= self.size_bytes or not len(view):
            return 0
        if not self._plain_start <= self._position < self._plain_start + len(self._plain):
            self._read_chunks(self._position // CHUNK_BYTES, len(view))
        start = self._position - self._plain_start
        got = min(len(view), len(self._plain) - start)
        view[:got] = memoryview(self._plain)[start : start + got]
        self._position += got
        return got

    def _read_chunks(self, first: int, wanted_bytes: int) -> None:
        """Decrypt the chunks from a number on that hold so many bytes from the position on, within limits."""
        count = (self._position % CHUNK_BYTES + wanted_bytes - 1) // CHUNK_BYTES + 1
        step = CHUNK_BYTES + TAG_BYTES
        end = min(first + min(count, _CHUNKS_AT_ONCE), -(-self.size_bytes // CHUNK_BYTES))
        stored_end = min(end * step, stored_bytes(self.size_bytes) - _TRAILER.size)
        stored = memoryview(read_at(self._file, first * step, stored_end - first * step))
        plain = []
        for number in range(first, end):
            at = (number - first) * step
            chunk = decrypted(self._cipher, _NONCE.pack(_OF_CHUNK, number), stored[at : at + step], None)
            if chunk is None:
                raise self._damaged("was changed: it does not have what was encrypted", number * step)
            plain.append(chunk)
        self._plain, self._plain_start = b"".join(plain), first * CHUNK_BYTES

    def _damaged(self, what: str, position_bytes: int) -> StorageError:
        cure = "take the object from a copy of the repository"
        return StorageError(what, file=self._path, position_bytes=position_bytes, cure=cure)


def stored_bytes(size_bytes: int) -> int:
    """The size of an encrypted object with so many plain bytes."""
    return size_bytes + -(-size_bytes // CHUNK_BYTES) * TAG_BYTES + _TRAILER.size


def cipher_of(key: bytes) -> AESGCM:
    """AES-256-GCM under a key. Raises `UsageError` if the library is missing."""
    _require_library()
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def decrypted(cipher: AESGCM, nonce: bytes, data: Bytes, bound_to: bytes | None) -> bytes | None:
    """The plain bytes; None if they, or what they are bound to, are not what was encrypted."""
    from cryptography.exceptions import InvalidTag

    if len(data) < TAG_BYTES:
        return None
    try:
        plain: bytes = cipher.decrypt(nonce, data, bound_to)
    except InvalidTag:
        return None
    return plain


def _bound_to(key_id: bytes, name: str) -> bytes:
    return _MAGIC + key_id + name.encode()


def _require_library() -> None:
    try:
        from cryptography.hazmat.primitives.ciphers import aead  # noqa: F401
    except ImportError as error:
        cure = f"{install_command('secrets')} installs it"
        raise UsageError("an encrypted repository needs the package cryptography", cure=cure) from error
