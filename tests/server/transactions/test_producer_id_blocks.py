"""Producer ids come from the controller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from klog.formats.errors import KlogError
from klog.metadata.errors import MetadataError
from klog.metadata.values import ProducerIdBlock
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import RequestTimeoutError
from klog.server.transactions.producer_id_blocks import from_controller


class Controller:
    """A channel to a controller that answers at once."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    def send(self, api_key: int, build: Any, reply: Any, *, timeout_ms: int) -> None:
        assert (api_key, timeout_ms) == (ApiKey.ALLOCATE_PRODUCER_IDS, 5_000)
        self.asked.append(build(0))
        reply(self.answer)


def answer(error: int = ErrorCode.NONE, first: int = 3_000, count: int = 1_000) -> SimpleNamespace:
    return SimpleNamespace(error_code=error, producer_id_start=first, producer_id_len=count)


def test_the_controller_allocates_a_block_for_this_broker_and_its_epoch() -> None:
    controller = Controller(answer())
    outcomes: list[Any] = []
    from_controller(controller, 2, lambda: 77, 5_000)(outcomes.append)
    assert outcomes == [ProducerIdBlock(2, 3_000, 3_999)]
    (asked,) = controller.asked
    assert (asked.broker_id, asked.broker_epoch) == (2, 77)


@pytest.mark.parametrize(
    "given",
    [
        answer(ErrorCode.STALE_BROKER_EPOCH),
        answer(12_345),
        answer(count=0),
        answer(first=-1),
        RequestTimeoutError("too late"),
        KlogError("refused"),
    ],
)
def test_without_a_block_there_is_an_error_after_which_clients_try_again(given: Any) -> None:
    outcomes: list[Any] = []
    from_controller(Controller(given), 2, lambda: 77, 5_000)(outcomes.append)
    (outcome,) = outcomes
    assert isinstance(outcome, MetadataError)
    assert str(outcome).startswith("the controller allocate")
