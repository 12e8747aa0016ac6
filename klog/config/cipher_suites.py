"""Limits the cipher suites of a TLS context to those that `ssl.cipher.suites` names.

Names are Java's, which are IANA's. Rules: Kafka's `DefaultSslEngineFactory` and Java's `SSLEngine`: a suite
belongs to TLS 1.3 or to the versions before it, and a version without suites is not spoken. OpenSSL has names
of its own for the older suites.
"""

from __future__ import annotations

import ctypes
import re
import ssl
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from klog.formats.errors import UsageError

_EXAMPLE: Final = "names are Java's, such as TLS_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
_NEWER: Final = re.compile(r"TLS_(?:AES|CHACHA20)_[A-Z0-9_]+")
_OLDER: Final = re.compile(r"(?:TLS|SSL)_([A-Z0-9]+(?:_[A-Z0-9]+)*?)_WITH_([A-Z0-9_]+)")
_CIPHERS: Final = (
    (re.compile(r"(AES|CAMELLIA)_(128|256)_CBC_(SHA\d*)"), r"\1\2-\3"),
    (re.compile(r"(AES|CAMELLIA)_(128|256)_GCM_(SHA\d+)"), r"\1\2-GCM-\3"),
    (re.compile(r"AES_(128|256)_CCM(?:_(8))?"), r"AES\1-CCM\2"),
    (re.compile(r"CHACHA20_POLY1305_SHA256"), "CHACHA20-POLY1305"),
    (re.compile(r"3DES_EDE_CBC_SHA"), "DES-CBC3-SHA"),
)
_TLS_1_3: Final = "TLSv1.3"


def limit_suites(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Lets a context use only these suites, the first ones rather than later ones. The context's versions of
    TLS are set already. Raises UsageError.
    """
    newer = [name for name in names if _NEWER.fullmatch(name)]
    older = {name: openssl_name(name) for name in names if name not in newer}
    with suppress(ssl.SSLError):  # OpenSSL knows none of them
        context.set_ciphers(":".join(filter(None, older.values())) or "-")
    _limit_newer(context, newer)
    present = {str(each["name"]) for each in context.get_ciphers()}
    missing = [name for name in names if older.get(name, name) not in present]
    if missing:
        raise UsageError(f"OpenSSL does not have or allow the suite {', '.join(missing)}", cure=_EXAMPLE)
    _limit_versions(context, has_older=bool(older), has_newer=bool(newer))


def openssl_name(name: str) -> str | None:
    """OpenSSL's name of a suite before TLS 1.3; None if it has no such suite."""
    found = _OLDER.fullmatch(name)
    if found is None:
        return None
    exchange = "" if found[1] == "RSA" else found[1].replace("_", "-") + "-"
    ciphers = (pattern.fullmatch(found[2]) for pattern, _ in _CIPHERS)
    return next(
        (
            exchange + match.expand(shape)
            for match, (_, shape) in zip(ciphers, _CIPHERS, strict=True)
            if match
        ),
        None,
    )


def _limit_versions(context: ssl.SSLContext, *, has_older: bool, has_newer: bool) -> None:
    speaks_newer = context.maximum_version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.MAXIMUM_SUPPORTED)
    speaks_older = context.minimum_version != ssl.TLSVersion.TLSv1_3
    if not (speaks_newer and has_newer) and not (speaks_older and has_older):
        raise UsageError("no suite belongs to a version of TLS that is enabled", cure=_EXAMPLE)
    if not has_newer and speaks_newer:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if not has_older and speaks_older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3


def _limit_newer(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Sets the suites of TLS 1.3, if there are any and the context's are others."""
    if not names or _newer_of(context) == list(names):
        return
    if hasattr(context, "set_ciphersuites"):  # since Python 3.15
        with suppress(ssl.SSLError):
            context.set_ciphersuites(":".join(names))
    else:
        _call_openssl(context, names)
    allowed = _newer_of(context)
    if set(allowed) - set(names):
        raise UsageError(
            f"this Python cannot limit the suites of TLS 1.3 to {', '.join(names)}",
            cure=f"name {', '.join(allowed)}, or only suites of TLS 1.2, or use Python 3.15",
        )


def _call_openssl(context: ssl.SSLContext, names: Iterable[str]) -> None:
    """Calls OpenSSL's function, which Python before 3.15 does not offer. Does nothing if it is out of reach.

    In CPython the first field of a context is OpenSSL's, behind what every object has. The caller looks
    whether the call had its effect.
    """
    if sys.implementation.name != "cpython":
        return
    import _ssl

    try:
        call = ctypes.CDLL(_ssl.__file__).SSL_CTX_set_ciphersuites
    except (AttributeError, OSError):  # OpenSSL is a part of the interpreter, and does not show its functions
        return
    call.argtypes, call.restype = [ctypes.c_void_p, ctypes.c_char_p], ctypes.c_int
    inner = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    call(inner, ":".join(names).encode())


def _newer_of(context: ssl.SSLContext) -> list[str]:
    return [str(each["name"]) for each in context.get_ciphers() if each["protocol"] == _TLS_1_3]
