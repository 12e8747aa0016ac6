"""The interface of all drivers.

Whoever runs a driver asks it for the next step, carries it out, and tells the driver what came back. Between
two calls it carries out the effects that have gathered. As `Ready` of etcd's raft.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeAlias, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")

Effect: TypeAlias = Callable[[], object]
"""Reports to other parts what has happened; to be called without the lock that guards the driver."""


class Send(NamedTuple, Generic[Request]):
    """Send this request. Its answer, or its failure, is given to the driver, whenever it comes."""

    request: Request


class Wait(NamedTuple):
    """There is nothing to do until this time, or until `wake` is called; None: until `wake` is called."""

    until_ms: int | None


FOR_A_CALL = Wait(None)


class Driver(ABC, Generic[Request, Answer]):
    """Not safe for threads. Times are milliseconds of a clock that is never set back.

    While a request is under way, `next_step` may be called, and gives another request only if that one need
    not wait. `wake` is set by who runs the driver. The driver calls it when its next step may have changed by
    something else than an answer; it does not block, and may be called with locks held.
    """

    def __init__(self) -> None:
        self.wake: Callable[[], object] = _nobody
        self._effects: list[Effect] = []

    @abstractmethod
    def next_step(self, now_ms: int) -> Send[Request] | Wait:
        """What to do now."""

    @abstractmethod
    def answered(self, request: Request, answer: Answer, now_ms: int) -> None:
        """A request that `next_step` gave has its answer."""

    @abstractmethod
    def failed(self, request: Request, error: Exception, now_ms: int) -> None:
        """A request that `next_step` gave was not sent, or will have no answer: the connection is lost."""

    def take_effects(self) -> list[Effect]:
        """The effects since the last call, in their order."""
        effects, self._effects = self._effects, []
        return effects


def _nobody() -> None:
    """Nobody runs the driver yet: who does asks for the next step first."""
