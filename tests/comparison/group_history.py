"""A random history of requests of groups, from a seed, that two brokers must answer alike.

What is played next depends on the answers so far, which are equal. Left out is what Kafka itself decides by
the order of a hash table, because members have random ids: who leads after the leader has gone and two or
more members are left, and which protocol wins of two with as many votes.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from tests.comparison import group_requests as requests
from tests.comparison.group_model import MAX_SIZE, TOPICS, GroupModel, subscription, version_of
from tests.comparison.group_requests import Commit, Identity
from tests.comparison.messages import Ask
from tests.comparison.pair import Pair

_UNKNOWN_MEMBER: Final = "nobody"
_GROUPS: Final = ("a", "b", "c", "d", "Ünï")
_EMPTY: Final = ("Empty", "Dead")
_MAY_REBALANCE: Final = ("Stable", "CompletingRebalance")


def _is_settled(answer: Any) -> bool:
    (group,) = answer["groups"]
    return bool(group["members"]) or group["group_state"] != "PreparingRebalance"


class GroupHistory:
    """Plays requests to a pair of brokers."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self.pair = pair
        self.chance = random.Random(seed)
        self.groups = [GroupModel(f"{name}{seed}") for name in _GROUPS]
        self.refused = 0
        self._numbers = itertools.count(1)
        self._asked: dict[str, tuple[GroupModel, Ask]] = {}
        self._actions: list[tuple[int, Callable[[GroupModel], None]]] = [
            (14, self._advance),
            (4, self._join_new),
            (2, self._join_static),
            (2, self._rejoin),
            (2, self._join_wrongly),
            (3, self._sync_any),
            (4, self._heartbeat),
            (2, self._leave),
            (1, self._leave_wrongly),
            (8, self._commit),
            (5, self._fetch),
            (1, self._delete_offsets),
            (1, self._delete_groups),
            (1, self._list),
            (1, self._describe),
            (1, self._find_coordinator),
            (1, self._ask_twice),
        ]

    def play(self, requests_count: int) -> None:
        """Plays until so many requests were compared."""
        weights = [weight for weight, _ in self._actions]
        while self.pair.steps < requests_count:
            ((_, action),) = self.chance.choices(self._actions, weights)
            action(self.chance.choice(self.groups))

    # -- playing ---------------------------------------------------------------------------------------------

    def _version(self, api: ApiKey, first: int = 0) -> int:
        return version_of(self.chance, api, first)

    def connection(self, wanted: str | None = None) -> str:
        """The connection of a member, if it does not wait; otherwise a new one."""
        if wanted is not None and wanted not in self.pair.waiting():
            return wanted
        return f"client{next(self._numbers)}"

    def send(self, group: GroupModel, ask: Ask, name: str, *, is_answered: bool = False) -> None:
        """Plays a request that may have to wait; afterwards both describe the group alike."""
        self._asked[name] = group, ask
        self.take(self.pair.send(name, ask, is_answered=is_answered))
        self.look_at(group)

    def take(self, answers: dict[str, Any]) -> None:
        """Learns from answers."""
        for name, answer in answers.items():
            group, ask = self._asked.pop(name)
            self.refused += bool(answer.get("error_code"))
            if ask.api is ApiKey.JOIN_GROUP:
                self._take_join(group, ask, name, answer)

    def _take_join(self, group: GroupModel, ask: Ask, name: str, answer: dict[str, Any]) -> None:
        member_id, error = answer["member_id"], answer["error_code"]
        if error == ErrorCode.MEMBER_ID_REQUIRED:
            group.pending[member_id] = name
        elif not error:
            instance_id = ask.values["group_instance_id"] if ask.version >= 5 else None
            replaced = [each for each, of in group.members.items() if of == instance_id and of is not None]
            group.generation, group.protocol_name = answer["generation_id"], answer["protocol_name"]
            if group.leader in replaced and answer["leader"] in replaced:
                group.leader = member_id  # older versions are told the leader's old id
            else:
                group.leader = answer["leader"]
            group.homes[member_id] = name
            group.pending.pop(member_id, None)

    def look_at(self, group: GroupModel) -> None:
        """Both describe the group alike."""
        version = self._version(ApiKey.DESCRIBE_GROUPS, 4)
        asked = requests.describe(version, group.name, operations=self.chance.random() < 0.2)
        # If the only member begins a rebalance by leaving while others have got ids, its timeout is 0, as of
        # no member. Both brokers end it a moment later.
        may_end = group.pending and len(group.members) == 1 and group.state in _MAY_REBALANCE
        answer = self.pair.settle(asked, _is_settled) if may_end else self.pair.ask(asked)
        group.learn(answer["groups"][0])

    def ask(self, ask: Ask) -> dict[str, Any]:
        """Plays a request that never waits."""
        answer: dict[str, Any] = self.pair.ask(ask, "asking")
        self.refused += bool(answer.get("error_code"))
        return answer

    # -- joining ---------------------------------------------------------------------------------------------

    def protocols(self) -> requests.Protocols:
        """In one order, so that all members vote for the same of those that all have."""
        metadata = self.chance.choice(
            (subscription("t1"), subscription("t1", "t2"), subscription(), b"", self.chance.randbytes(4))
        )
        names = self.chance.choice((("range",), ("range", "sticky"), ("range", "roundrobin", "sticky")))
        return [(name, metadata + bytes([number])) for number, name in enumerate(names)]

    def join(
        self, group: GroupModel, member_id: str = "", name: str | None = None, first: int = 0, **more: Any
    ) -> None:
        version = self._version(ApiKey.JOIN_GROUP, first)
        protocols = more.pop("protocols", None) or self.protocols()
        ask = requests.join(version, group.name, member_id, protocols, **more)
        self.send(group, ask, self.connection(name), is_answered=group.state in _EMPTY)

    def _has_room(self, group: GroupModel) -> bool:
        # Who is refused because of the group's size is removed; it may lead.
        full = len(group.members) + len(group.pending) >= MAX_SIZE
        return not full or group.state in ("Stable", "CompletingRebalance")

    def _join_new(self, group: GroupModel) -> None:
        if self._has_room(group):
            self.join(group)

    def _join_static(self, group: GroupModel) -> None:
        instance_id = self.chance.choice(("first", "second"))
        if self._has_room(group) or instance_id in group.members.values():
            self.join(group, first=5, instance_id=f"{group.name}-{instance_id}")

    def _rejoin(self, group: GroupModel) -> None:
        if group.members:
            member_id = self.chance.choice(list(group.members))
            self._rejoin_as(group, member_id)

    def _rejoin_as(self, group: GroupModel, member_id: str) -> None:
        instance_id = group.members[member_id]
        if instance_id is not None and self.chance.random() < 0.8:
            self.join(group, member_id, group.homes[member_id], 5, instance_id=instance_id)
        else:
            self.join(group, member_id, group.homes[member_id])

    def _join_wrongly(self, group: GroupModel) -> None:
        member_id = self.chance.choice([_UNKNOWN_MEMBER, "", *group.members])
        wrong: dict[str, Any] = self.chance.choice(
            (
                {"session": timedelta(milliseconds=1)},
                {"session": timedelta(days=2)},
                {"protocol_type": "connect"},
                {"protocol_type": ""},
                {"protocols": [("other", b"x")]},
                {"instance_id": "who", "first": 5},
                {"instance_id": f"{group.name}-first", "first": 5},
                {},
            )
        )
        if group.state in _EMPTY and member_id == "":
            wrong = {"session": timedelta(0)}  # anything else would be right here
        if not wrong and member_id == "":
            wrong = {"protocol_type": "connect"}
        if "instance_id" in wrong and member_id == "":
            member_id = _UNKNOWN_MEMBER
        if not wrong and member_id in group.members:
            member_id = _UNKNOWN_MEMBER
        if self.chance.random() < 0.1:
            ask = requests.join(self._version(ApiKey.JOIN_GROUP), "", member_id)
            self.send(group, ask, self.connection(), is_answered=True)
        else:
            self.join(group, member_id, **wrong)

    def _ask_twice(self, group: GroupModel) -> None:
        """A member that waits asks again on another connection; the first request is never answered."""
        waits = self.pair.waiting()
        waiting = [each for each in group.members if group.homes[each] in waits]
        if not waiting or group.state not in ("PreparingRebalance", "CompletingRebalance"):
            return
        member_id = self.chance.choice(waiting)
        if group.state == "PreparingRebalance":
            name = self.connection()
            group.homes[member_id] = name
            self.join(group, member_id, name)
        else:
            self._sync_as(group, member_id)

    # -- generations -----------------------------------------------------------------------------------------

    def _advance(self, group: GroupModel) -> None:
        """Brings a group nearer to its next generation."""
        waits = self.pair.waiting()
        idle = [each for each in group.members if group.homes[each] not in waits]
        if group.state == "PreparingRebalance" and idle:
            self._rejoin_as(group, self.chance.choice(idle))
        elif group.state == "PreparingRebalance" and group.pending:
            member_id = self.chance.choice(list(group.pending))
            self.join(group, member_id, group.pending[member_id])
        elif group.state == "CompletingRebalance" and idle:
            self._sync_as(group, self.chance.choice(idle))
        elif group.state == "Stable":
            self._sync_any(group)
        else:
            self._join_new(group)

    def _sync_as(self, group: GroupModel, member_id: str, **wrong: Any) -> None:
        instance_id = group.members.get(member_id)
        version = self._version(ApiKey.SYNC_GROUP, 3 if instance_id is not None else 0)
        right = Identity(member_id, group.generation, instance_id)
        who = right._replace(**wrong.pop("who", {}))
        assignments = {}
        if member_id == group.leader:
            assignments = {each: f"for {each}".encode() for each in group.members}
            if self.chance.random() < 0.2:
                assignments.pop(self.chance.choice(list(assignments)), None)
                assignments[_UNKNOWN_MEMBER] = b"lost"
        protocol = {"protocol_name": group.protocol_name, **wrong}
        name = self.connection(group.homes.get(member_id))
        # A protocol that is not given is not wrong: then the member waits here, too.
        if member_id in group.members and who == right and not any(wrong.values()):
            group.homes[member_id] = name
        self.send(group, requests.sync(version, group.name, who, assignments, **protocol), name)

    def _sync_any(self, group: GroupModel) -> None:
        wrong: dict[str, Any] = self.chance.choice(
            (
                {"who": {"generation_id": group.generation + 1}},
                {"who": {"generation_id": group.generation - 1}},
                {"who": {"member_id": _UNKNOWN_MEMBER}},
                {"who": {"instance_id": "who"}},
                {"protocol_type": "connect"},
                {"protocol_name": "other"},
                {"protocol_name": None},
                {"protocol_type": None},
                {},
            )
        )
        members = list(group.members) or [_UNKNOWN_MEMBER]
        if group.state == "Stable" or wrong:
            self._sync_as(group, self.chance.choice(members), **wrong)

    def identity(self, group: GroupModel) -> Identity:
        """Somebody: often a member, sometimes wrong in one field."""
        if not group.members:
            return self.chance.choice(
                (Identity(), Identity(_UNKNOWN_MEMBER, 1), Identity("", 0), Identity("", 3))
            )
        member_id = self.chance.choice(list(group.members))
        right = Identity(member_id, group.generation, group.members[member_id])
        wrong: dict[str, Any] = self.chance.choice(
            (
                {},
                {},
                {},
                {"generation_id": group.generation + self.chance.choice((-1, 1))},
                {"generation_id": -1},
                {"member_id": _UNKNOWN_MEMBER},
                {"member_id": ""},
                {"instance_id": "who"},
                {"instance_id": None},
                {"instance_id": f"{group.name}-first"},
                {"member_id": "", "generation_id": -1, "instance_id": None},
            )
        )
        return right._replace(**wrong)

    def _heartbeat(self, group: GroupModel) -> None:
        name = group.name if self.chance.random() < 0.95 else self.chance.choice(("", "unknown"))
        self.ask(requests.heartbeat(self._version(ApiKey.HEARTBEAT), name, self.identity(group)))

    # -- leaving ---------------------------------------------------------------------------------------------

    def _leave(self, group: GroupModel) -> None:
        candidates = [each for each in group.members if group.may_lose(each)]
        if group.state == "CompletingRebalance":
            # Kafka never answers the SyncGroup of a member that is removed meanwhile.
            waits = self.pair.waiting()
            candidates = [each for each in candidates if group.homes[each] not in waits]
        leaving = self.chance.sample(candidates, min(len(candidates), self.chance.choice((1, 1, 2))))
        if len(leaving) > 1 and not group.may_lose(*leaving):
            leaving = leaving[:1]
        version = self._version(ApiKey.LEAVE_GROUP)
        if version < 3:
            leaving = leaving[:1]
        if leaving:
            entries = [self._leaving(group, each, version) for each in leaving]
            self._leave_with(group, version, entries)

    def _leaving(self, group: GroupModel, member_id: str, version: int) -> tuple[str, str | None]:
        instance_id = group.members[member_id]
        if instance_id is None or version < 3:
            return member_id, None
        return self.chance.choice(((member_id, instance_id), ("", instance_id), (member_id, None)))

    def _leave_with(self, group: GroupModel, version: int, entries: list[tuple[str, str | None]]) -> None:
        self.send(
            group, requests.leave(version, group.name, *entries), self.connection("leaving"), is_answered=True
        )

    def _leave_wrongly(self, group: GroupModel) -> None:
        entries: list[tuple[str, str | None]] = [("", None), (_UNKNOWN_MEMBER, None), ("", "who")]
        if group.members:
            entries.append((self.chance.choice(list(group.members)), "who"))
        if group.pending:
            member_id = self.chance.choice(list(group.pending))
            del group.pending[member_id]
            entries.append((member_id, None))
        version = self._version(ApiKey.LEAVE_GROUP)
        self._leave_with(group, version, entries if version >= 3 else [("", None)])

    # -- offsets ---------------------------------------------------------------------------------------------

    def _partition(self) -> tuple[str, int]:
        topic = self.chance.choice(("t1", "t1", "t2", "absent", "a/b", ""))
        return topic, self.chance.choice((0, 0, 0, 1, 2, 7, -1))

    def _commits(self) -> list[Commit]:
        """Of the partitions that exist, one may be named twice."""
        commits = [
            Commit(
                *self._partition(),
                offset=self.chance.choice((0, 5, 2**62, -1, -7, self.chance.randrange(10**6))),
                metadata=self.chance.choice((None, "", "note", "é" * 4096, "é" * 4097, "\U0001f600" * 2048)),
                leader_epoch=self.chance.choice((-1, 0, 3)),
            )
            for _ in range(self.chance.choice((1, 1, 2, 4, 0)))
        ]
        unknown = {each[:2]: each for each in commits if not 0 <= each.partition < TOPICS.get(each.topic, 0)}
        return [each for each in commits if each[:2] not in unknown] + list(unknown.values())

    def _commit(self, group: GroupModel) -> None:
        version = self._version(ApiKey.OFFSET_COMMIT)
        who = self.identity(group)
        name = group.name if self.chance.random() < 0.9 else self.chance.choice(("", "simple", "gone"))
        retention = self.chance.choice((requests.NO_TIME, requests.LONG))
        self.ask(requests.commit(version, name, who, self._commits(), retention))
        self.look_at(group)
        self._fetch(group)

    def _wanted(self) -> dict[str, tuple[int, ...]] | None:
        if self.chance.random() < 0.3:
            return None
        found: dict[str, tuple[int, ...]] = {}
        for _ in range(self.chance.choice((0, 1, 3))):
            topic, number = self._partition()
            found[topic] = tuple(sorted({*found.get(topic, ()), number}))
        return found

    def _fetch(self, group: GroupModel) -> None:
        version = self._version(ApiKey.OFFSET_FETCH)
        names = [group.name, *self.chance.sample(("", "simple", "unknown", self.groups[0].name), 2)]
        if version < 8:
            names = [self.chance.choice((group.name, group.name, *names))]
        groups = {name: self._wanted() for name in names}
        if version < 2:
            groups = {name: wanted or {} for name, wanted in groups.items()}
        self.ask(requests.fetch(version, groups, require_stable=self.chance.random() < 0.5))

    def _delete_offsets(self, group: GroupModel) -> None:
        name = self.chance.choice((group.name, group.name, "simple", "unknown", ""))
        self.ask(requests.delete_offsets(name, self._wanted() or {"t1": (0, 1)}))
        self.look_at(group)

    # -- administration --------------------------------------------------------------------------------------

    def _delete_groups(self, group: GroupModel) -> None:
        names = self.chance.sample((group.name, "simple", "unknown", "", "gone"), 2)
        self.ask(requests.delete_groups(self._version(ApiKey.DELETE_GROUPS), *names, names[0]))
        self.look_at(group)
        if group.state == "Dead":
            group.pending.clear()

    def _list(self, group: GroupModel) -> None:
        states = self.chance.choice(((), (), ("Stable",), ("empty", "DEAD"), ("nonsense",), (group.state,)))
        types = self.chance.choice(((), (), ("classic",), ("Consumer",), ("nonsense",)))
        self.ask(requests.list_groups(self._version(ApiKey.LIST_GROUPS), states, types))

    def _describe(self, group: GroupModel) -> None:
        names = self.chance.choice((("unknown", group.name, "simple"), (), ("",), (group.name,) * 2))
        version = self._version(ApiKey.DESCRIBE_GROUPS)
        self.ask(requests.describe(version, *names, operations=self.chance.random() < 0.5))

    def _find_coordinator(self, group: GroupModel) -> None:
        version = self._version(ApiKey.FIND_COORDINATOR)
        kind = self.chance.choice((0, 0, 0, 2, 3, -1))
        keys = (group.name, "", "other")[: self.chance.choice((1, 3)) if version >= 4 else 1]
        self.ask(requests.find_coordinator(version, kind, *keys))
