"""Applies changes of configs in the tree, which the notes of `/config/changes` announce.

Rules: Kafka's ZkConfigManager with its TopicConfigHandler and BrokerConfigHandler. Topic configs go to the
logs of the topic, dynamic broker configs to the broker's own `BrokerConfig`, configs of groups to their
coordinator. Configs of clients, users and
ips are quotas, which are not handled here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from klog.config.broker import BrokerConfig
from klog.config.broker_protection import UnenforcedConfigError
from klog.config.dynamic import applicable, decoded, reencrypted
from klog.formats.errors import KlogError, UsageError
from klog.metadata.configs import change_config, read_config, valid_configs
from klog.metadata.errors import InvalidZnodeError
from klog.metadata.paths import DEFAULT_ENTITY
from klog.metadata.store import MetadataStore
from klog.metadata.znodes import desanitize

_log = logging.getLogger(__name__)

_UNCLEAN: Final = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class ConfigChanges:
    """Reads configs again when a note names their entity.

    `replace` gets the broker's configs after a change, or, though they are the same, when somebody has set
    them again: files that they name may have changed. It raises `KlogError` where it leaves everything as it
    was. `topic_changed` and `group_changed` get a topic or a group with its overrides, and raise `UsageError`
    where they have a bad value. `unclean_enabled` gets a topic (or, with None, of the default) that now
    allows unclean elections.
    """

    broker_id: int
    store: MetadataStore
    config: Callable[[], BrokerConfig]
    replace: Callable[[BrokerConfig], None]
    topic_changed: Callable[[str, Mapping[str, str]], None]
    group_changed: Callable[[str, Mapping[str, str]], None]
    unclean_enabled: Callable[[str | None], None]

    def renew_secrets(self) -> None:
        """Writes the secrets that were encrypted with `password.encoder.old.secret` with the new one.

        Raises `UsageError` when there is no new one.
        """
        path = f"brokers/{self.broker_id}"
        stored = read_config(self.store, path)
        renewed = reencrypted(stored, self.config())
        if renewed != stored:
            change_config(self.store, path, renewed)

    def load(self, *, at_start: bool = False) -> None:
        """The dynamic configs of brokers and groups as in the tree: at the start, and in a new session.

        At the start, raises `UnenforcedConfigError` for one that protects something and is not enforced.
        """
        self._read_brokers(DEFAULT_ENTITY, set_again=False, at_start=at_start)
        self._read_brokers(str(self.broker_id), set_again=False, at_start=at_start)
        self._read_groups()

    def _read_groups(self) -> None:
        configs, invalid = valid_configs(self.store, "groups")
        refused: dict[str, KlogError] = {**invalid}
        for group_id, overrides in configs.items():
            try:
                self.group_changed(group_id, overrides)
            except UsageError as error:
                refused[group_id] = error
        for group_id, why in refused.items():
            _log.error("The configs of group %s are ignored: %s", group_id, why)

    def on_change(self, entity_path: str) -> None:
        """A note has come: `topics/t1`, `brokers/0`, `brokers/<default>`."""
        kind, _, name = entity_path.partition("/")
        try:
            if kind == "topics" and name:
                self._read_topic(desanitize(name))
            elif kind == "groups" and name:
                self.group_changed(desanitize(name), read_config(self.store, entity_path))
            elif kind == "brokers" and name in (DEFAULT_ENTITY, str(self.broker_id)):
                self._read_brokers(name, set_again=True)
        except (InvalidZnodeError, UsageError) as error:
            _log.error("The configs of %s stay as they are: %s", entity_path, error)

    def _read_topic(self, topic: str) -> None:
        overrides = read_config(self.store, f"topics/{topic}")
        self.topic_changed(topic, overrides)
        if overrides.get(_UNCLEAN, "").strip().lower() == "true":
            self.unclean_enabled(topic)

    def _read_brokers(self, name: str, *, set_again: bool, at_start: bool = False) -> None:
        per_broker = name != DEFAULT_ENTITY
        old = self.config()
        texts, unreadable = decoded(read_config(self.store, f"brokers/{name}"), old)
        for secret, why in unreadable.items():
            _log.error("The secret in %s of brokers/%s cannot be read: %s", secret, name, why)
        kept, passed_over = applicable(texts, per_broker=per_broker)
        if passed_over:
            _log.error("Dynamic configs of brokers/%s are ignored: %s", name, ", ".join(sorted(passed_over)))
        try:
            new = old.changed(per_broker=kept) if per_broker else old.changed(cluster=kept)
            if new != old or set_again:
                self.replace(new)
        except KlogError as error:
            if at_start and isinstance(error, UnenforcedConfigError):
                raise
            _log.error("The configs of brokers/%s stay as they are: %s", name, error)
            return
        if new.flag(_UNCLEAN) and not old.flag(_UNCLEAN):
            self.unclean_enabled(None)
