"""The user's key of an encrypted repository, and the data keys that it wraps.

A data key is random. The repository has it in `keys/ID.json`, encrypted by AES-256-GCM under a key that
scrypt makes of the user's. So the user's key can be changed without writing the objects anew. A check value,
made by scrypt as well, tells a wrong key from a damaged file before anything else is read or written.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from klog.backup import documents, names
from klog.backup.documents import WrappedKey
from klog.backup.encryption import (
    KEY_BYTES,
    METHOD,
    DataKey,
    Keys,
    RandomBytes,
    cipher_of,
    decrypted,
)
from klog.backup.model import Encryption, RepositoryInfo
from klog.backup.store import Store, missing
from klog.formats.errors import (
    FormatError,
    MissingInputError,
    StorageError,
    UnsupportedFormatError,
    UsageError,
)
from klog.storage.files.files import read_small

KEY_VARIABLE: Final = "KLOG_BACKUP_KEY"
KEY_FILE_VARIABLE: Final = "KLOG_BACKUP_KEY_FILE"
LEAST_BYTES: Final = 16
_COST: Final = 1 << 15
_BLOCK_SIZE: Final = 8
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_MOST_MEMORY_BYTES: Final = 256 << 20
_GIVE: Final = f"give its key by --encryption-key-file FILE, or in {KEY_VARIABLE}"


@dataclass(frozen=True, slots=True)
class UserKey:
    """What the user keeps: random bytes or a long phrase."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) < LEAST_BYTES:
            cure = "head -c 32 /dev/urandom | base64 makes one"
            raise UsageError(f"an encryption key has at least {LEAST_BYTES} bytes", cure=cure)


def read_key(path: str | os.PathLike[str]) -> UserKey:
    """The key in a file, without white space at its end. Raises `UsageError`, `StorageError`."""
    try:
        return UserKey(read_small(path).rstrip())
    except UsageError as error:
        raise error.at(os.fspath(path)) from None


def is_open_to_others(path: str | os.PathLike[str]) -> bool:
    """Whether others than the owner of a file may read or write it."""
    try:
        return bool(stat.S_IMODE(os.stat(path).st_mode) & 0o077)
    except OSError:
        return False


def key_from_environment(environment: Mapping[str, str]) -> UserKey | None:
    """The key that the environment has, or names the file of. Raises `UsageError`, `StorageError`."""
    if path := environment.get(KEY_FILE_VARIABLE):
        return read_key(path)
    text = environment.get(KEY_VARIABLE, "").rstrip()
    return UserKey(os.fsencode(text)) if text else None


# -- Wrapping -----------------------------------------------------------------------------------------------


class WrongKeyError(UsageError):
    """The user's key is not the one that a data key was wrapped with."""


def new_data_key(random_bytes: RandomBytes) -> DataKey:
    """A data key."""
    return DataKey(random_bytes(8).hex(), random_bytes(KEY_BYTES))


def wrap(key: DataKey, user: UserKey, random_bytes: RandomBytes) -> WrappedKey:
    """A data key for those who have the user's."""
    salt, nonce = random_bytes(_SALT_BYTES), random_bytes(_NONCE_BYTES)
    wrapping, check = _stretched(user, salt, _COST, _BLOCK_SIZE)
    sealed = cipher_of(wrapping).encrypt(nonce, key.secret, _bound_to(key.id))
    return WrappedKey(key.id, _COST, _BLOCK_SIZE, salt.hex(), check.hex(), (nonce + sealed).hex())


def unwrap(wrapped: WrappedKey, user: UserKey, path: str) -> DataKey:
    """The data key. Raises `WrongKeyError`, `FormatError` (the file at `path` is damaged)."""
    try:
        salt, check, sealed = (bytes.fromhex(each) for each in (wrapped.salt, wrapped.check, wrapped.sealed))
        wrapping, expected = _stretched(user, salt, wrapped.cost, wrapped.block_size)
    except ValueError as error:
        raise FormatError(f"is damaged: {error}", file=path, cure="take it from a copy") from None
    if not hmac.compare_digest(check, expected):
        cure = f"give the repository's key; if it is right, {path} is damaged: take it from a copy"
        raise WrongKeyError("the encryption key is not the key of this repository", file=path, cure=cure)
    secret = decrypted(
        cipher_of(wrapping), sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _bound_to(wrapped.id)
    )
    if secret is None:
        raise FormatError("is damaged: the data key in it was changed", file=path, cure="take it from a copy")
    return DataKey(wrapped.id, secret)


