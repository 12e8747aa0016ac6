"""Optional packages: what klog needs only for some work, and the extra that installs it."""

from __future__ import annotations

import importlib.util

from klog.formats.errors import UsageError


def require_pyarrow(what: str) -> None:
    """Raises UsageError, which says how to install pyarrow for `what`, if it is not installed."""
    if importlib.util.find_spec("pyarrow") is None:
        raise UsageError(
            f"{what} needs pyarrow, which is not installed", cure="pip install 'klog[arrow]' installs it"
        )
