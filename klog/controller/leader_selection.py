"""Decides who becomes leader and who stays in the ISR. All of Kafka's rules pick in assignment order.

The functions are pure. They take assignment, ISR and liveness, and return a choice, or None without a
candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from klog.controller.context import ControllerContext
from klog.formats.names import TopicPartition
from klog.metadata.values import LeaderAndIsr

IsOnline = Callable[[int], bool]


class Strategy(Enum):
    """The reason for which a leader is elected."""

    OFFLINE = "offline partition"
    UNCLEAN = "offline partition, unclean if necessary"
    PREFERRED = "preferred replica"
    REASSIGN = "reassigned partition"
    CONTROLLED_SHUTDOWN = "controlled shutdown"


class Choice(NamedTuple):
    """A new leader and ISR. `unclean`: the leader was not in sync, so records may be lost."""

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False


@dataclass(frozen=True, slots=True)
class Election:
    """The outcome for one partition: its next state (None without a candidate) and the replicas to send it
    to.

    `unclean` has the meaning that it has in `Choice`.
    """

    state: LeaderAndIsr | None
    recipients: tuple[int, ...]
    unclean: bool = False


def for_new(assignment: Sequence[int], is_online: IsOnline) -> Choice | None:
    """The first live replica leads.

    All live replicas are in sync, because the partition has no records yet.
    """
    live = tuple(each for each in assignment if is_online(each))
    return Choice(live[0], live) if live else None


def for_offline(
    assignment: Sequence[int], isr: Sequence[int], is_online: IsOnline, *, allow_unclean: bool
) -> Choice | None:
    """The first live replica in the ISR.

    If there is none and unclean elections are allowed, the first live one.
    """
    clean = _first(assignment, lambda each: is_online(each) and each in isr)
    if clean is not None:
        return Choice(clean, tuple(each for each in isr if is_online(each)))
    unclean = _first(assignment, is_online) if allow_unclean else None
    return None if unclean is None else Choice(unclean, (unclean,), unclean=True)


def for_preferred(assignment: Sequence[int], isr: Sequence[int], is_online: IsOnline) -> Choice | None:
    """The first replica of the assignment, if it is live and in the ISR."""
    return for_reassigned(assignment[:1], isr, is_online)


def for_reassigned(target: Sequence[int], isr: Sequence[int], is_online: IsOnline) -> Choice | None:
    """The first of the target replicas that is live and in the ISR."""
    leader = _first(target, lambda each: is_online(each) and each in isr)
    return None if leader is None else Choice(leader, tuple(isr))


def for_controlled_shutdown(
    assignment: Sequence[int], isr: Sequence[int], is_online: IsOnline, is_shutting_down: IsOnline
) -> Choice | None:
    """The first live replica in the ISR that does not shut down. Those that shut down leave the ISR."""
    leader = _first(assignment, lambda each: is_online(each) and each in isr and not is_shutting_down(each))
    staying = tuple(each for each in isr if not is_shutting_down(each))
    return None if leader is None else Choice(leader, staying)


def _first(candidates: Sequence[int], accept: IsOnline) -> int | None:
    return next((each for each in candidates if accept(each)), None)


def elect(
    context: ControllerContext, partition: TopicPartition, current: LeaderAndIsr, strategy: Strategy
) -> Election:
    """Applies the rule of `strategy` to a partition."""
    include_shutting_down = strategy is Strategy.CONTROLLED_SHUTDOWN
    assignment = context.assignment(partition)
    replicas, isr = assignment.replicas, current.isr

    def is_online(broker_id: int) -> bool:
        return context.is_replica_online(broker_id, partition, include_shutting_down=include_shutting_down)

    match strategy:
        case Strategy.OFFLINE | Strategy.UNCLEAN:
            unclean = strategy is Strategy.UNCLEAN
            choice = for_offline(replicas, isr, is_online, allow_unclean=unclean)
        case Strategy.PREFERRED:
            choice = for_preferred(replicas, isr, is_online)
        case Strategy.REASSIGN:
            choice = for_reassigned(assignment.target, isr, is_online)
        case Strategy.CONTROLLED_SHUTDOWN:
            choice = for_controlled_shutdown(
                replicas, isr, is_online, lambda each: each in context.shutting_down
            )
    recipients = tuple(each for each in replicas if is_online(each))
    if choice is None:
        return Election(None, recipients)
    state = current.next_epoch(choice.leader, choice.isr, choice.unclean)
    return Election(state, recipients, choice.unclean)
