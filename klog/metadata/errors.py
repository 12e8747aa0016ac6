"""The errors of the metadata store and of the operations on the cluster's tree.

A failed multi raises the error of the operation that failed, with its place in `op_index`; nothing of the
multi has happened then. `ConnectionLossError` alone leaves open whether a write happened: read back.
"""

from __future__ import annotations

from klog.formats.errors import KlogError


class MetadataError(KlogError):
    """Base of everything that the metadata room raises."""


class StoreError(MetadataError):
    """An operation of the store that failed. `path` is its node, `op_index` its place in a multi."""

    def __init__(self, what: str, *, path: str | None = None, cure: str | None = None) -> None:
        super().__init__(what, cure=cure)
        self.path = path
        self.op_index: int | None = None


class NoNodeError(StoreError):
    """The node, or the parent of a node to create, is not there."""


class NodeExistsError(StoreError):
    """A node to create is there already."""


class BadVersionError(StoreError):
    """A conditional write or check met another version of the node."""


class NotEmptyError(StoreError):
    """A node to delete has children."""


class EphemeralParentError(StoreError):
    """An ephemeral node cannot have children."""


class ConnectionLossError(StoreError):
    """The connection broke before the answer: a write may have happened, or not."""


class SessionExpiredError(StoreError):
    """The session ended: its ephemeral nodes and watches are gone."""


class StoreClosedError(SessionExpiredError):
    """The store was closed by this process."""


class StoreLockedError(StoreError):
    """Another process (or another part of this one) has the embedded store open."""


class StoreFailedError(StoreError):
    """The store itself failed: a disk or server error that no retry of the caller mends."""


class ControllerMovedError(MetadataError):
    """A write was fenced: another controller has been elected."""


class BrokerIdInUseError(MetadataError):
    """Another live broker is registered under this broker id."""


class InvalidZnodeError(MetadataError):
    """A node's data is not what Kafka writes there."""


class InvalidReplicaAssignmentError(MetadataError):
    """A replica assignment that breaks Kafka's rules (counts, duplicates, unknown brokers)."""


class InvalidReplicationFactorError(MetadataError):
    """More replicas than brokers, or fewer than one."""


class InvalidPartitionsError(MetadataError):
    """A partition count below one, or not above the present one."""


class InvalidTopicError(MetadataError):
    """A topic name that Kafka does not allow, or that collides with another in metric names."""


class TopicExistsError(MetadataError):
    """The topic is there already."""


class UnknownTopicError(MetadataError):
    """There is no such topic."""


class TopicDeletionInProgressError(MetadataError):
    """The topic is already marked for deletion."""
