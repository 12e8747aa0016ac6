"""The errors of a client of a cluster, and the rule which of them a retry may cure."""

from __future__ import annotations

from klog.formats.errors import KlogError
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import ChannelError


class ClientError(KlogError):
    """Base of the client's errors: the cluster could not do, or refused to do, what was asked."""


class RefusedError(ClientError):
    """A broker answered with an error; `code` is Kafka's."""

    def __init__(self, what: str, code: int, *, message: str | None = None, cure: str | None = None) -> None:
        self.code: ErrorCode = error_code(code)
        said = f": {message}" if message else ""
        super().__init__(f"{what}: {self.code.name}{said}", cure=cure)


class UnknownTopicError(ClientError):
    """A topic or partition that the cluster does not have."""


def is_retriable(error: KlogError) -> bool:
    """Whether the same request may succeed later.

    Lost connections and missing leaders are retriable. A broker's error is retriable if Kafka declares it so.
    """
    if isinstance(error, RefusedError):
        return error.code.retriable
    return isinstance(error, ClientError | ChannelError)
