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


# What to do about several errors, by a word that the table has for it.
_CURES: Final = {
    "AGAIN": "try again; the broker's log says why if it stays so",
    "RETRY": "try again in a few seconds",
    "GRANT": "log in as another user, or have the right granted with klog acls add",
    "TOPICS": "klog topics list shows what there is",
    "GROUPS": "klog groups list shows what there is",
    "PRODUCER": "start the producer again: it gets a new epoch",
    "NEWER": "use a command or an option that the brokers' version has; klog brokers api-versions shows it",
    "DEFECT": "no command should cause it: report it with the command line and the versions",
    "MEMBER": "start the member again: it joins anew",
    "TOKENS": "klog tokens describe shows those of this user; klog tokens create makes one",
    "SASL": "check sasl.mechanism, the user and the password in --command-config or the profile",
    "KRAFT": "ask the controllers' logs; kafka-metadata-quorum describes the voters",
    "BROKER": "it ends when the broker has registered again; its log says why if it does not",
    "DISK": "look at the broker's log and disk; klog log-dirs shows failed directories",
    "SHARE": "the client opens a new session by itself; start it again if it does not",
}


def _meanings(table: str) -> dict[E, Meaning]:
    """Lines `ERROR: meaning | what to do`, the latter in full or by its word; long ones go on indented."""
    found = {}
    for line in table.strip().replace("\n    ", " ").splitlines():
        name, _, text = line.partition(": ")
        what, _, cure = text.partition(" | ")
        found[E[name]] = Meaning(what, _CURES.get(cure, cure))
    return found


