"""`klog reassign`: moves partitions between brokers and log directories.

Subcommands and options have the names of `kafka-reassign-partitions`, and its command lines work too. The
subcommands are in `klog.commands.cluster.reassigning`.
"""

from __future__ import annotations

from klog.commands.cluster.reassigning import checking, executing, generating, listing, planning, watching
from klog.commands.cluster.reassigning.app import app

__all__ = ["app", "checking", "executing", "generating", "listing", "planning", "watching"]
