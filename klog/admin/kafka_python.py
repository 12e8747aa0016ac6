"""Connects kafka-python's admin client and turns its errors into klog's.

It is the one Python client that has all of Kafka's admin calls. Its log is silenced, since every error that
it logs is also raised here, as a ClientError.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from klog.admin.connect import wait_for_broker
from klog.admin.settings import ClientSettings
from klog.client.cluster import CONNECT_CURE
from klog.client.errors import ClientError, RefusedError
from klog.protocol.errors import ConnectFailedError, ConnectRefusedError

# kafka-python has no types.
AdminClient: TypeAlias = Any


@contextmanager
def admin_client(settings: ClientSettings) -> Iterator[AdminClient]:
    """A connected admin client. Raises ConnectFailedError; errors of its calls become ClientErrors."""
    wait_for_broker(settings, lambda: _require_listener(settings))
    from kafka.admin import KafkaAdminClient
    from kafka.errors import BrokerResponseError, KafkaError

    # It logs every failed attempt to connect; the error raised below says it once.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    try:
        client = KafkaAdminClient(**_options(settings))
    except KafkaError as error:
        raise ClientError(f"no cluster at {_addresses(settings)}: {error}", cure=CONNECT_CURE) from error
    try:
        yield client
    except BrokerResponseError as error:
        raise RefusedError("the cluster refused", error.errno, message=_message(error)) from error
    except KafkaError as error:
        raise ClientError(f"{type(error).__name__}: {error}") from error
    finally:
        client.close()


def _message(error: Exception) -> str | None:
    return next((str(argument) for argument in error.args if isinstance(argument, str)), None)


def _addresses(settings: ClientSettings) -> str:
    return ", ".join(map(str, settings.bootstrap))


def _options(settings: ClientSettings) -> dict[str, object]:
    protocol = "SSL" if settings.tls is not None else "PLAINTEXT"
    options: dict[str, object] = {
        "bootstrap_servers": [str(address) for address in settings.bootstrap],
        "client_id": settings.client_id,
        "request_timeout_ms": settings.timeout_ms,
        "bootstrap_timeout_ms": settings.timeout_ms,
        "security_protocol": protocol,
        "ssl_context": settings.tls,
    }
    if settings.sasl is not None:
        options |= {
            "security_protocol": "SASL_" + protocol,
            "sasl_mechanism": settings.sasl.mechanism,
            "sasl_plain_username": settings.sasl.username,
            "sasl_plain_password": settings.sasl.password,
        }
    return options


def _require_listener(settings: ClientSettings) -> None:
    """Raise ConnectFailedError if nobody listens; the admin client would retry until its timeout."""
    failures = []
    refused = True
    for address in settings.bootstrap:
        try:
            with socket.create_connection(address, settings.timeout_ms / 1000):
                return
        except OSError as error:
            refused = refused and isinstance(error, ConnectionRefusedError)
            failures.append(f"cannot connect to {address}: {error.strerror or error}")
    raise (ConnectRefusedError if refused else ConnectFailedError)("; ".join(failures), cure=CONNECT_CURE)