MEANINGS: Final = _meanings("""
UNKNOWN_SERVER_ERROR: the broker failed in a way that it has no code for | its log says why
OFFSET_OUT_OF_RANGE: the partition has no such offset | klog offsets shows where partitions begin and end
CORRUPT_MESSAGE: the records are damaged, or a record of a compacted topic has no key |
    klog verify checks the files of the broker; give records of compacted topics keys
UNKNOWN_TOPIC_OR_PARTITION: the cluster has no such topic or partition | TOPICS
INVALID_FETCH_SIZE: the fetch size is not valid | DEFECT
LEADER_NOT_AVAILABLE: the partition has no leader at the moment | RETRY
NOT_LEADER_OR_FOLLOWER: the broker does not lead the partition any more | RETRY
REQUEST_TIMED_OUT: the broker did not get it done in time |
    it may still happen: look before you repeat it; --timeout-ms gives it more time
BROKER_NOT_AVAILABLE: the broker is not there | klog brokers shows who is
REPLICA_NOT_AVAILABLE: the broker has no such replica | RETRY
MESSAGE_TOO_LARGE: a batch of records is larger than the topic accepts |
    send smaller batches, or raise max.message.bytes with klog configs alter
STALE_CONTROLLER_EPOCH: the request is of an earlier controller | AGAIN
OFFSET_METADATA_TOO_LARGE: the metadata of the committed offset is too long |
    shorten it, or raise offset.metadata.max.bytes
NETWORK_EXCEPTION: the connection was lost before the answer | RETRY
COORDINATOR_LOAD_IN_PROGRESS: the coordinator is still reading its log | RETRY
COORDINATOR_NOT_AVAILABLE: there is no coordinator | try again; if it stays so, __consumer_offsets or
    __transaction_state has partitions without a leader: klog topics describe shows them
NOT_COORDINATOR: the coordinator has moved to another broker | RETRY
INVALID_TOPIC_EXCEPTION: the topic's name is not valid, or it is one of Kafka's own topics |
    names have up to 249 letters, digits, dots, underscores and dashes
RECORD_LIST_TOO_LARGE: the records are larger than a segment | send smaller batches, or raise segment.bytes
NOT_ENOUGH_REPLICAS: fewer replicas are in sync than min.insync.replicas |
    klog topics describe --under-min-isr-partitions shows them; start the brokers that are missing
NOT_ENOUGH_REPLICAS_AFTER_APPEND: the records were written, but too few replicas are in sync |
    they may be there twice if you send them again; start the brokers that are missing
INVALID_REQUIRED_ACKS: acks is not valid | acks is 0, 1 or all
ILLEGAL_GENERATION: the group has begun another generation | MEMBER
INCONSISTENT_GROUP_PROTOCOL: the member has no assignor or type in common with the others of its group |
    give all members the same partition.assignment.strategy
INVALID_GROUP_ID: the name of the group is not valid | name a group that is not empty
UNKNOWN_MEMBER_ID: the group has no such member, or members that still run |
    stop the members of the group first; klog groups describe GROUP --members shows them
INVALID_SESSION_TIMEOUT: the session timeout is outside of what the broker allows |
    stay within group.min.session.timeout.ms and group.max.session.timeout.ms
REBALANCE_IN_PROGRESS: the group is rebalancing | RETRY
INVALID_COMMIT_OFFSET_SIZE: the commit is larger than a batch may be | commit less at once
TOPIC_AUTHORIZATION_FAILED: this user lacks the right to the topic | GRANT
GROUP_AUTHORIZATION_FAILED: this user lacks the right to the group | GRANT
CLUSTER_AUTHORIZATION_FAILED: this user lacks the right to the cluster | GRANT
INVALID_TIMESTAMP: a record's timestamp is too far from now for the topic |
    correct the clock, or message.timestamp.before.max.ms and message.timestamp.after.max.ms
UNSUPPORTED_SASL_MECHANISM: the listener does not have this SASL mechanism | SASL
ILLEGAL_SASL_STATE: the request does not fit the state of the login | SASL
UNSUPPORTED_VERSION: the broker does not have this version of the request | NEWER
TOPIC_ALREADY_EXISTS: there is a topic of this name | --if-not-exists accepts that
INVALID_PARTITIONS: the number of partitions is not valid | it can only grow: klog topics describe shows it
INVALID_REPLICATION_FACTOR: there are not as many brokers as replicas |
    klog brokers shows them; ask for fewer replicas
INVALID_REPLICA_ASSIGNMENT: the assignment is not valid | each partition needs different brokers that exist
INVALID_CONFIG: the config is not valid | klog configs describe --all --doc shows names and values
NOT_CONTROLLER: the broker is not the controller any more | RETRY
INVALID_REQUEST: the broker does not accept the request as it is | its log may say more
UNSUPPORTED_FOR_MESSAGE_FORMAT: the topic's message format cannot do it |
    klog convert rewrites old segments to format 2
POLICY_VIOLATION: a policy of the brokers forbids it | ask who set create.topic.policy.class.name and
    alter.config.policy.class.name; a broker with --read-only changes nothing
OUT_OF_ORDER_SEQUENCE_NUMBER: records of the producer before these are missing | PRODUCER
DUPLICATE_SEQUENCE_NUMBER: the records were written before | nothing is to be done
INVALID_PRODUCER_EPOCH: a newer producer of this id has begun | PRODUCER
INVALID_TXN_STATE: the transaction is in another state | klog transactions describe ID shows it
INVALID_PRODUCER_ID_MAPPING: the transactional id has another producer id now | start the producer again
INVALID_TRANSACTION_TIMEOUT: the transaction timeout is above the brokers' limit |
    stay below transaction.max.timeout.ms (15 minutes by default)
CONCURRENT_TRANSACTIONS: the transaction before is still being ended | RETRY
TRANSACTION_COORDINATOR_FENCED: the marker is of an earlier coordinator | AGAIN
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: this user lacks the right to the id | GRANT
SECURITY_DISABLED: the brokers have no authorizer, so there are no ACLs |
    set authorizer.class.name at the brokers
OPERATION_NOT_ATTEMPTED: it was not tried, because another part of the request failed |
    mend the other one first
KAFKA_STORAGE_ERROR: the broker cannot read or write the log directory | DISK
LOG_DIR_NOT_FOUND: the broker has no such log directory | klog log-dirs shows what it has
SASL_AUTHENTICATION_FAILED: the login failed | SASL
UNKNOWN_PRODUCER_ID: the partition does not know the producer (any more) | PRODUCER
REASSIGNMENT_IN_PROGRESS: partitions are being moved |
    wait for it, or end it: klog reassign list, klog reassign cancel
DELEGATION_TOKEN_AUTH_DISABLED: the brokers have no delegation tokens |
    set delegation.token.secret.key at the brokers
DELEGATION_TOKEN_NOT_FOUND: there is no such delegation token | TOKENS
DELEGATION_TOKEN_OWNER_MISMATCH: the delegation token is another user's | TOKENS
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: tokens are not given out on this connection |
    log in with SASL or TLS, and not with a token
DELEGATION_TOKEN_AUTHORIZATION_FAILED: this user lacks the right to the token | GRANT
DELEGATION_TOKEN_EXPIRED: the delegation token has expired | TOKENS
INVALID_PRINCIPAL_TYPE: the type of the principal is unknown | principals are User:NAME
NON_EMPTY_GROUP: the group has members | stop them first; klog groups describe GROUP --members shows them
GROUP_ID_NOT_FOUND: there is no such group | GROUPS
FETCH_SESSION_ID_NOT_FOUND: the broker has dropped the fetch session | AGAIN
INVALID_FETCH_SESSION_EPOCH: the fetch session is out of step | AGAIN
LISTENER_NOT_FOUND: the partition's leader has no listener of this name | give all brokers the same listeners
TOPIC_DELETION_DISABLED: the brokers delete no topics | set delete.topic.enable=true and start them again
FENCED_LEADER_EPOCH: the partition has a newer leader | RETRY
UNKNOWN_LEADER_EPOCH: the broker does not know of the newer leader yet | RETRY
UNSUPPORTED_COMPRESSION_TYPE: the codec needs a newer version of the request or the topic |
    choose another --compression
STALE_BROKER_EPOCH: the request is of an earlier run of the broker | BROKER
OFFSET_NOT_AVAILABLE: the new leader does not know the high watermark yet | RETRY
MEMBER_ID_REQUIRED: the member has to join with the id that it was given | MEMBER
PREFERRED_LEADER_NOT_AVAILABLE: the preferred replica is not in sync |
    klog topics describe shows its replicas; start its broker
GROUP_MAX_SIZE_REACHED: the group has as many members as it may have |
    stop some, or raise group.max.size at the brokers
FENCED_INSTANCE_ID: another member has the same group.instance.id | give each member its own
ELIGIBLE_LEADERS_NOT_AVAILABLE: no replica that could lead is there |
    start the brokers of its replicas; klog elect-leader --unclean lets one lead that is behind
ELECTION_NOT_NEEDED: the partition has the leader that it should have | nothing is to be done
NO_REASSIGNMENT_IN_PROGRESS: the partition is not being moved | klog reassign list shows moves
GROUP_SUBSCRIBED_TO_TOPIC: members of the group read the topic |
    stop them first; klog groups describe GROUP shows them
INVALID_RECORD: the broker refuses a record |
    records of compacted topics need keys, and timestamps must be valid
UNSTABLE_OFFSET_COMMIT: a transaction has offsets of the group that are not committed | RETRY
THROTTLING_QUOTA_EXCEEDED: the quota for changes of topics is used up |
    try again later, or raise controller_mutation_rate with klog quotas alter
PRODUCER_FENCED: another producer uses the same transactional.id | give each one its own
RESOURCE_NOT_FOUND: there is nothing of this name | the list command of the same group shows what there is
DUPLICATE_RESOURCE: the same thing is named twice | name it once
UNACCEPTABLE_CREDENTIAL: the credential is not valid |
    iterations are from 4096 to 16384, and a user has a name
INCONSISTENT_VOTER_SET: controllers disagree about the voters | KRAFT
INVALID_UPDATE_VERSION: the partition's state was changed meanwhile | the leader asks again by itself
FEATURE_UPDATE_FAILED: the feature could not be changed | klog cluster shows the levels that brokers support
PRINCIPAL_DESERIALIZATION_FAILURE: the controller cannot read the principal that the broker forwards |
    give brokers and controllers the same principal.builder.class
SNAPSHOT_NOT_FOUND: there is no such snapshot of the metadata | KRAFT
POSITION_OUT_OF_RANGE: the snapshot of the metadata ends before this position | KRAFT
UNKNOWN_TOPIC_ID: the cluster has no topic with this id | klog topics describe shows the ids
DUPLICATE_BROKER_REGISTRATION: a broker with this id is running | give each broker its own node.id
BROKER_ID_NOT_REGISTERED: the controllers do not know a broker of this id |
    klog brokers shows who is registered
INCONSISTENT_TOPIC_ID: the log of the partition is of an earlier topic of this name |
    klog verify shows the id; move the directory away if the topic was made anew
INCONSISTENT_CLUSTER_ID: the broker is of another cluster | check bootstrap servers and meta.properties
TRANSACTIONAL_ID_NOT_FOUND: there is no such transactional id | klog transactions list shows what there is
FETCH_SESSION_TOPIC_ID_ERROR: the fetch session mixes names and ids of topics | AGAIN
INELIGIBLE_REPLICA: the replica may not be in sync now: its broker is stopping | BROKER
NEW_LEADER_ELECTED: the partition has another leader now | RETRY
OFFSET_MOVED_TO_TIERED_STORAGE: the records are in tiered storage only | read them with a consumer of Kafka
FENCED_MEMBER_EPOCH: the coordinator has fenced the member | MEMBER
UNRELEASED_INSTANCE_ID: a member with the same group.instance.id still runs |
    stop it first, or give each one its own
UNSUPPORTED_ASSIGNOR: the coordinator does not have this assignor | choose another group.remote.assignor
STALE_MEMBER_EPOCH: the member has not seen its newest assignment yet | RETRY
MISMATCHED_ENDPOINT_TYPE: the address is a controller's where a broker's is needed, or the other way round |
    give the address of a broker with --bootstrap-server
UNSUPPORTED_ENDPOINT_TYPE: the broker does not know this type of endpoint | NEWER
UNKNOWN_CONTROLLER_ID: there is no controller of this id | KRAFT
UNKNOWN_SUBSCRIPTION_ID: the broker has other subscriptions to client metrics |
    the client asks for them again by itself
TELEMETRY_TOO_LARGE: the client's metrics are too large |
    raise telemetry.max.bytes, or subscribe to fewer metrics
INVALID_REGISTRATION: the controllers refuse the registration of the broker | its log and theirs say why
TRANSACTION_ABORTABLE: the transaction cannot go on | abort it and begin another one
INVALID_RECORD_STATE: the record is in another state for the share group | AGAIN
SHARE_SESSION_NOT_FOUND: the broker has dropped the share session | SHARE
INVALID_SHARE_SESSION_EPOCH: the share session is out of step | SHARE
FENCED_STATE_EPOCH: the share group's state is of a newer epoch | AGAIN
INVALID_VOTER_KEY: the voter's id and directory do not fit its address | KRAFT
DUPLICATE_VOTER: the controller is a voter already | nothing is to be done
VOTER_NOT_FOUND: there is no such voter | KRAFT
INVALID_REGULAR_EXPRESSION: the regular expression is not valid | write it as for RE2
REBOOTSTRAP_REQUIRED: the brokers' addresses have changed | start the client again
STREAMS_INVALID_TOPOLOGY: the topology of the streams group is not valid |
    the application's log says what is wrong
STREAMS_INVALID_TOPOLOGY_EPOCH: the topology has another epoch | update all applications
STREAMS_TOPOLOGY_FENCED: the topology is an earlier one | update this application
SHARE_SESSION_LIMIT_REACHED: the broker has too many share sessions |
    raise group.share.max.share.sessions there
""")
"""All errors but NONE."""
