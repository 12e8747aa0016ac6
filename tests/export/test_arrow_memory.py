"""The allocator of an export keeps freed memory, unless the environment decides that."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from klog.export import arrow_memory

FAULTS = """
import resource, sys
import pyarrow as pa
from klog.export.arrow_memory import keep_free_pages
if sys.argv[1] == "keep":
    assert keep_free_pages()
pool = pa.system_memory_pool()
def use():
    for _ in range(20):
        buffers = [pa.allocate_buffer(4 << 20, memory_pool=pool) for _ in range(4)]
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            view[:: 4096] = bytes(len(view[:: 4096]))
        del buffers, buffer, view
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True, timeout=60
    )
    return int(done.stdout)


@pytest.mark.skipif(not arrow_memory._is_glibc(), reason="needs glibc")
def test_buffers_that_are_freed_and_allocated_again_take_no_new_pages() -> None:
    # Transparent huge pages may make the number without it smaller, but never the one with it larger.
    assert faults("keep") < 100
    assert faults("keep") <= faults("as it is")


@pytest.mark.parametrize("name", arrow_memory._SETTINGS)
def test_a_choice_in_the_environment_is_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "131072")
    assert not arrow_memory.keep_free_pages()


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in (None, "musl 1.2"):
        monkeypatch.setattr(os, "confstr", lambda _, answer=answer: answer)
        assert not arrow_memory.keep_free_pages()
