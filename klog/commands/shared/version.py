"""The version of klog, and which of its parts are compiled."""

from __future__ import annotations

import typer


def show_version(wanted: bool = True) -> None:
    """Print the version and which parts are compiled, then exit; do nothing if it is not wanted."""
    if wanted:
        from importlib.machinery import EXTENSION_SUFFIXES
        from importlib.metadata import version

        from klog.kernel import kernel
        from klog.storage.log import segment

        broker = "compiled" if segment.__file__.endswith(tuple(EXTENSION_SUFFIXES)) else "interpreted"
        print(f"klog {version('klog')} ({kernel.IMPLEMENTATION} kernel, {broker} broker)")  # noqa: T201
        raise typer.Exit
