"""What a cluster may answer instead of doing what it was asked."""

from __future__ import annotations

from klog.formats.errors import KlogError
from klog.protocol.error_codes import ErrorCode, error_code


class ClientError(KlogError):
    """Base of the errors of the client's side: the cluster could not or would not do what was asked."""


class RefusedError(ClientError):
    """A broker answered with an error; `code` is Kafka's."""

    def __init__(self, what: str, code: int, *, message: str | None = None, cure: str | None = None) -> None:
        self.code: ErrorCode = error_code(code)
        said = f": {message}" if message else ""
        super().__init__(f"{what}: {self.code.name}{said}", cure=cure)


class UnknownTopicError(ClientError):
    """A topic or partition that the cluster does not have."""
