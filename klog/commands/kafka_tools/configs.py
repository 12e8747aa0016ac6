"""Prints configs as `kafka-configs` of Kafka 3.9 does, for scripts that read its output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from klog.admin.configs import SOURCES_OF_ENTITIES, ConfigEntity, ConfigEntry, EntityType

_DEFAULT_SOURCE = "DYNAMIC_DEFAULT_BROKER_CONFIG"


def is_shown(entity: ConfigEntity, entry: ConfigEntry) -> bool:
    """Whether `--describe` without `--all` shows a config: only what was set for just this entity."""
    if entity.type is EntityType.BROKER_LOGGERS:
        return True
    return entry.source == (SOURCES_OF_ENTITIES[entity.type] if entity.name else _DEFAULT_SOURCE)


def described(entity: ConfigEntity, entries: Iterable[ConfigEntry], *, show_all: bool) -> Iterator[str]:
    """The lines of `--describe` about one entity."""
    if entity.name:
        kind = entity.type.value.removesuffix("s")
        yield f"{'All' if show_all else 'Dynamic'} configs for {kind} {entity.name} are:"
    else:
        yield f"Default configs for {entity.type.value} in the cluster are:"
    for entry in entries:
        if show_all or is_shown(entity, entry):
            yield _line(entry)


def _line(entry: ConfigEntry) -> str:
    synonyms = ", ".join(f"{each.source}:{each.name}={_shown(each.value)}" for each in entry.synonyms)
    sensitive = str(entry.is_sensitive).lower()
    return f"  {entry.name}={_shown(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _shown(value: str | None) -> str:
    return "null" if value is None else value


def changed(entity: ConfigEntity) -> str:
    """The line after `--alter`."""
    if not entity.name:
        return f"Completed updating default config for {entity.type.value} in the cluster."
    return f"Completed updating config for {entity.type.value.removesuffix('s')} {entity.name}."
