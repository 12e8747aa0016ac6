"""Chooses between a compiled module and its twin in pure Python.

The twin is used if klog was built without a C compiler, or if the environment variable `KLOG_PURE_PYTHON` is
set.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any


def compiled_or_twin(compiled: str, twin: str) -> ModuleType:
    """The module of klog with the first name if it can be used, else the one with the second."""
    if not os.environ.get("KLOG_PURE_PYTHON"):
        try:
            return importlib.import_module(compiled)
        except ImportError:
            pass
    return importlib.import_module(twin)


def members(compiled: str, twin: str, names: list[str]) -> tuple[Any, ...]:
    """The members with these names of the module that `compiled_or_twin` chooses."""
    module = compiled_or_twin(compiled, twin)
    return tuple(getattr(module, name) for name in names)
