"""What each error of Kafka means to the person who gave a command, and what to do about it.

Kafka's own texts are written for authors of clients. Errors that only brokers and clients of the protocol
meet name the likely cause of one that reaches a person: a version, a restart, or a defect to report.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klog.protocol.error_codes import ErrorCode as E


class Meaning(NamedTuple):
    """What an error means, and what to do."""

    what: str
    cure: str


_AGAIN: Final = "try again; the broker's log says why if it stays so"
_RETRY: Final = "try again in a few seconds"
_GRANT: Final = "log in as another user, or have the right granted with klog acls add"
_TOPICS: Final = "klog topics list shows what there is"
_GROUPS: Final = "klog groups list shows what there is"
_PRODUCER: Final = "start the producer again: it gets a new epoch"
_NEWER: Final = "use a command or an option that the brokers' version has; klog brokers api-versions shows it"
_DEFECT: Final = "no command should cause it: report it with the command line and the versions"
_MEMBER: Final = "start the member again: it joins anew"
_TOKENS: Final = "klog tokens describe shows those of this user; klog tokens create makes one"
_SASL: Final = "check sasl.mechanism, the user and the password in --command-config or the profile"
_KRAFT: Final = "ask the controllers' logs; kafka-metadata-quorum describes the voters"
_BROKER: Final = "it ends when the broker has registered again; its log says why if it does not"
_DISK: Final = "look at the broker's log and disk; klog log-dirs shows failed directories"
_SHARE: Final = "the client opens a new session by itself; start it again if it does not"

MEANINGS: Final[dict[E, Meaning]] = {
    E.UNKNOWN_SERVER_ERROR: Meaning("the broker failed in a way that it has no code for", "its log says why"),
    E.OFFSET_OUT_OF_RANGE: Meaning(
        "the partition has no such offset", "klog offsets shows where partitions begin and end"
    ),
    E.CORRUPT_MESSAGE: Meaning(
        "the records are damaged, or a record of a compacted topic has no key",
        "klog verify checks the files of the broker; give records of compacted topics keys",
    ),
    E.UNKNOWN_TOPIC_OR_PARTITION: Meaning("the cluster has no such topic or partition", _TOPICS),
    E.INVALID_FETCH_SIZE: Meaning("the fetch size is not valid", _DEFECT),
    E.LEADER_NOT_AVAILABLE: Meaning("the partition has no leader at the moment", _RETRY),
    E.NOT_LEADER_OR_FOLLOWER: Meaning("the broker does not lead the partition any more", _RETRY),
    E.REQUEST_TIMED_OUT: Meaning(
        "the broker did not get it done in time",
        "it may still happen: look before you repeat it; --timeout-ms gives it more time",
    ),
    E.BROKER_NOT_AVAILABLE: Meaning("the broker is not there", "klog brokers shows who is"),
    E.REPLICA_NOT_AVAILABLE: Meaning("the broker has no such replica", _RETRY),
    E.MESSAGE_TOO_LARGE: Meaning(
        "a batch of records is larger than the topic accepts",
        "send smaller batches, or raise max.message.bytes with klog configs alter",
    ),
    E.STALE_CONTROLLER_EPOCH: Meaning("the request is of an earlier controller", _AGAIN),
    E.OFFSET_METADATA_TOO_LARGE: Meaning(
        "the metadata of the committed offset is too long", "shorten it, or raise offset.metadata.max.bytes"
    ),
    E.NETWORK_EXCEPTION: Meaning("the connection was lost before the answer", _RETRY),
    E.COORDINATOR_LOAD_IN_PROGRESS: Meaning("the coordinator is still reading its log", _RETRY),
    E.COORDINATOR_NOT_AVAILABLE: Meaning(
        "there is no coordinator",
        "try again; if it stays so, __consumer_offsets or __transaction_state "
        "has partitions without a leader: klog topics describe shows them",
    ),
    E.NOT_COORDINATOR: Meaning("the coordinator has moved to another broker", _RETRY),
    E.INVALID_TOPIC_EXCEPTION: Meaning(
        "the topic's name is not valid, or it is one of Kafka's own topics",
        "names have up to 249 letters, digits, dots, underscores and dashes",
    ),
    E.RECORD_LIST_TOO_LARGE: Meaning(
        "the records are larger than a segment", "send smaller batches, or raise segment.bytes"
    ),
    E.NOT_ENOUGH_REPLICAS: Meaning(
        "fewer replicas are in sync than min.insync.replicas",
        "klog topics describe --under-min-isr-partitions shows them; start the brokers that are missing",
    ),
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Meaning(
        "the records were written, but too few replicas are in sync",
        "they may be there twice if you send them again; start the brokers that are missing",
    ),
    E.INVALID_REQUIRED_ACKS: Meaning("acks is not valid", "acks is 0, 1 or all"),
    E.ILLEGAL_GENERATION: Meaning("the group has begun another generation", _MEMBER),
    E.INCONSISTENT_GROUP_PROTOCOL: Meaning(
        "the member has no assignor or type in common with the others of its group",
        "give all members the same partition.assignment.strategy",
    ),
    E.INVALID_GROUP_ID: Meaning("the name of the group is not valid", "name a group that is not empty"),
    E.UNKNOWN_MEMBER_ID: Meaning(
        "the group has no such member, or members that still run",
        "stop the members of the group first; klog groups describe GROUP --members shows them",
    ),
    E.INVALID_SESSION_TIMEOUT: Meaning(
        "the session timeout is outside of what the broker allows",
        "stay within group.min.session.timeout.ms and group.max.session.timeout.ms",
    ),
    E.REBALANCE_IN_PROGRESS: Meaning("the group is rebalancing", _RETRY),
    E.INVALID_COMMIT_OFFSET_SIZE: Meaning("the commit is larger than a batch may be", "commit less at once"),
    E.TOPIC_AUTHORIZATION_FAILED: Meaning("this user lacks the right to the topic", _GRANT),
    E.GROUP_AUTHORIZATION_FAILED: Meaning("this user lacks the right to the group", _GRANT),
    E.CLUSTER_AUTHORIZATION_FAILED: Meaning("this user lacks the right to the cluster", _GRANT),
    E.INVALID_TIMESTAMP: Meaning(
        "a record's timestamp is too far from now for the topic",
        "correct the clock, or message.timestamp.before.max.ms and message.timestamp.after.max.ms",
    ),
    E.UNSUPPORTED_SASL_MECHANISM: Meaning("the listener does not have this SASL mechanism", _SASL),
    E.ILLEGAL_SASL_STATE: Meaning("the request does not fit the state of the login", _SASL),
    E.UNSUPPORTED_VERSION: Meaning("the broker does not have this version of the request", _NEWER),
    E.TOPIC_ALREADY_EXISTS: Meaning("there is a topic of this name", "--if-not-exists accepts that"),
    E.INVALID_PARTITIONS: Meaning(
        "the number of partitions is not valid", "it can only grow: klog topics describe shows it"
    ),
    E.INVALID_REPLICATION_FACTOR: Meaning(
        "there are not as many brokers as replicas", "klog brokers shows them; ask for fewer replicas"
    ),
    E.INVALID_REPLICA_ASSIGNMENT: Meaning(
        "the assignment is not valid", "each partition needs different brokers that exist"
    ),
    E.INVALID_CONFIG: Meaning(
        "the config is not valid", "klog configs describe --all --doc shows names and values"
    ),
    E.NOT_CONTROLLER: Meaning("the broker is not the controller any more", _RETRY),
    E.INVALID_REQUEST: Meaning("the broker does not accept the request as it is", "its log may say more"),
    E.UNSUPPORTED_FOR_MESSAGE_FORMAT: Meaning(
        "the topic's message format cannot do it", "klog convert rewrites old segments to format 2"
    ),
    E.POLICY_VIOLATION: Meaning(
        "a policy of the brokers forbids it",
        "ask who set create.topic.policy.class.name and alter.config.policy.class.name; a broker with "
        "--read-only changes nothing",
    ),
    E.OUT_OF_ORDER_SEQUENCE_NUMBER: Meaning("records of the producer before these are missing", _PRODUCER),
    E.DUPLICATE_SEQUENCE_NUMBER: Meaning("the records were written before", "nothing is to be done"),
    E.INVALID_PRODUCER_EPOCH: Meaning("a newer producer of this id has begun", _PRODUCER),
    E.INVALID_TXN_STATE: Meaning(
        "the transaction is in another state", "klog transactions describe ID shows it"
    ),
    E.INVALID_PRODUCER_ID_MAPPING: Meaning(
        "the transactional id has another producer id now", "start the producer again"
    ),
    E.INVALID_TRANSACTION_TIMEOUT: Meaning(
        "the transaction timeout is above the brokers' limit",
        "stay below transaction.max.timeout.ms (15 minutes by default)",
    ),
    E.CONCURRENT_TRANSACTIONS: Meaning("the transaction before is still being ended", _RETRY),
    E.TRANSACTION_COORDINATOR_FENCED: Meaning("the marker is of an earlier coordinator", _AGAIN),
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Meaning("this user lacks the right to the id", _GRANT),
    E.SECURITY_DISABLED: Meaning(
        "the brokers have no authorizer, so there are no ACLs", "set authorizer.class.name at the brokers"
    ),
    E.OPERATION_NOT_ATTEMPTED: Meaning(
        "it was not tried, because another part of the request failed", "mend the other one first"
    ),
    E.KAFKA_STORAGE_ERROR: Meaning("the broker cannot read or write the log directory", _DISK),
    E.LOG_DIR_NOT_FOUND: Meaning("the broker has no such log directory", "klog log-dirs shows what it has"),
    E.SASL_AUTHENTICATION_FAILED: Meaning("the login failed", _SASL),
    E.UNKNOWN_PRODUCER_ID: Meaning("the partition does not know the producer (any more)", _PRODUCER),
    E.REASSIGNMENT_IN_PROGRESS: Meaning(
        "partitions are being moved", "wait for it, or end it: klog reassign list, klog reassign cancel"
    ),
    E.DELEGATION_TOKEN_AUTH_DISABLED: Meaning(
        "the brokers have no delegation tokens", "set delegation.token.secret.key at the brokers"
    ),
    E.DELEGATION_TOKEN_NOT_FOUND: Meaning("there is no such delegation token", _TOKENS),
    E.DELEGATION_TOKEN_OWNER_MISMATCH: Meaning("the delegation token is another user's", _TOKENS),
    E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: Meaning(
        "tokens are not given out on this connection", "log in with SASL or TLS, and not with a token"
    ),
    E.DELEGATION_TOKEN_AUTHORIZATION_FAILED: Meaning("this user lacks the right to the token", _GRANT),
    E.DELEGATION_TOKEN_EXPIRED: Meaning("the delegation token has expired", _TOKENS),
    E.INVALID_PRINCIPAL_TYPE: Meaning("the type of the principal is unknown", "principals are User:NAME"),
    E.NON_EMPTY_GROUP: Meaning(
        "the group has members", "stop them first; klog groups describe GROUP --members shows them"
    ),
    E.GROUP_ID_NOT_FOUND: Meaning("there is no such group", _GROUPS),
    E.FETCH_SESSION_ID_NOT_FOUND: Meaning("the broker has dropped the fetch session", _AGAIN),
    E.INVALID_FETCH_SESSION_EPOCH: Meaning("the fetch session is out of step", _AGAIN),
    E.LISTENER_NOT_FOUND: Meaning(
        "the partition's leader has no listener of this name", "give all brokers the same listeners"
    ),
    E.TOPIC_DELETION_DISABLED: Meaning(
        "the brokers delete no topics", "set delete.topic.enable=true and start them again"
    ),
    E.FENCED_LEADER_EPOCH: Meaning("the partition has a newer leader", _RETRY),
    E.UNKNOWN_LEADER_EPOCH: Meaning("the broker does not know of the newer leader yet", _RETRY),
    E.UNSUPPORTED_COMPRESSION_TYPE: Meaning(
        "the codec needs a newer version of the request or the topic", "choose another --compression"
    ),
    E.STALE_BROKER_EPOCH: Meaning("the request is of an earlier run of the broker", _BROKER),
    E.OFFSET_NOT_AVAILABLE: Meaning("the new leader does not know the high watermark yet", _RETRY),
    E.MEMBER_ID_REQUIRED: Meaning("the member has to join with the id that it was given", _MEMBER),
    E.PREFERRED_LEADER_NOT_AVAILABLE: Meaning(
        "the preferred replica is not in sync", "klog topics describe shows its replicas; start its broker"
    ),
    E.GROUP_MAX_SIZE_REACHED: Meaning(
        "the group has as many members as it may have", "stop some, or raise group.max.size at the brokers"
    ),
    E.FENCED_INSTANCE_ID: Meaning(
        "another member has the same group.instance.id", "give each member its own"
    ),
    E.ELIGIBLE_LEADERS_NOT_AVAILABLE: Meaning(
        "no replica that could lead is there",
        "start the brokers of its replicas; klog elect-leader --unclean lets one lead that is behind",
    ),
    E.ELECTION_NOT_NEEDED: Meaning(
        "the partition has the leader that it should have", "nothing is to be done"
    ),
    E.NO_REASSIGNMENT_IN_PROGRESS: Meaning(
        "the partition is not being moved", "klog reassign list shows moves"
    ),
    E.GROUP_SUBSCRIBED_TO_TOPIC: Meaning(
        "members of the group read the topic", "stop them first; klog groups describe GROUP shows them"
    ),
    E.INVALID_RECORD: Meaning(
        "the broker refuses a record", "records of compacted topics need keys, and timestamps must be valid"
    ),
    E.UNSTABLE_OFFSET_COMMIT: Meaning(
        "a transaction has offsets of the group that are not committed", _RETRY
    ),
    E.THROTTLING_QUOTA_EXCEEDED: Meaning(
        "the quota for changes of topics is used up",
        "try again later, or raise controller_mutation_rate with klog quotas alter",
    ),
    E.PRODUCER_FENCED: Meaning("another producer uses the same transactional.id", "give each one its own"),
    E.RESOURCE_NOT_FOUND: Meaning(
        "there is nothing of this name", "the list command of the same group shows what there is"
    ),
    E.DUPLICATE_RESOURCE: Meaning("the same thing is named twice", "name it once"),
    E.UNACCEPTABLE_CREDENTIAL: Meaning(
        "the credential is not valid", "iterations are from 4096 to 16384, and a user has a name"
    ),
    E.INCONSISTENT_VOTER_SET: Meaning("controllers disagree about the voters", _KRAFT),
    E.INVALID_UPDATE_VERSION: Meaning(
        "the partition's state was changed meanwhile", "the leader asks again by itself"
    ),
    E.FEATURE_UPDATE_FAILED: Meaning(
        "the feature could not be changed", "klog cluster shows the levels that brokers support"
    ),
    E.PRINCIPAL_DESERIALIZATION_FAILURE: Meaning(
        "the controller cannot read the principal that the broker forwards",
        "give brokers and controllers the same principal.builder.class",
    ),
    E.SNAPSHOT_NOT_FOUND: Meaning("there is no such snapshot of the metadata", _KRAFT),
    E.POSITION_OUT_OF_RANGE: Meaning("the snapshot of the metadata ends before this position", _KRAFT),
    E.UNKNOWN_TOPIC_ID: Meaning(
        "the cluster has no topic with this id", "klog topics describe shows the ids"
    ),
    E.DUPLICATE_BROKER_REGISTRATION: Meaning(
        "a broker with this id is running", "give each broker its own node.id"
    ),
    E.BROKER_ID_NOT_REGISTERED: Meaning(
        "the controllers do not know a broker of this id", "klog brokers shows who is registered"
    ),
    E.INCONSISTENT_TOPIC_ID: Meaning(
        "the log of the partition is of an earlier topic of this name",
        "klog verify shows the id; move the directory away if the topic was made anew",
    ),
    E.INCONSISTENT_CLUSTER_ID: Meaning(
        "the broker is of another cluster", "check bootstrap servers and meta.properties"
    ),
    E.TRANSACTIONAL_ID_NOT_FOUND: Meaning(
        "there is no such transactional id", "klog transactions list shows what there is"
    ),
    E.FETCH_SESSION_TOPIC_ID_ERROR: Meaning("the fetch session mixes names and ids of topics", _AGAIN),
    E.INELIGIBLE_REPLICA: Meaning("the replica may not be in sync now: its broker is stopping", _BROKER),
    E.NEW_LEADER_ELECTED: Meaning("the partition has another leader now", _RETRY),
    E.OFFSET_MOVED_TO_TIERED_STORAGE: Meaning(
        "the records are in tiered storage only", "read them with a consumer of Kafka"
    ),
    E.FENCED_MEMBER_EPOCH: Meaning("the coordinator has fenced the member", _MEMBER),
    E.UNRELEASED_INSTANCE_ID: Meaning(
        "a member with the same group.instance.id still runs", "stop it first, or give each one its own"
    ),
    E.UNSUPPORTED_ASSIGNOR: Meaning(
        "the coordinator does not have this assignor", "choose another group.remote.assignor"
    ),
    E.STALE_MEMBER_EPOCH: Meaning("the member has not seen its newest assignment yet", _RETRY),
    E.MISMATCHED_ENDPOINT_TYPE: Meaning(
        "the address is a controller's where a broker's is needed, or the other way round",
        "give the address of a broker with --bootstrap-server",
    ),
    E.UNSUPPORTED_ENDPOINT_TYPE: Meaning("the broker does not know this type of endpoint", _NEWER),
    E.UNKNOWN_CONTROLLER_ID: Meaning("there is no controller of this id", _KRAFT),
    E.UNKNOWN_SUBSCRIPTION_ID: Meaning(
        "the broker has other subscriptions to client metrics", "the client asks for them again by itself"
    ),
    E.TELEMETRY_TOO_LARGE: Meaning(
        "the client's metrics are too large", "raise telemetry.max.bytes, or subscribe to fewer metrics"
    ),
    E.INVALID_REGISTRATION: Meaning(
        "the controllers refuse the registration of the broker", "its log and theirs say why"
    ),
    E.TRANSACTION_ABORTABLE: Meaning("the transaction cannot go on", "abort it and begin another one"),
    E.INVALID_RECORD_STATE: Meaning("the record is in another state for the share group", _AGAIN),
    E.SHARE_SESSION_NOT_FOUND: Meaning("the broker has dropped the share session", _SHARE),
    E.INVALID_SHARE_SESSION_EPOCH: Meaning("the share session is out of step", _SHARE),
    E.FENCED_STATE_EPOCH: Meaning("the share group's state is of a newer epoch", _AGAIN),
    E.INVALID_VOTER_KEY: Meaning("the voter's id and directory do not fit its address", _KRAFT),
    E.DUPLICATE_VOTER: Meaning("the controller is a voter already", "nothing is to be done"),
    E.VOTER_NOT_FOUND: Meaning("there is no such voter", _KRAFT),
    E.INVALID_REGULAR_EXPRESSION: Meaning("the regular expression is not valid", "write it as for RE2"),
    E.REBOOTSTRAP_REQUIRED: Meaning("the brokers' addresses have changed", "start the client again"),
    E.STREAMS_INVALID_TOPOLOGY: Meaning(
        "the topology of the streams group is not valid", "the application's log says what is wrong"
    ),
    E.STREAMS_INVALID_TOPOLOGY_EPOCH: Meaning("the topology has another epoch", "update all applications"),
    E.STREAMS_TOPOLOGY_FENCED: Meaning("the topology is an earlier one", "update this application"),
    E.SHARE_SESSION_LIMIT_REACHED: Meaning(
        "the broker has too many share sessions",
        "raise group.share.max.share.sessions there",
    ),
}
"""All errors but NONE."""
