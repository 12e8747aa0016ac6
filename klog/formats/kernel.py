"""The record kernel: the compiled one, or its twin in pure Python.

`IMPLEMENTATION` says which one runs; `klog.formats.twins` has the rules. `_pykernel`, `_pydecode` and
`_pyappend` state the meaning of the functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.formats.twins import compiled_or_twin

if TYPE_CHECKING:
    from klog.formats import _pykernel as _kernel_functions
else:
    _kernel_functions = compiled_or_twin("klog.formats._kernel", "klog.formats._pykernel")

IMPLEMENTATION = _kernel_functions.IMPLEMENTATION
check_records = _kernel_functions.check_records
decode = _kernel_functions.decode
decode_payload = _kernel_functions.decode_payload
headers = _kernel_functions.headers
index = _kernel_functions.index
payload_span = _kernel_functions.payload_span
scan = _kernel_functions.scan
seek = _kernel_functions.seek
verify = _kernel_functions.verify
