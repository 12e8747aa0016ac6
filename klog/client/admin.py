"""Administration through kafka-python's admin client, with klog's errors.

It is the one Python client that has all of Kafka's admin calls; what it logs is not for our users, and what
it raises becomes a ClientError here.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from klog.client.errors import ClientError, RefusedError
from klog.client.settings import ClientSettings
from klog.protocol.errors import ConnectFailedError

# kafka-python has no types.
AdminClient: TypeAlias = Any

_CONNECT_CURE = "is a broker listening there? --bootstrap-server host:port names another"


@contextmanager
def admin_client(settings: ClientSettings) -> Iterator[AdminClient]:
    """A connected admin client. Raises ConnectFailedError, and ClientError for what goes wrong inside."""
    _require_listener(settings)
    from kafka.admin import KafkaAdminClient
    from kafka.errors import BrokerResponseError, KafkaError

    # A failed connection is told by the error that we raise, once.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    try:
        client = KafkaAdminClient(**_options(settings))
    except KafkaError as error:
        raise ClientError(f"no cluster at {_addresses(settings)}: {error}", cure=_CONNECT_CURE) from error
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
    """Say at once and plainly when nobody listens: the client would try for its whole timeout."""
    failures = []
    for address in settings.bootstrap:
        try:
            with socket.create_connection(address, settings.timeout_ms / 1000):
                return
        except OSError as error:
            failures.append(f"cannot connect to {address}: {error.strerror or error}")
    raise ConnectFailedError("; ".join(failures), cure=_CONNECT_CURE)
