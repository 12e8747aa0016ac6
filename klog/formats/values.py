"""Types of the definitions in this package."""

from __future__ import annotations

from typing import Any

Value = Any
"""What a definition parses to: a Construct container, a list, a number, or a value of the format's own."""

Bytes = bytes | bytearray | memoryview
"""What can be parsed."""
