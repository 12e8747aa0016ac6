"""Names errors as Kafka's tools do: by the class of the Java client's exception."""

from __future__ import annotations

from typing import Final

from klog.protocol.error_codes import ErrorCode

_PACKAGE: Final = "org.apache.kafka.common.errors."
_MESSAGES: Final = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "The requested offset is not within the range of offsets maintained by "
    "the server.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The request attempted to perform an operation on an invalid topic.",
    ErrorCode.POLICY_VIOLATION: "Request parameters do not satisfy the configured policy.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}
_CLASSES: Final = {
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "TopicAuthorizationException",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ClusterAuthorizationException",
}
_SUFFIXES: Final = ("_ERROR", "_EXCEPTION")


def java_class(error: ErrorCode) -> str:
    """The exception of an error: `org.apache.kafka.common.errors.KafkaStorageException`."""
    if error in _CLASSES:
        return f"{_PACKAGE}{_CLASSES[error]}"
    name = error.name
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return f"{_PACKAGE}{''.join(word.capitalize() for word in name.split('_'))}Exception"


def java_text(error: ErrorCode, message: str | None = None) -> str:
    """The exception as text; `message` is the broker's, in place of the client's own."""
    said = message or _MESSAGES.get(error)
    return f"{java_class(error)}: {said}" if said else java_class(error)
