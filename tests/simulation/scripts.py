"""Clients written as generators: a script yields a question to a broker or a pause, and gets the answer."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from klog.formats.names import TopicPartition
from tests.simulation.network import REQUEST_TIMEOUT_MS, Answer

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker
    from tests.simulation.clients import Clients

FAILED: Final = object()
"""The answer to a question that was lost, or whose answer was."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Go on later."""

    for_ms: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the leader of a partition.

    What `may_arrive_late` may still arrive when the script has asked something else after a failure. The
    rest does not: nothing but the order of a connection's bytes keeps Kafka 3.9 from taking an EndTxn for the
    producer's next transaction (KIP-890, part 2, raises the epoch with each transaction and came later).
    """

    leader_of: TopicPartition
    handle: Callable[[SimulatedBroker, Answer], None]
    may_arrive_late: bool = False
    timeout_ms: int = REQUEST_TIMEOUT_MS


Script = Generator[Pause | Ask, Any, Any]


class Play:
    """Plays one script to its end."""

    def __init__(self, clients: Clients, script: Script) -> None:
        self._clients = clients
        self._script = script
        self._asked = 0
        self._go_on(None)

    def _go_on(self, answer: object) -> None:
        try:
            wanted = self._script.send(answer)
        except StopIteration:
            return
        if isinstance(wanted, Pause):
            self._clients.after(wanted.for_ms, lambda: self._go_on(None))
        else:
            self._ask(wanted)

    def _ask(self, wanted: Ask) -> None:
        clients = self._clients
        leader, _ = clients.leader(wanted.leader_of)
        self._asked += 1
        number = self._asked

        def handle(answer: Answer) -> None:
            if wanted.may_arrive_late or number == self._asked:
                wanted.handle(leader, answer)  # type: ignore[arg-type]

        clients.world.network.request(
            clients.process,
            None if leader is None else leader.process,
            handle,
            self._go_on,
            lambda: self._go_on(FAILED),
            wanted.timeout_ms,
        )
