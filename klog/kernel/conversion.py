"""Joins batches, and makes batches of other message formats: the compiled functions, or their twins.

`IMPLEMENTATION` says which ones run; `_pyconversion` states their meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.kernel.twins import members

__all__ = ["IMPLEMENTATION", "Joiner", "downgrade", "same_records", "upgrade"]

if TYPE_CHECKING:
    from klog.kernel._pyconversion import IMPLEMENTATION, Joiner, downgrade, same_records, upgrade
else:
    _found = members("klog.kernel._conversion", "klog.kernel._pyconversion", __all__)
    IMPLEMENTATION, Joiner, downgrade, same_records, upgrade = _found
