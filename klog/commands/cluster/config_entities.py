"""The options with which `klog configs` names the entities whose configs are meant, its own and Kafka's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klog.commands.shared.option_sets import argument, flag, option_set, optional, valued
from klog.commands.shared.usage import missing
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.configs import ConfigEntity, EntityType

_CHOICE: Final = (
    "TOPIC, --broker ID, --broker-defaults, --broker-logger ID, --group NAME or --client-metrics NAME"
)
_QUOTAS: Final = ("clients", "users", "ips")


@option_set("Entity")
class EntityOptions:
    """The entity whose configs are meant, also as kafka-configs names it."""

    name: str | None = argument("[TOPIC]", "Configs of a topic.")
    topic: str | None = valued("TOPIC", "The same.")
    broker: str | None = valued("ID", "Configs of a broker.")
    broker_defaults: bool = flag("Configs for all brokers of the cluster.")
    broker_logger: str | None = valued("ID", "Levels of a broker's loggers.")
    group: str | None = valued("GROUP", "Configs of a group (Kafka 4).")
    client_metrics: str | None = valued("NAME", "Which metrics clients send (KRaft).")
    entity_type: list[str] | None = valued(
        "TYPE", "As for kafka-configs: topics, brokers, broker-loggers, groups or client-metrics."
    )
    entity_name: list[str] | None = valued(
        "NAME", "As for kafka-configs; without a name all of the type are described."
    )
    entity_default: bool = flag("As for kafka-configs.")
    client: str | None = optional(None, "", hidden=True)
    client_defaults: bool = flag("", hidden=True)
    user: str | None = optional(None, "", hidden=True)
    user_defaults: bool = flag("", hidden=True)
    ip: str | None = optional(None, "", hidden=True)
    ip_defaults: bool = flag("", hidden=True)
    zookeeper: str | None = optional(None, "", hidden=True)
    controller: str | None = optional(None, "", "--bootstrap-controller", hidden=True)
    zookeeper_tls: str | None = optional(None, "", "--zk-tls-config-file", hidden=True)
    force: bool = flag("", hidden=True)

    def entity(self) -> ConfigEntity:
        """The entity that the options name. Raises UsageError, or typer's, unless it is exactly one."""
        entity_type, entity = self._named()
        if entity is None:
            raise UsageError(
                f"--entity-type {entity_type} needs an --entity-name",
                cure="--entity-default stands for all brokers",
            )
        return entity

    def entity_or_type(self) -> tuple[EntityType, ConfigEntity | None]:
        """The type, and the entity unless all of the type are meant. Raises as `entity`."""
        return self._named()

    def quota_parts(self) -> dict[str, str | None] | None:
        """The user, client or IP address that the options name, None if they name something else.

        Names are those of `Whose.parts`. Raises UsageError.
        """
        from klog.commands.cluster.quotas import Whose

        types = self.entity_type or []
        named = (self.user, self.client, self.ip)
        flags = (self.user_defaults, self.client_defaults, self.ip_defaults)
        if any(name not in _QUOTAS for name in types) or not (
            types or any(flags) or any(name is not None for name in named)
        ):
            return None
        if self.zookeeper or self.zookeeper_tls or self.controller:
            self._check_supported()
        return Whose(
            self.user,
            self.user_defaults,
            self.client,
            self.client_defaults,
            self.ip,
            self.ip_defaults,
            self.entity_type,
            self.entity_name,
            self.entity_default,
        ).parts()

    def _named(self) -> tuple[EntityType, ConfigEntity | None]:
        from klog.admin.configs import ConfigEntity, EntityType

        self._check_supported()
        found: list[ConfigEntity | None] = [
            ConfigEntity(entity_type, name)
            for entity_type, name in (
                (EntityType.TOPICS, self.name),
                (EntityType.TOPICS, self.topic),
                (EntityType.BROKERS, self.broker),
                (EntityType.BROKERS, "" if self.broker_defaults else None),
                (EntityType.BROKER_LOGGERS, self.broker_logger),
                (EntityType.GROUPS, self.group),
                (EntityType.CLIENT_METRICS, self.client_metrics),
            )
            if name is not None
        ]
        types = [EntityType(each) for each in self.entity_type or ()]
        found += [self._of_type(each) for each in types]
        if len(found) != 1:
            raise UsageError(f"more than one of {_CHOICE} is given") if found else missing(_CHOICE)
        entity = found[0]
        return (types[0] if entity is None else entity.type), entity

    def _of_type(self, entity_type: EntityType) -> ConfigEntity | None:
        from klog.admin.configs import ConfigEntity, EntityType

        names = self.entity_name or []
        if self.entity_default:
            if entity_type is not EntityType.BROKERS or names:
                raise UsageError("--entity-default stands for all brokers: --entity-type brokers")
            return ConfigEntity(entity_type, "")
        if len(names) > 1:
            raise UsageError("more than one --entity-name is given")
        return ConfigEntity(entity_type, names[0]) if names else None

    def _check_supported(self) -> None:
        """Raises UsageError for entities and ways to connect that klog does not have."""
        from klog.admin.configs import EntityType

        if self.zookeeper or self.zookeeper_tls or self.controller:
            raise UsageError(
                "klog configs talks to brokers, not to ZooKeeper or KRaft controllers",
                cure="--bootstrap-server HOST:PORT",
            )
        for name in self.entity_type or ():
            if name in _QUOTAS:
                raise UsageError(
                    f"configs of {name} are quotas and SCRAM credentials", cure="klog quotas, or klog users"
                )
            if name not in list(EntityType):
                raise UsageError(f"--entity-type {name} is unknown", cure=f"one of {', '.join(EntityType)}")
        flags = (self.user_defaults, self.client_defaults, self.ip_defaults)
        if any(flags) or any(name is not None for name in (self.user, self.client, self.ip)):
            raise UsageError(
                "configs of users, clients and ips are quotas and SCRAM credentials",
                cure="klog quotas, or klog users",
            )
        if (self.entity_name or self.entity_default) and not self.entity_type:
            raise missing("--entity-type")
