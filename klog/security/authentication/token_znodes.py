"""The nodes of delegation tokens in the metadata tree, byte for byte as Kafka 3.9.

Rules: Kafka's `ZkData` (DelegationTokensZNode and its siblings) and `DelegationTokenManagerZk`. Names of
principals are sanitised. A notification holds the id of the token that has changed.
"""

from __future__ import annotations

import re
from typing import Final

from klog.formats.constants import INT64_MAX
from klog.metadata.errors import InvalidZnodeError
from klog.metadata.json_fields import Fields, Json, encode_json
from klog.metadata.znodes import desanitize, sanitize
from klog.security.authentication.delegation_tokens import DelegationToken
from klog.security.principal import KafkaPrincipal

TOKENS: Final = "/delegation_token/tokens"
CHANGES: Final = "/delegation_token/token_changes"
CHANGE_PREFIX: Final = f"{CHANGES}/token_change_"
PERSISTENT: Final = (CHANGES, TOKENS)
"""The nodes that a broker with tokens makes at its start if they are missing, in this order."""
_VERSION: Final = 3
_REQUESTERS_FROM: Final = 3  # before, the owner was the requester
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")


def token_path(token_id: str) -> str:
    """The node of a token."""
    return f"{TOKENS}/{token_id}"


def encode_token(token: DelegationToken) -> bytes:
    """What the node of a token holds, in the order of Scala's map."""
    return encode_json(
        {
            "issueTimestamp": token.issued_ms,
            "renewers": [sanitize(str(each)) for each in token.renewers],
            "tokenRequester": sanitize(str(token.requester)),
            "tokenId": token.token_id,
            "owner": sanitize(str(token.owner)),
            "expiryTimestamp": token.expires_ms,
            "maxTimestamp": token.ends_ms,
            "version": _VERSION,
        }
    )


def decode_token(token_id: str, data: bytes | None) -> DelegationToken | None:
    """The token of a node; None if the node is empty. Raises `InvalidZnodeError`."""
    if not data:
        return None
    fields = Fields(data, token_path(token_id))
    version = fields.integer("version")
    if not 1 <= version <= _VERSION:
        raise fields.invalid(f"has version {version}, which is not 1 to {_VERSION}")
    if fields.text("tokenId") != token_id:
        raise fields.invalid("holds a token with another id")
    owner = _principal(fields, fields.text("owner"))
    has_requester = version >= _REQUESTERS_FROM
    return DelegationToken(
        token_id,
        owner,
        _principal(fields, fields.text("tokenRequester")) if has_requester else owner,
        tuple(_principal(fields, each) for each in fields.items("renewers")),
        fields.integer("issueTimestamp", largest=INT64_MAX),
        fields.integer("maxTimestamp", largest=INT64_MAX),
        fields.integer("expiryTimestamp", largest=INT64_MAX),
    )


def _principal(fields: Fields, text: Json) -> KafkaPrincipal:
    kind, colon, name = desanitize(text).partition(":") if isinstance(text, str) else ("", "", "")
    if not (kind and colon and name):
        raise fields.invalid(f"has a principal that is not TYPE:NAME: {str(text)[:100]!r}")
    return KafkaPrincipal(kind, name)


def decode_change(path: str, data: bytes | None) -> str:
    """The token that a notification is about; `path` is its node. Raises `InvalidZnodeError`."""
    token_id = (data or b"").decode("utf-8", "replace")
    if _ID.fullmatch(token_id) is None:
        raise InvalidZnodeError(f"znode {path} names no delegation token: {token_id[:100]!r}")
    return token_id
