"""A server.properties that is being translated: its lines, and each change in words.

Comments, order and the lines that stay are kept as they are. No value of a config is in a change's text,
except ids, roles, classes, protocols and listeners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from klog.config.broker import LISTENER_PREFIX
from klog.config.kraft_names import DEFAULTS, Default, reason_in
from klog.formats.java_properties import PropertyLine, entries, property_line


class Outcome(StrEnum):
    """What became of a config."""

    RENAMED = "renamed"
    CHANGED = "changed"
    DROPPED = "dropped"
    ADDED = "added"
    DEFAULT = "other default"
    DECIDE = "to be decided"


@dataclass(frozen=True, slots=True)
class Change:
    """One change, in words. `text` never holds a secret."""

    name: str
    outcome: Outcome
    text: str


@dataclass(frozen=True, slots=True)
class Translation:
    """The lines of the new file, and what is different in it."""

    lines: tuple[PropertyLine, ...]
    changes: tuple[Change, ...]

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left that a person has to decide before a node starts with the file."""
        return all(each.outcome is not Outcome.DECIDE for each in self.changes)


@dataclass
class Draft:
    """A file that is being changed."""

    lines: list[PropertyLine]
    changes: list[Change] = field(default_factory=list)
    added: list[PropertyLine] = field(default_factory=list)

    @property
    def values(self) -> dict[str, str]:
        return entries((*self.lines, *self.added))

    def note(self, name: str, outcome: Outcome, text: str) -> None:
        self.changes.append(Change(name, outcome, text))

    def drop(self, name: str, reason: str) -> None:
        self.lines = [each for each in self.lines if each.key != name]
        self.note(name, Outcome.DROPPED, reason)

    def change(self, name: str, value: str, reason: str) -> None:
        self._replace(name, ((name, value),))
        self.note(name, Outcome.CHANGED, reason)

    def rename(self, name: str, new: Sequence[str], reason: str) -> None:
        """Puts configs of the same value in the place of one, unless they are there."""
        values = self.values
        self._replace(name, [(each, values[name]) for each in new if each not in values])
        self.note(name, Outcome.RENAMED, reason)

    def add(self, name: str, value: str, reason: str) -> None:
        self.added.append(_line(name, value))
        self.note(name, Outcome.ADDED, reason)

    def set(self, name: str, value: str, reason: str) -> None:
        """Changes a config, or adds it."""
        (self.change if name in self.values else self.add)(name, value, reason)

    def _replace(self, name: str, new: Sequence[tuple[str, str]]) -> None:
        """Puts lines in the place of the last one of a name, which is the one that counts."""
        last = max((at for at, line in enumerate(self.lines) if line.key == name), default=None)
        found = []
        for at, line in enumerate(self.lines):
            if line.key != name:
                found.append(line)
            elif at == last:
                found += [_line(*each) for each in new]
        self.lines = found

    def finished(self, title: str) -> Translation:
        lines = self.lines
        if self.added:
            if lines and not lines[-1].raw.endswith(("\n", "\r")):
                lines[-1] = lines[-1]._replace(raw=lines[-1].raw + "\n")
            lines = [*lines, PropertyLine(f"\n# {title}\n"), *self.added]
        return Translation(tuple(lines), tuple(self.changes))


def _line(name: str, value: str) -> PropertyLine:
    """A line as people write it, if Java reads it so; else escaped."""
    is_plain = value.isascii() and value.isprintable() and "\\" not in value and value == value.strip()
    return PropertyLine(f"{name}={value}\n", name, value) if is_plain else property_line(name, value)


def is_of_kraft(values: Mapping[str, str]) -> bool:
    """Whether configs are those of a KRaft node."""
    return bool(values.get("process.roles", "").strip())


def drop_all(draft: Draft, tables: Sequence[Mapping[str, str]]) -> None:
    """Drops the configs of tables, those of one listener, too."""
    for name in draft.values:
        own = LISTENER_PREFIX.sub("", name)
        reason = next(filter(None, (reason_in(table, own) for table in tables)), None)
        if reason is not None:
            draft.drop(name, reason)


def split(text: str) -> list[str]:
    """The members of a list."""
    return [each.strip() for each in text.split(",") if each.strip()]


def pair(text: str) -> tuple[str, str]:
    """A listener and its protocol."""
    name, _, value = text.partition(":")
    return name.strip(), value.strip()


def without(text: str, names: set[str]) -> list[str]:
    """The members of a list that begin with none of the names of listeners."""
    return [each for each in split(text) if each.partition(":")[0].strip() not in names]


def set_listeners(draft: Draft, name: str, endpoints: Sequence[str], reason: str) -> None:
    """Changes a list of listeners if it is another one."""
    if list(endpoints) == split(draft.values[name]):
        return
    if endpoints:
        draft.change(name, ",".join(endpoints), reason)
    else:
        draft.drop(name, reason)


def drop_mapping(draft: Draft, listeners: set[str]) -> None:
    """Drops the security protocols of listeners that are gone."""
    name = "listener.security.protocol.map"
    if name in draft.values:
        set_listeners(
            draft, name, without(draft.values[name], listeners), f"without {', '.join(sorted(listeners))}"
        )


def changed_defaults(
    draft: Draft, text: Callable[[Default], str], without: Sequence[Mapping[str, str]] = ()
) -> None:
    """Names the configs that are not set and have another default now. Those in tables `without` are none."""
    values = draft.values
    for name, default in DEFAULTS.items():
        if name not in values and all(reason_in(table, name) is None for table in without):
            draft.note(name, Outcome.DEFAULT, text(default))
