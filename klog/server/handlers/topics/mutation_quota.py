"""Charges partitions that are created or deleted to the quota of controller mutations.

Rules: KIP-599. Versions from which on clients know THROTTLING_QUOTA_EXCEEDED are strict: a topic is refused
while the client is in debt. Older ones are always served, and only throttled.
"""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.refusals import RefusedError
from klog.server.network.request import Request

_STRICT_FROM = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
_NEVER = 2**15


def charge_mutations(request: Request, partitions: int) -> None:
    """Charges the partitions of one topic. Raises RefusedError; then nothing must be done."""
    charge = request.charge
    if charge is None:
        return
    strict = request.api_version >= _STRICT_FROM.get(ApiKey(request.api_key), _NEVER)
    if not charge.mutate(partitions, strict=strict):
        raise RefusedError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
