"""The errors of Kafka's wire protocol and of client connections."""

from __future__ import annotations

from klog.formats.errors import KlogError


class ProtocolError(KlogError):
    """Base of the errors of the wire protocol."""


class MalformedMessageError(ProtocolError):
    """Bytes that are not a message of the expected kind.

    The connection from which they came must be closed.
    """


class UnsupportedApiError(ProtocolError):
    """An API key, or a version of it, that klog does not support."""


class UnencodableMessageError(ProtocolError):
    """A message with a value that its wire type cannot hold. This is a mistake of the caller."""


class AuthenticationFailedError(ProtocolError):
    """The broker does not accept the mechanism or the password, or could not prove that it knows it.

    The same password fails again, so it is not a ChannelError, which a client retries.
    """


class ChannelError(ProtocolError):
    """Base of the errors of a client's connection. The connection is closed when one is raised."""


class ConnectFailedError(ChannelError):
    """The peer could not be reached: refused, unknown host, no answer in time, TLS handshake failed."""


class ConnectRefusedError(ConnectFailedError):
    """Nobody listens at the peer's address: the peer has not started yet, or the address is wrong."""


class ConnectionLostError(ChannelError):
    """The connection ended before the answer came."""


class RequestTimeoutError(ChannelError):
    """The answer did not come in time. The peer may or may not have handled the request."""


class UnexpectedResponseError(ChannelError):
    """The peer sent something else than the answer (another
    correlation id, or bytes that cannot be parsed).
    """
