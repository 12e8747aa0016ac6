"""`klog reassign`: moves partitions between brokers and log directories.

Subcommands and options have the names of `kafka-reassign-partitions`, and its command lines work too. The
subcommands are in `klog.commands.reassigning`.
"""

from __future__ import annotations

from klog.commands.reassigning import checking, executing, generating, listing, planning, watching
from klog.commands.reassigning.group import app

__all__ = ["app", "checking", "executing", "generating", "listing", "planning", "watching"]
