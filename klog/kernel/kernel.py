"""The record kernel: the compiled one, or its twin in pure Python.

`IMPLEMENTATION` says which one runs; `klog.kernel.twins` has the rules. `_pykernel`, `_pydecode`,
`_pyappend` and `_pyfollow` state the meaning of the functions.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from klog.kernel.twins import compiled_or_twin

if TYPE_CHECKING:
    from klog.kernel import _pykernel as _kernel_functions
else:
    _kernel_functions = compiled_or_twin("klog.kernel._kernel", "klog.kernel._pykernel")

IMPLEMENTATION = _kernel_functions.IMPLEMENTATION
check_records = _kernel_functions.check_records
decode = _kernel_functions.decode
decode_payload = _kernel_functions.decode_payload
follow = _kernel_functions.follow
headers = _kernel_functions.headers
index = _kernel_functions.index
payload_span = _kernel_functions.payload_span
scan = _kernel_functions.scan
seek = _kernel_functions.seek
verify = _kernel_functions.verify


def slowness() -> str | None:
    """Why klog is many times slower than it could be, and what to do; None with the compiled kernel."""
    if IMPLEMENTATION != "python":
        return None
    if os.environ.get("KLOG_PURE_PYTHON"):
        why, cure = "KLOG_PURE_PYTHON is set", "unset it"
    elif not os.path.exists(_kernel_functions.__file__):
        why, cure = "klog is imported from an archive", "install klog where it runs"
    else:
        why, cure = "it was installed without a C compiler", "install a wheel, or a compiler and klog again"
    return f"klog runs on its pure-Python kernel, which is many times slower: {why} ({cure})"
