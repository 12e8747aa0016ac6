"""Optional packages: what klog needs only for some work, and the extra that installs it."""

from __future__ import annotations

import importlib.util
import shlex
import sys

from klog.formats.errors import UsageError


def require_pyarrow(what: str) -> None:
    """Raises UsageError, which says how to install pyarrow for `what`, if it is not installed."""
    if importlib.util.find_spec("pyarrow") is None:
        cure = f"{install_command('arrow')} installs it"
        raise UsageError(f"{what} needs pyarrow, which is not installed", cure=cure)


def install_command(extra: str) -> str:
    """The command that installs an extra of klog into this process's environment, active or not."""
    return f"{shlex.quote(sys.executable)} -m pip install 'klog[{extra}]'"
