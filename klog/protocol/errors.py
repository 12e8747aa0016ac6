"""What can go wrong between two sides of Kafka's protocol."""

from __future__ import annotations

from klog.formats.errors import KlogError


class ProtocolError(KlogError):
    """Base of the errors of the wire protocol."""


class MalformedMessageError(ProtocolError):
    """Bytes that do not fit the message they claim to be; the connection they came on is of no use any
    more.
    """


class UnsupportedApiError(ProtocolError):
    """An API key, or a version of it, that this side does not speak."""


class UnencodableMessageError(ProtocolError):
    """A message with a value that its wire type cannot carry: a mistake of the caller."""


class ChannelError(ProtocolError):
    """Base of what can go wrong on a client's connection; the connection is closed when one is raised."""


class ConnectFailedError(ChannelError):
    """The peer could not be reached: refused, unknown host, no answer in time, TLS handshake failed."""


class ConnectionLostError(ChannelError):
    """The connection ended before the answer was there."""


class RequestTimeoutError(ChannelError):
    """The answer did not come in time; whether the peer acted on the request is unknown."""


class UnexpectedResponseError(ChannelError):
    """The peer answered something else than what was asked (another correlation id, bytes that do not
    parse).
    """
