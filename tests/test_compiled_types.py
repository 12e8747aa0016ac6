"""The `.pxd` files beside compiled modules declare all attributes that their classes set.

A class that a `.pxd` file types has no other attributes in a package. In a checkout, where the class is plain
Python, nobody would notice that one is missing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TYPED = sorted((ROOT / "klog").rglob("*.pxd"))
CLASS = re.compile(r"^cdef class (\w+)(?:\((\w+)\))?:$")
METHOD = re.compile(r"^    cp?def [\w ]*?(\w+)\(([^)]*)\)", re.MULTILINE)
ATTRIBUTE = re.compile(r"^    cdef (?:(?:public|readonly) )?[\w ]+ (\w+)(?:  #.*)?$")


def declared(path: Path) -> dict[str, tuple[str | None, set[str]]]:
    """The base and the attributes of each class of a `.pxd` file."""
    found: dict[str, tuple[str | None, set[str]]] = {}
    name = ""
    for line in path.read_text().splitlines():
        if begin := CLASS.match(line):
            name = begin[1]
            found[name] = (begin[2], set())
        elif attribute := ATTRIBUTE.match(line):
            found[name][1].add(attribute[1])
    return found


ALL = {name: of for path in TYPED for name, of in declared(path).items()}


@pytest.mark.parametrize("path", TYPED, ids=lambda path: path.stem)
def test_no_attribute_is_declared_twice(path: Path) -> None:
    """Cython refuses such a file, and the package cannot be built."""
    for body in re.findall(r"^cdef class [^\n]*:$(.*?)(?=^\S|\Z)", path.read_text(), re.M | re.S):
        names = [found[1] for line in body.splitlines() if (found := ATTRIBUTE.match(line))]
        assert len(names) == len(set(names)), names


def with_inherited(base: str | None, own: set[str]) -> set[str]:
    """The attributes of a class and of its bases."""
    return own if base is None else own | with_inherited(*ALL[base])


def assigned(node: ast.ClassDef) -> Iterator[str]:
    """The attributes that the methods of a class set."""
    for each in ast.walk(node):
        if (
            isinstance(each, ast.Attribute)
            and isinstance(each.ctx, ast.Store)
            and isinstance(each.value, ast.Name)
            and each.value.id == "self"
        ):
            yield each.attr


@pytest.mark.parametrize("path", TYPED, ids=lambda path: str(path.relative_to(ROOT)))
def test_all_attributes_are_declared(path: Path) -> None:
    source = path.with_suffix(".py")
    assert f'"{source.relative_to(ROOT / "klog")}"' in (ROOT / "setup.py").read_text(), "it is not compiled"
    classes = {
        node.name: node for node in ast.parse(source.read_text()).body if isinstance(node, ast.ClassDef)
    }
    for name, (base, own) in declared(path).items():
        missing = set(assigned(classes[name])) - with_inherited(base, own)
        assert not missing, f"{name} sets {sorted(missing)}, which {path.name} does not declare"


@pytest.mark.parametrize("path", TYPED, ids=lambda path: str(path.relative_to(ROOT)))
def test_methods_have_the_arguments_that_are_declared(path: Path) -> None:
    """A typed method has no arguments by keyword only."""
    tree = ast.parse(path.with_suffix(".py").read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for name, body in re.findall(r"^cdef class (\w+)[^\n]*:$(.*?)(?=^\S|\Z)", path.read_text(), re.M | re.S):
        methods = {node.name: node.args for node in classes[name].body if isinstance(node, ast.FunctionDef)}
        for method, arguments in METHOD.findall(body):
            found = methods[method]
            others = [*found.kwonlyargs, found.vararg, found.kwarg]
            assert others == [None, None], f"{name}.{method}"
            names = [each.split("=")[0].split()[-1] for each in arguments.split(",") if each.strip()]
            assert [each.arg for each in found.args] == names, f"{name}.{method}"
