"""The errors of administrators' requests: an error code of the protocol and a message.

Kafka throws one of its ApiExceptions. Here a `RefusedError` has the code, and `refusal_of` finds the code of
errors from the packages below.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from klog.config.keys import ConfigError
from klog.formats.errors import KlogError, UsageError
from klog.metadata.errors import (
    ControllerMovedError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    StoreFailedError,
    TopicDeletionInProgressError,
    TopicExistsError,
    UnknownTopicError,
)
from klog.protocol.entity_fields import Value
from klog.protocol.error_codes import ErrorCode
from klog.security.quotas.administration import InvalidQuotaError, UnsupportedEntityError

_log = logging.getLogger(__name__)


class RefusedError(KlogError):
    """A request, or one resource of it, that is answered with an error. `message` is None if Kafka's
    clients are to show their own text."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message


# What Kafka says if the whole request is refused.
NOT_CONTROLLER: Final = RefusedError(
    ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster."
)

_CODES: Final[Mapping[type[KlogError], ErrorCode]] = {
    InvalidTopicError: ErrorCode.INVALID_TOPIC_EXCEPTION,
    TopicExistsError: ErrorCode.TOPIC_ALREADY_EXISTS,
    UnknownTopicError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    TopicDeletionInProgressError: ErrorCode.INVALID_TOPIC_EXCEPTION,
    InvalidReplicaAssignmentError: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    InvalidReplicationFactorError: ErrorCode.INVALID_REPLICATION_FACTOR,
    InvalidPartitionsError: ErrorCode.INVALID_PARTITIONS,
    ControllerMovedError: ErrorCode.NOT_CONTROLLER,
    ConfigError: ErrorCode.INVALID_CONFIG,
    UsageError: ErrorCode.INVALID_CONFIG,
    InvalidQuotaError: ErrorCode.INVALID_REQUEST,
    UnsupportedEntityError: ErrorCode.UNSUPPORTED_VERSION,
    StoreFailedError: ErrorCode.KAFKA_STORAGE_ERROR,  # a full disk: clients may try it again
}
_FAULTS: Final = (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.KAFKA_STORAGE_ERROR)


def refusal_of(error: KlogError) -> RefusedError:
    """The answer to an error of the packages below; what is no mistake of the client's is KAFKA_STORAGE_ERROR
    (the metadata store fails) or UNKNOWN_SERVER_ERROR (a znode is broken)."""
    if isinstance(error, RefusedError):
        return error
    code = _CODES.get(type(error), ErrorCode.UNKNOWN_SERVER_ERROR)
    if code in _FAULTS:
        _log.error("a request is answered with %s: %s", code.name, error)
    return RefusedError(code, str(error))


def error_fields(refused: RefusedError | None) -> Mapping[str, Value]:
    """The fields that say how it went, with the error if there is one."""
    if refused is None:
        return {"error_code": ErrorCode.NONE, "error_message": None}
    return {"error_code": refused.error, "error_message": refused.message}
