"""Why a login fails, as a mechanism says it."""

from __future__ import annotations

from klog.formats.errors import KlogError


class RefusedLoginError(KlogError):
    """A login is refused, and the client may know why: the text is sent to it as it is."""


class FailedLoginError(KlogError):
    """A login fails, and the client must not learn why, for that could tell it which users exist. The text is
    for the log.
    """
