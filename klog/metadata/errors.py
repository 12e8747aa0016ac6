"""The errors of the metadata store and of operations on the tree.

If a multi fails, it raises the error of the operation that failed, with its index in `op_index`, and nothing
of the multi has happened. Only after `ConnectionLossError` a write may or may not have happened; read the
node to find out.
"""

from __future__ import annotations

from klog.formats.errors import KlogError


class MetadataError(KlogError):
    """Base of all errors of the metadata package."""


class StoreError(MetadataError):
    """An operation of the store failed. `path` is its node, `op_index` its index in a multi."""

    def __init__(self, what: str, *, path: str | None = None, cure: str | None = None) -> None:
        super().__init__(what, cure=cure)
        self.path = path
        self.op_index: int | None = None


class NoNodeError(StoreError):
    """The node, or the parent of a node to create, does not exist."""


class NodeExistsError(StoreError):
    """A node to create exists already."""


class BadVersionError(StoreError):
    """The node has another version than a conditional write or check expects."""


class NotEmptyError(StoreError):
    """A node to delete has children."""


class EphemeralParentError(StoreError):
    """An ephemeral node cannot have children."""


class ConnectionLossError(StoreError):
    """The connection was lost before the answer came. A write may or may not have happened."""


class SessionExpiredError(StoreError):
    """The session has ended. Its ephemeral nodes and watches are gone."""


class StoreClosedError(SessionExpiredError):
    """The store was closed by this process."""


class StoreLockedError(StoreError):
    """Another process, or another store of this process, has the embedded store open."""


class StoreFailedError(StoreError):
    """The store itself failed: an error of the disk or the server that a retry does not fix."""


class ControllerMovedError(MetadataError):
    """A write was fenced: another controller has been elected."""


class BrokerIdInUseError(MetadataError):
    """Another live broker is registered with this broker id."""


class InvalidZnodeError(MetadataError):
    """A node's data is not what Kafka writes there."""


class InvalidReplicaAssignmentError(MetadataError):
    """A replica assignment that breaks Kafka's rules (counts, duplicates, unknown brokers)."""


class InvalidReplicationFactorError(MetadataError):
    """The replication factor is larger than the number of brokers, or below one."""


class InvalidPartitionsError(MetadataError):
    """The number of partitions is below one, or not larger than the present one."""


class InvalidTopicError(MetadataError):
    """Kafka does not allow the topic name, or it collides with another in metric names."""


class TopicExistsError(MetadataError):
    """The topic exists already."""


class UnknownTopicError(MetadataError):
    """The topic does not exist."""


class TopicDeletionInProgressError(MetadataError):
    """The topic is already marked for deletion."""


class WaitCancelledError(StoreError):
    """A wait for the store was given up because the process is to stop."""
