"""One thread beside the caller's, for small pieces of work. A pool of one thread would import much more."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import TypeVar

_Result = TypeVar("_Result")


class SecondThread:
    """Does each piece of work that it is given, in order, from its making to `close` or the end of its block.

    Both wait until all that was given is done. Raises `RuntimeError` if the system gives no thread.
    """

    def __init__(self, name: str) -> None:
        self._given: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def __enter__(self) -> SecondThread:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the thread, when all that was given is done. A second call does nothing."""
        self._given.put(None)
        self._thread.join()

    def give(self, work: Callable[..., _Result], *arguments: object) -> Callable[[], _Result]:
        """Let the thread do this. What is returned waits for the result, and raises the error of the work."""
        outcome: SimpleQueue[tuple[_Result | None, BaseException | None]] = SimpleQueue()

        def done() -> None:
            try:
                outcome.put((work(*arguments), None))
            except BaseException as error:
                outcome.put((None, error))

        def result() -> _Result:
            value, error = outcome.get()
            if error is not None:
                raise error
            return value  # type: ignore[return-value]

        self._given.put(done)
        return result

    def _run(self) -> None:
        while (work := self._given.get()) is not None:
            work()
