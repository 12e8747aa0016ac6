"""Puts guards before the handlers of all requests that need a right.

Produce, Fetch and Metadata check rights in their handlers, because they have fast paths or answers that are
kept. ApiVersions and the requests of SASL need no right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from klog.formats.names import PartitionKey
from klog.metadata.cache import MetadataCache
from klog.server.handlers.access import Access
from klog.server.handlers.dispatch import Route
from klog.server.handlers.guards import cluster, groups
from klog.server.handlers.guards.topics import topic_guards
from klog.server.handlers.guards.transactions import transaction_guards
from klog.server.handlers.guards.verdicts import guarded


def guard_routes(
    routes: Mapping[int, Route],
    access: Access,
    cache: MetadataCache,
    is_controller: Callable[[], bool],
    may_delete: Callable[[], bool],
    unguarded: Collection[int] = (),
) -> dict[int, Route]:
    """The routes with their guards. `may_delete` is `delete.topic.enable`.

    `unguarded` are APIs that the broker refuses to everybody.
    """

    def known(key: PartitionKey) -> bool:
        return key[1] in cache.snapshot.topics.get(key[0], ())

    guards = {
        **cluster.GUARDS,
        **groups.GUARDS,
        **topic_guards(cache, is_controller, may_delete),
        **transaction_guards(known),
    }
    return {
        key: guarded(route, guards[key], access) if key in guards and key not in unguarded else route
        for key, route in routes.items()
    }
