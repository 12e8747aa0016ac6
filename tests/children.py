"""Does work in child processes, which may be killed at a chosen moment."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable
from typing import Any

_KILLED = 9


def run_in_child(work: Callable[[], object]) -> int:
    """Does work in a child process; returns how it ended: 0, 1 after an exception, or what it chose."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(step: int, writes: Iterable[tuple[object, str]], work: Callable[[], object]) -> bool:
    """Does work in a child that is killed before its n-th write; whether it was.

    `writes` are the functions that change something: their owner and name.
    """
    done = 0

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            nonlocal done
            done += 1
            if done == step:
                os._exit(_KILLED)
            return real(*args, **more)

        return call

    def child() -> None:
        for owner, name in writes:
            setattr(owner, name, counting(getattr(owner, name)))
        work()

    ended = run_in_child(child)
    assert ended in (0, _KILLED)
    return ended == _KILLED
