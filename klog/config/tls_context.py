"""Makes the TLS context of a client from Kafka's `ssl.*` properties, with stores in PEM, PKCS12 or JKS.

Rules: "Security" in Kafka's documentation; KIP-651 (PEM in files and in the properties themselves).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from klog.config.cipher_suites import limit_suites
from klog.config.key_stores import key_store_pem, trust_store_pem
from klog.config.pem import Pem
from klog.formats.errors import FormatError, UsageError

_JKS, _PKCS12, _PEM = "JKS", "PKCS12", "PEM"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def context_of(properties: Mapping[str, str]) -> ssl.SSLContext:
    """The context for connections to brokers. Raises UsageError that names the property.

    As in Kafka a trust store replaces the authorities that the system trusts.
    """
    trusted, own = _trust_store(properties), _key_store(properties)
    if trusted is None:
        context = ssl.create_default_context()
    else:
        with _failures_of(trusted.config, trusted.path), trusted.as_file() as path:
            context = ssl.create_default_context(cafile=path)
    # Java accepts certificates that OpenSSL's strict mode (Python 3.13) refuses.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if "ssl.endpoint.identification.algorithm" in properties:
        context.check_hostname = bool(properties["ssl.endpoint.identification.algorithm"])
    _limit_versions(context, properties)
    _limit_suites(context, properties)
    if own is not None:
        with _failures_of(own.config, own.path), own.as_file() as path:
            # Without a password OpenSSL would ask for that of an encrypted key on the terminal.
            context.load_cert_chain(path, password=properties.get("ssl.key.password", ""))
    return context


def _trust_store(properties: Mapping[str, str]) -> Pem | None:
    if certificates := properties.get("ssl.truststore.certificates"):
        return Pem("ssl.truststore.certificates", None, certificates)
    password = properties.get("ssl.truststore.password")
    return _store(properties, "ssl.truststore", lambda data: trust_store_pem(data, password))


def _key_store(properties: Mapping[str, str]) -> Pem | None:
    key, chain = (properties.get(f"ssl.keystore.{name}") for name in ("key", "certificate.chain"))
    if key and chain:
        return Pem("ssl.keystore.key", None, f"{chain}\n{key}")
    if key or chain:
        raise UsageError("ssl.keystore.key and ssl.keystore.certificate.chain belong together")
    passwords = (properties.get("ssl.keystore.password"), properties.get("ssl.key.password"))
    return _store(properties, "ssl.keystore", lambda data: key_store_pem(data, *passwords))


def _store(properties: Mapping[str, str], store: str, to_pem: Callable[[bytes], str]) -> Pem | None:
    """The file of a store, or what it has `to_pem`; None if there is none. Raises UsageError."""
    config = f"{store}.location"
    location = properties.get(config)
    if location is None or _type_of(properties, store) == _PEM:
        return None if location is None else Pem(config, location)
    with _failures_of(config, location):
        return Pem(config, None, to_pem(Path(location).read_bytes()))


def _type_of(properties: Mapping[str, str], store: str) -> str:
    """The type of a store. Raises UsageError for one that neither Kafka nor klog has."""
    kind = properties.get(f"{store}.type", _JKS).upper()
    if kind not in (_JKS, _PKCS12, _PEM):
        raise UsageError(f"{store}.type={kind} is not supported", cure=f"{_JKS}, {_PKCS12} or {_PEM}")
    return kind


def _limit_versions(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    text = properties.get("ssl.enabled.protocols")
    if not text:
        return
    names = [name.strip() for name in text.split(",")]
    found = [version for name, version in _VERSIONS.items() if name in names]
    if not found:
        raise UsageError(
            f"ssl.enabled.protocols={text} has no version that klog uses", cure=", ".join(_VERSIONS)
        )
    context.minimum_version, context.maximum_version = found[0], found[-1]


def _limit_suites(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    names = [name.strip() for name in properties.get("ssl.cipher.suites", "").split(",") if name.strip()]
    if names:
        try:
            limit_suites(context, names)
        except UsageError as error:
            raise UsageError(f"ssl.cipher.suites: {error.what}", cure=error.cure) from error


@contextmanager
def _failures_of(config: str, location: str | None = None) -> Iterator[None]:
    """Turns failures into UsageErrors that name the property, and its file if it is known."""
    place = config if location is None else f"{config}={location}"
    try:
        yield
    except (OSError, ValueError, FormatError) as error:
        # What OpenSSL refuses is an OSError, too.
        if isinstance(error, FormatError):
            raise UsageError(f"{place} cannot be used: {error.what}", cure=error.cure) from error
        cure = "is the file there, and is its type the one that is set?"
        raise UsageError(f"{place} cannot be used: {error}", cure=cure) from error
