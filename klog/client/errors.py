"""The errors of a client of a cluster, and the rule which of them a retry may cure."""

from __future__ import annotations

from typing import Final

from klog.client.error_meanings import MEANINGS
from klog.formats.errors import KlogError
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import ChannelError

_NOT_AUTHORIZED: Final = frozenset(each for each in ErrorCode if each.name.endswith("_AUTHORIZATION_FAILED"))


class ClientError(KlogError):
    """Base of the client's errors: the cluster could not do, or refused to do, what was asked."""


class RefusedError(ClientError):
    """A broker answered with an error; `code` is Kafka's. `message` is what the broker says about it.

    Without a message or a cure the error has those that belong to its code. `right` is Kafka's name of what
    the user must be allowed to do.
    """

    def __init__(
        self,
        what: str,
        code: int,
        *,
        message: str | None = None,
        cure: str | None = None,
        right: str | None = None,
    ) -> None:
        self.code: ErrorCode = error_code(code)
        if self.is_of_rights:
            # Kafka's message names objects of its own process, or says nothing.
            message = None
        meaning = MEANINGS.get(self.code)
        if meaning is not None:
            message, cure = message or meaning.what, cure or meaning.cure
            if right is not None and self.is_of_rights:
                message = f"{message}: it needs {right}"
        said = f": {message}" if message else ""
        super().__init__(f"{what}: {self.code.name}{said}", cure=cure)

    @property
    def is_of_rights(self) -> bool:
        """Whether the user lacks a right."""
        return self.code in _NOT_AUTHORIZED


class UnknownTopicError(ClientError):
    """A topic or partition that the cluster does not have."""


def is_retriable(error: KlogError) -> bool:
    """Whether the same request may succeed later.

    Lost connections and missing leaders are retriable. A broker's error is retriable if Kafka declares it so.
    """
    if isinstance(error, RefusedError):
        return error.code.retriable
    return isinstance(error, ClientError | ChannelError)
