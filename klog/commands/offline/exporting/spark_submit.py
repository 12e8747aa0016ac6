"""The spark-submit command that runs an export on Spark, from the options of `klog export`.

PySpark's launcher and workers run `python3` unless PYSPARK_PYTHON says otherwise. In an environment that is
not activated that is another Python, and the launcher ends with 127. So the command names klog's own.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from enum import Enum
from typing import Final

import typer

from klog.formats.errors import UsageError
from klog.formats.optional import install_command

_SCRIPT: Final = "klog.commands.segment_export"
_OWN: Final = frozenset({"print_spark_submit", "jobs"})
"""Options that the script does not have."""


def spark_submit_line(context: typer.Context) -> str:
    """A line for the shell that does on Spark, on this machine, what the command line of `context` says.

    Raises `UsageError` if there is no spark-submit.
    """
    script = importlib.util.find_spec(_SCRIPT)
    if script is None or script.origin is None:
        raise UsageError(f"{_SCRIPT} has no file that spark-submit could run", cure="install klog")
    words = [_launcher(), "--master", "local[*]", script.origin, *_options(context)]
    return f"PYSPARK_PYTHON={shlex.quote(sys.executable)} {shlex.join(words)}"


def _launcher() -> str:
    beside = os.path.join(os.path.dirname(sys.executable), "spark-submit")
    found = beside if os.access(beside, os.X_OK) else shutil.which("spark-submit")
    if found is None:
        raise UsageError("there is no spark-submit", cure=f"{install_command('spark')} installs it")
    return found


def _options(context: typer.Context) -> Iterator[str]:
    """The options that were given, as the script has them."""
    for each in context.command.params:
        name = each.name or ""
        source = context.get_parameter_source(name)
        if name in _OWN or source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[name]
        option = "--input" if name == "paths" else each.opts[0]
        if value is True:
            yield option
        else:
            for one in value if isinstance(value, list | tuple) else (value,):
                yield from (option, str(one.value if isinstance(one, Enum) else one))
