"""Reads how a broker comes to its ZooKeeper: `zookeeper.ssl.*`, `zookeeper.set.acl` and the login.

Rules: Kafka's `KafkaServer.zkClientConfigFromKafkaConfig` and `initZkClient`, ZooKeeper's `X509Util`, and its
login by the section `Client` of the JAAS file.
"""

from __future__ import annotations

import ssl
from importlib.util import find_spec
from typing import Final

from klog.config.broker import JAAS_FILE, BrokerConfig
from klog.config.cipher_suites import limit_suites
from klog.config.keys import ConfigError
from klog.config.pem import Pem
from klog.formats.errors import FormatError, UsageError
from klog.metadata.zookeeper_access import ZooKeeperAccess, ZooKeeperLogin
from klog.server.network.sasl import HIDDEN, jaas_sections
from klog.server.network.tls import JavaStore, names_in, tls_versions

_ENABLE: Final = "zookeeper.ssl.client.enable"
_SET_ACL: Final = "zookeeper.set.acl"
_SOCKET: Final = "zookeeper.clientCnxnSocket"
_NETTY: Final = "org.apache.zookeeper.ClientCnxnSocketNetty"
_DIGEST: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
_SECTION: Final = "Client"
_TYPES: Final = {"jks": "JKS", "p12": "PKCS12", "pem": "PEM"}


def read_access(config: BrokerConfig) -> ZooKeeperAccess:
    """What the configs say. Raises `ConfigError`."""
    login = _login(config)
    has_tls = config.flag(_ENABLE)
    sets_acls = config.flag(_SET_ACL)
    if sets_acls and login is None and not (has_tls and config.text("zookeeper.ssl.keystore.location")):
        raise ConfigError(
            _SET_ACL,
            "true",
            "ZooKeeper would not know whose the nodes are",
            cure=f"set {_ENABLE} and zookeeper.ssl.keystore.location, or name a JAAS file with a section"
            f" {_SECTION} in {JAAS_FILE}",
        )
    return ZooKeeperAccess(_tls(config) if has_tls else None, login, sets_acls)


def _login(config: BrokerConfig) -> ZooKeeperLogin | None:
    path = config.own_text(JAAS_FILE)
    entries = [] if path is None else jaas_sections(path).get(_SECTION, [])
    if path is None or not entries:
        return None
    options = entries[0].options
    if entries[0].module != _DIGEST or not {"username", "password"} <= options.keys():
        why = f"section {_SECTION} must have {_DIGEST} with username and password"
        raise ConfigError(JAAS_FILE, path, why)
    if find_spec("puresasl") is None:  # kazoo uses it
        why = f"the login of section {_SECTION} needs another package"
        raise ConfigError(JAAS_FILE, path, why, cure="pip install 'klog[zookeeper-sasl]'")
    return ZooKeeperLogin(options["username"], options["password"])


def _tls(config: BrokerConfig) -> ssl.SSLContext:
    socket = config.text(_SOCKET)
    if socket not in (None, "", _NETTY):
        raise ConfigError(_SOCKET, str(socket), "it has no TLS", cure=_NETTY)
    trusted, own = _store(config, "truststore"), _store(config, "keystore")
    failing = trusted
    try:
        context = ssl.create_default_context()
        if trusted is not None:
            with trusted.as_file() as path:
                context = ssl.create_default_context(cafile=path)
        context.check_hostname = (
            config.text("zookeeper.ssl.endpoint.identification.algorithm") or ""
        ).lower() == "https"
        # Java accepts certificates that OpenSSL's strict mode (Python 3.13) refuses.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        _limit(context, config)
        failing = own
        if own is not None:
            with own.as_file() as path:
                context.load_cert_chain(path, password=_password(config, "keystore") or "")
    except (OSError, ValueError, FormatError, UsageError) as error:
        if isinstance(error, ConfigError) or failing is None:
            raise
        raise ConfigError(failing.config, str(failing.path), f"cannot be used: {error}") from error
    return context


def _limit(context: ssl.SSLContext, config: BrokerConfig) -> None:
    """Sets versions and suites; without `enabled.protocols` only `zookeeper.ssl.protocol` is spoken."""
    key = "zookeeper.ssl.enabled.protocols"
    names = names_in(config[key]) or (config.text("zookeeper.ssl.protocol") or "TLSv1.2",)
    context.minimum_version, context.maximum_version = tls_versions(names, key)
    suites = names_in(config["zookeeper.ssl.cipher.suites"])
    if suites:
        try:
            limit_suites(context, suites)
        except UsageError as error:
            key = "zookeeper.ssl.cipher.suites"
            raise ConfigError(key, ",".join(suites), error.what, cure=error.cure) from error


def _password(config: BrokerConfig, kind: str) -> str | None:
    return config.text(f"zookeeper.ssl.{kind}.password") or None


def _store(config: BrokerConfig, kind: str) -> Pem | JavaStore | None:
    """A store, whose type is by default that of its file's name. Raises `ConfigError`."""
    key = f"zookeeper.ssl.{kind}.location"
    path = config.text(key)
    if not path:
        return None
    given = (config.text(f"zookeeper.ssl.{kind}.type") or "").upper().replace("P12", "PKCS12")
    found = given or _TYPES.get(path.rpartition(".")[2].lower())
    if found not in _TYPES.values():
        why = f"its type is none of {', '.join(_TYPES.values())}"
        raise ConfigError(key, path, why, cure=f"set zookeeper.ssl.{kind}.type")
    if found == "PEM":
        return Pem(key, path)
    if kind == "keystore" and _password(config, kind) is None:
        raise ConfigError(f"zookeeper.ssl.{kind}.password", HIDDEN, f"a store of type {found} needs it")
    return JavaStore(key, path, _password(config, kind), None, has_key=kind == "keystore")
