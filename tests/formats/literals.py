"""Finds places of fields, formats of `struct` and orders of fields that somebody wrote by hand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_STRUCT_CALLS = {"Struct", "calcsize", "iter_unpack", "pack", "pack_into", "unpack", "unpack_from"}
_PLACE_NAME = re.compile(r"(_POSITION|_AT|_CRC_FROM|HEADER_BYTES|ENTRY_BYTES|PREFIX_BYTES|TO_MAGIC_BYTES)$")
_NUMBER = re.compile(r"_?U?INT(8|16|32|64)$")
_BY_LETTER = re.compile(r"[<>][bBhHiIqQ]$")

# Reads and writes of numbers in the compiled modules: only those at a place with a name, and no literal, are
# no layout. What is read where the last field ended follows an order of fields.
_COMPILED_NUMBER = re.compile(r"\b(?:be|put)(?:8|16|32|64)\(([^,)]*)")
_COMPILED_PLACE = re.compile(r"\b[A-Z][A-Z0-9_]+\b")
_COMPILED_LITERAL = re.compile(r"\b\d+\b")
_COMPILED_VARINT = re.compile(r"\b(?:varint(?:32|64)|put_varint)\(")
_COMPILED_ITEM = re.compile(r"\bp\[\d{2,}\]")
_COMPILED_NAME = re.compile(r"^    \w*(?:_POSITION|HEADER_BYTES|KEY_BYTES|VALUE_BYTES) = \d+")
_COMPILED_FUNCTION = re.compile(r"^ *(?:def|cdef)\b[^=]*?(\w+)\(")


def in_python(text: str) -> Iterator[tuple[int, str]]:
    """Line and source of each literal that says how a file is laid out."""
    for node in ast.walk(ast.parse(text)):
        if _is_literal_layout(node):
            yield node.lineno, ast.unparse(node)  # type: ignore[attr-defined]


def counted_places(text: str) -> Iterator[tuple[int, str]]:
    """Line and source of each read of one number at a place that was counted: an order of fields by hand.

    To give the reading of a number another name counts, too: nobody sees the places then.
    """
    nodes = list(ast.walk(ast.parse(text)))
    calls = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if not (isinstance(node, ast.Attribute) and node.attr == "unpack_from" and _is_number(node.value)):
            continue
        call = calls.get(id(node))
        if call is None:
            yield node.lineno, ast.unparse(node)
        elif len(call.args) > 1 and not any(map(_is_named, ast.walk(call.args[1]))):
            yield node.lineno, ast.unparse(call)


def _is_number(layout: ast.AST) -> bool:
    return isinstance(layout, ast.Name) and _NUMBER.match(layout.id) is not None


def _is_named(part: ast.AST) -> bool:
    """Whether it is a number that is given out, by its name or in a table, or the begin of the bytes."""
    if isinstance(part, ast.Name):
        return part.id.isupper() and _NUMBER.match(part.id) is None
    return isinstance(part, (ast.Subscript, ast.Constant))


def _is_literal_layout(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        module = called.value if isinstance(called, ast.Attribute) else None
        of_module = isinstance(called, ast.Name) or (isinstance(module, ast.Name) and module.id == "struct")
        if of_module and name in _STRUCT_CALLS and node.args and _is_text(node.args[0]):
            return _is_format(node.args[0])
        if name in ("unpack_from", "pack_into"):
            return len(node.args) > 1 and _is_place(node.args[1])
        return (
            name == "from_bytes"
            and bool(node.args)
            and isinstance(node.args[0], ast.Subscript)
            and (
                isinstance(node.args[0].slice, ast.Slice)
                and any(map(_is_place, (node.args[0].slice.lower, node.args[0].slice.upper)))
            )
        )
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        return isinstance(target, ast.Name) and bool(_PLACE_NAME.search(target.id)) and _is_place(node.value)
    return False


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_format(node: ast.AST) -> bool:
    """Whether it is a literal format of more than one number."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and not _BY_LETTER.match(node.value)
    return isinstance(node, ast.JoinedStr)


def _is_place(node: ast.AST | None) -> bool:
    """Whether it is a number that is not zero, or a sum with one."""
    if isinstance(node, ast.BinOp):
        return _is_place(node.left) or _is_place(node.right)
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value != 0


def in_cython(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, function and source of each literal that says how a file is laid out."""
    function = ""
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("#")[0]
        if found := _COMPILED_FUNCTION.match(code):
            function = found[1]
        elif (
            any(not _is_derived(place) for place in _COMPILED_NUMBER.findall(code))
            or _COMPILED_VARINT.search(code)
            or _COMPILED_ITEM.search(code)
            or _COMPILED_NAME.match(code)
        ):
            yield number, function, line.strip()


def _is_derived(place: str) -> bool:
    return bool(_COMPILED_PLACE.search(place)) and not _COMPILED_LITERAL.search(place)
