"""UpdateFeatures: refuses every update, as Kafka 3.9 with ZooKeeper, where no broker supports any feature.

Rules: Kafka's `KafkaController.validateFeatureUpdate`, `BrokerFeatures.createEmpty`; KIP-584. A feature that
no broker supports cannot have been finalized either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.answers import entity_of, send_answer
from klog.server.handlers.refusals import NOT_CONTROLLER, error_fields
from klog.server.network.request import Request


class UpgradeType(IntEnum):
    """What an update may do: raise a level, lower it without a loss, or with one."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class UpdateFeaturesHandler:
    """Answers UpdateFeatures requests."""

    is_controller: Callable[[], bool]

    def handle(self, request: Request) -> None:
        """Answer why each feature is not updated."""
        if not self.is_controller():
            send_answer(request, **error_fields(NOT_CONTROLLER), results=())
            return
        # Kafka looks updates up by name, so that the first of a name counts.
        updates = {each.feature: each for each in reversed(entity_of(request).feature_updates)}
        results = [
            {"feature": name, "error_code": ErrorCode.INVALID_REQUEST, "error_message": _refusal(each)}
            for name, each in updates.items()
        ]
        send_answer(request, error_code=ErrorCode.NONE, error_message=None, results=results)


def _refusal(update: Entity) -> str:
    upgrade_type = _type_of(update)
    if not update.feature:
        return "Feature name can not be empty."
    if upgrade_type is None:
        return "Received unknown upgrade type."
    if update.max_version_level >= 1:
        return "Could not apply finalized feature update because the provided feature is not supported."
    if upgrade_type is not UpgradeType.UPGRADE:
        return "Can not delete non-existing finalized feature."
    return (
        f"Can not provide versionLevel: {update.max_version_level} less than 1 without setting the SAFE"
        " downgradeType in the request."
    )


def _type_of(update: Entity) -> UpgradeType | None:
    """None for an unknown one. Version 0 says only whether the level may be lowered."""
    if not hasattr(update, "upgrade_type"):
        return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    return UpgradeType(update.upgrade_type) if update.upgrade_type in list(UpgradeType) else None
