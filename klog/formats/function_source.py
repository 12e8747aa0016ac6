"""Writes the source of a function line by line, for readers and writers that are made from definitions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class FunctionSource:
    """The source of a function that is being written, with the objects that it names."""

    def __init__(self, **names: object) -> None:
        self._names = names
        self.constants: dict[str, str] = {}
        """The source of what is made once, by its name."""
        self._before: list[str] = []
        self._lines: list[str] = []
        self._indent = ""
        self._variables = 0

    def add(self, line: str) -> None:
        self._lines.append(self._indent + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.add(f"{head}:")
        outer, self._indent = self._indent, f"{self._indent}    "
        yield
        self._indent = outer

    @contextmanager
    def before(self) -> Iterator[None]:
        """What is added within stands before the function that is being written."""
        lines, indent = self._lines, self._indent
        self._lines, self._indent = [], ""
        yield
        self._before += [*self._lines, "", ""]
        self._lines, self._indent = lines, indent

    def new(self, value: str | None = None) -> str:
        """A new variable; with a value it is set."""
        self._variables += 1
        name = f"v{self._variables}"
        if value is not None:
            self.add(f"{name} = {value}")
        return name

    def named(self, value: object) -> str:
        """The name of an object."""
        name = f"{getattr(value, '__name__', 'value').strip('<>')}_{len(self._names)}"
        self._names[name] = value
        return name

    def constant(self, name: str, value: str) -> str:
        """The name of an object that is made once, of the source of an expression."""
        self.constants[name] = value
        return name

    def text(self) -> str:
        """All that was written, without the constants."""
        return "\n".join([*self._before, *self._lines])

    def function(self, name: str) -> Any:  # noqa: ANN401 (as its source says)
        constants = [f"{each} = {value}" for each, value in self.constants.items()]
        exec("\n".join([*constants, self.text()]), self._names)  # noqa: S102 (made of the fields of a definition)
        return self._names[name]
