"""The broker's loggers as configs: their levels are described and set while it runs (KIP-412).

Levels go by the names of KIP-412. A level that was set is in force until the broker stops.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from klog.protocol.error_codes import ErrorCode
from klog.security.authorization.audit import LOGGER as AUDIT_LOGGER
from klog.server.handlers.refusals import RefusedError

ROOT: Final = "root"
LEVELS: Final[Mapping[str, int]] = {
    "TRACE": logging.DEBUG - 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


class Loggers:
    """The loggers below (and with) one name of Python's logging, that of the audit log, and the root."""

    def __init__(self, prefix: str = "klog") -> None:
        self._prefix = prefix

    def levels(self) -> dict[str, str]:
        """The level in force of each logger, the root's under the name `root`."""
        known = logging.getLogger().manager.loggerDict
        shown = (self._prefix, AUDIT_LOGGER)
        names = [name for name in known if name in shown or name.startswith(f"{self._prefix}.")]
        return {name: _level_name(self._logger(name).getEffectiveLevel()) for name in (ROOT, *sorted(names))}

    def check(self, name: str, level: str | None) -> None:
        """Whether a logger may be given a level, or (None) none of its own. Raises `RefusedError`."""
        if name not in self.levels():
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if level is None and name == ROOT:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
            )
        if level is not None and level not in LEVELS:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG, f"{level} is no log level, only {', '.join(LEVELS)} are"
            )

    def set_level(self, name: str, level: str | None) -> None:
        """Gives a logger its level; with None it follows the logger above it."""
        self._logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])

    def _logger(self, name: str) -> logging.Logger:
        return logging.getLogger(None if name == ROOT else name)


def _level_name(level: int) -> str:
    """The strictest name that lets everything of this level through."""
    return next((name for name, least in LEVELS.items() if level <= least), "FATAL")
