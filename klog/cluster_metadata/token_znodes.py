"""The nodes of delegation tokens below `/delegation_token/tokens`, field for field as Kafka 3.9 (KIP-48).

Rules: Kafka's `DelegationTokenManagerZk` and `DelegationTokenInfoZNode`. Version 3 names the requester. In
older ones it is the owner.
"""

from __future__ import annotations

from typing import Final

from klog.cluster_metadata.model import DelegationToken
from klog.formats.constants import INT64_MAX
from klog.metadata.json_fields import Fields, Json, encode_json

TOKENS: Final = "/delegation_token/tokens"
_VERSION: Final = 3


def path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def encode(token_id: str, token: DelegationToken) -> bytes:
    """The data of a token's node."""
    return encode_json(
        {
            "version": _VERSION,
            "owner": token.owner,
            "tokenRequester": token.requester,
            "renewers": list(token.renewers),
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expires_ms,
            "tokenId": token_id,
        }
    )


def decode(token_id: str, data: bytes | None) -> DelegationToken:
    """The token of a node. Raises InvalidZnodeError."""
    fields = Fields(data, path(token_id))
    version = fields.integer("version")
    if not 1 <= version <= _VERSION:
        raise fields.invalid(f"has version {version}, not 1 to {_VERSION}")
    if fields.text("tokenId") != token_id:
        raise fields.invalid("holds another token")
    owner = fields.text("owner")
    return DelegationToken(
        owner,
        fields.text("tokenRequester") if version >= _VERSION else owner,
        tuple(_principal(each, fields) for each in fields.items("renewers")),
        fields.integer("issueTimestamp", largest=INT64_MAX),
        fields.integer("maxTimestamp", largest=INT64_MAX),
        fields.integer("expiryTimestamp", largest=INT64_MAX),
    )


def _principal(value: Json, fields: Fields) -> str:
    if not isinstance(value, str):
        raise fields.invalid(f"has a renewer that is no text: {value!r}")
    return value
