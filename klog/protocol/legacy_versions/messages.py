"""Makes the messages of legacy versions from the next versions, which kio has, and what differs.

Rules: Kafka 3.9's message schemas of these requests and responses. None of these versions is flexible.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache, reduce
from importlib import import_module
from operator import or_
from types import MappingProxyType, UnionType
from typing import Any, Final, NamedTuple, TypeAlias, get_type_hints

from klog.protocol.apis import Api, ApiKey
from klog.protocol.interbroker.struct import Struct, kafka

_Field: TypeAlias = tuple[str, Any, Any]


class _Difference(NamedTuple):
    """How a struct differs from that of the first version in kio.

    It lacks the fields in `without` and has others, each after the field that is named. Handlers read the
    `constants` as if they were fields.
    """

    without: tuple[str, ...] = ()
    others: Mapping[str, _Field] = MappingProxyType({})
    constants: Mapping[str, object] = MappingProxyType({})


_SAME: Final = _Difference()
_NO_THROTTLE_TIME: Final = _Difference(without=("throttle_time",))
_NO_CURRENT_EPOCH: Final = _Difference(("current_leader_epoch",), constants={"current_leader_epoch": -1})
_DIFFERENCES: Final[Mapping[tuple[ApiKey, int], Mapping[str, _Difference]]] = {
    (ApiKey.CREATE_TOPICS, 0): {
        "CreateTopicsRequest": _Difference(("validate_only",), constants={"validate_only": False}),
        "CreatableTopicResult": _Difference(without=("error_message",)),
        "CreateTopicsResponse": _NO_THROTTLE_TIME,
    },
    (ApiKey.CREATE_TOPICS, 1): {"CreateTopicsResponse": _NO_THROTTLE_TIME},
    # Literal patterns only (before KIP-290).
    (ApiKey.DESCRIBE_ACLS, 0): {
        "DescribeAclsRequest": _Difference(without=("pattern_type_filter",)),
        "DescribeAclsResource": _Difference(without=("pattern_type",)),
    },
    (ApiKey.CREATE_ACLS, 0): {"AclCreation": _Difference(without=("resource_pattern_type",))},
    (ApiKey.DELETE_ACLS, 0): {
        "DeleteAclsFilter": _Difference(without=("pattern_type_filter",)),
        "DeleteAclsMatchingAcl": _Difference(without=("pattern_type",)),
    },
    # Offsets in ZooKeeper.
    (ApiKey.OFFSET_COMMIT, 0): {
        "OffsetCommitRequest": _Difference(("generation_id_or_member_epoch", "member_id", "retention_time")),
    },
    (ApiKey.OFFSET_COMMIT, 1): {
        "OffsetCommitRequest": _Difference(without=("retention_time",)),
        "OffsetCommitRequestPartition": _Difference(
            others={"committed_offset": ("commit_timestamp", int, kafka("int64", default=-1))}
        ),
    },
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 0): {
        "OffsetForLeaderPartition": _NO_CURRENT_EPOCH,
        "EpochEndOffset": _Difference(without=("leader_epoch",)),
        "OffsetForLeaderEpochResponse": _NO_THROTTLE_TIME,
    },
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 1): {
        "OffsetForLeaderPartition": _NO_CURRENT_EPOCH,
        "OffsetForLeaderEpochResponse": _NO_THROTTLE_TIME,
    },
    (ApiKey.DELETE_TOPICS, 0): {"DeleteTopicsResponse": _NO_THROTTLE_TIME},
    # Kafka 3.9 never sets `is_default`.
    (ApiKey.DESCRIBE_CONFIGS, 0): {
        "DescribeConfigsRequest": _Difference(("include_synonyms",), constants={"include_synonyms": False}),
        "DescribeConfigsResourceResult": _Difference(
            without=("config_source", "synonyms"),
            others={"read_only": ("is_default", bool, kafka("bool", default=False))},
        ),
    },
    # Several offsets, of segments by the time of their last write (before KIP-79).
    (ApiKey.LIST_OFFSETS, 0): {
        "ListOffsetsPartition": _Difference(
            others={"timestamp": ("max_num_offsets", int, kafka("int32", default=1))}
        ),
        "ListOffsetsPartitionResponse": _Difference(
            without=("timestamp", "offset"),
            others={"error_code": ("old_style_offsets", tuple[int, ...], kafka("int64"))},
        ),
    },
}


def legacy_class(api: Api, version: int, kind: str) -> type:
    """The entity class of a message; `kind` is Request or Response."""
    newer = import_module(f"kio.schema.{api.key.name.lower()}.v{api.kio_from}")
    return _derived(getattr(newer, api.key.title + kind), api.key, version)


@cache
def _derived(newer: type, api_key: ApiKey, version: int) -> type:
    different = _DIFFERENCES.get((api_key, version), {}).get(newer.__name__, _SAME)
    hints = get_type_hints(newer)
    fields: list[_Field] = []
    for field in dataclasses.fields(newer):
        if field.name not in different.without:
            hint = _hint_of(hints[field.name], api_key, version)
            default = dataclasses.field(metadata=field.metadata, default=field.default)
            fields.append((field.name, hint, default))
        if field.name in different.others:
            fields.append(different.others[field.name])
    return dataclasses.make_dataclass(
        newer.__name__,
        fields,
        bases=(Struct,),
        namespace={
            "__module__": __name__,
            "__flexible__": False,
            "__api_key__": int(api_key),
            "__version__": version,
            **different.constants,
        },
        frozen=True,
        slots=True,
        kw_only=True,
    )


def _hint_of(hint: Any, api_key: ApiKey, version: int) -> Any:  # noqa: ANN401
    """The type of a field with the structs of this version in it."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _derived(hint, api_key, version)
    parts = tuple(_hint_of(part, api_key, version) for part in getattr(hint, "__args__", ()))
    if isinstance(hint, UnionType):
        return reduce(or_, parts)
    return hint.__origin__[parts] if parts else hint