def _stretched(user: UserKey, salt: bytes, cost: int, block_size: int) -> tuple[bytes, bytes]:
    """The key that wraps, and the check value. Raises ValueError."""
    made = hashlib.scrypt(
        user.secret,
        salt=salt,
        n=cost,
        r=block_size,
        p=1,
        maxmem=_MOST_MEMORY_BYTES,
        dklen=2 * KEY_BYTES,
    )
    return made[:KEY_BYTES], hashlib.sha256(made[KEY_BYTES:]).digest()


def _bound_to(identifier: str) -> bytes:
    return f"klog backup key {identifier}".encode()


# -- Keys of a repository -----------------------------------------------------------------------------------


def create_key(
    store: Store, info: RepositoryInfo, user: UserKey, random_bytes: RandomBytes
) -> RepositoryInfo:
    """Store a new data key, and let the description of a repository that is to be made name it.

    Runs that make a repository at the same time each store a key of their own, and none is ever lost.
    """
    key = new_data_key(random_bytes)
    store.put(names.key(key.id), documents.KEY.encode(wrap(key, user, random_bytes)))
    return _described(info, key)


def open_keys(
    store: Store, info: RepositoryInfo, user: UserKey | None, random_bytes: RandomBytes
) -> Keys | None:
    """The keys of a repository, None if it is not encrypted.

    Raises `UsageError` if it is encrypted and there is no key or a wrong one, and if there is a key and it is
    not encrypted: someone may have put another repository there.
    """
    encryption = info.encryption
    if encryption is None:
        if user is not None:
            cure = f"give no key ({KEY_VARIABLE}, {KEY_FILE_VARIABLE}), or choose another repository"
            raise UsageError("an encryption key was given, but the repository is not encrypted",
                             file=store.place, cure=cure)  # fmt: skip
        return None
    if encryption.method != METHOD:
        cure = "use a klog that is not older than the one that wrote it"
        raise UnsupportedFormatError(f"is encrypted by {encryption.method[:40]}", file=store.place, cure=cure)
    if user is None:
        raise UsageError("the repository is encrypted", file=store.place, cure=_GIVE)
    given = user

    def load(identifier: str) -> DataKey:
        return unwrap(_wrapped(store, identifier), given, store.path_of(names.key(identifier)))

    current = load(encryption.key)
    if _described(info, current) != info:
        raise FormatError("was changed since it was made", file=store.path_of(names.INFO),
                          cure="take it from a copy of the repository")  # fmt: skip
    return Keys(current, load, random_bytes)


def _described(info: RepositoryInfo, key: DataKey) -> RepositoryInfo:
    """The description of a repository that is encrypted under a key, which no one else can change."""
    check = key.digest(b"description", documents.description(replace(info, encryption=None)))
    return replace(info, encryption=Encryption(METHOD, key.id, check))


def rekey(
    store: Store, info: RepositoryInfo, old: UserKey | None, new: UserKey, random_bytes: RandomBytes
) -> int:
    """Wrap the data keys anew. How many there are.

    The one that new objects are under comes last: if this is interrupted, the old key still opens the
    repository, and the same call goes on. Raises `UsageError`, `StorageError`, `FormatError`.
    """
    keys = open_keys(store, info, old, random_bytes)
    if keys is None or old is None:
        raise UsageError("the repository is not encrypted", file=store.place)
    found = [name for name in sorted(store.files(names.KEYS)) if names.id_of_key(name) is not None]
    found.sort(key=lambda name: name == names.key(keys.current.id))
    for name in found:
        wrapped = documents.KEY.decode(store.read(name))
        try:
            key = unwrap(wrapped, old, store.path_of(name))
        except WrongKeyError:
            key = unwrap(wrapped, new, store.path_of(name))
        store.put(name, documents.KEY.encode(wrap(key, new, random_bytes)))
    open_keys(store, info, new, random_bytes)
    return len(found)


def _wrapped(store: Store, identifier: str) -> WrappedKey:
    name = names.key(identifier)
    path = store.path_of(name)
    try:
        return documents.KEY.decode(store.read(name))
    except FormatError as error:
        raise error.at(path) from None
    except StorageError as error:
        if not missing(error):
            raise
        cure = "take it from a copy of the repository: without it no object can be read"
        raise MissingInputError("the data key of the repository is missing", file=path, cure=cure) from None
