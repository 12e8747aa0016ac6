"""Finds places of fields, formats of `struct` and orders of fields that somebody wrote by hand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_STRUCT_CALLS = {"Struct", "calcsize", "iter_unpack", "pack", "pack_into", "unpack", "unpack_from"}
_PLACE_NAME = re.compile(
    r"(_POSITION|_AT|CRC_FROM|CRC_OFFSET|MAGIC_OFFSET|HEADER_BYTES|ENTRY_BYTES|PREFIX_BYTES|TO_MAGIC_BYTES)$"
)
# A format of several numbers, by whatever name it is given to `struct` or to another reader.
_FORMAT = re.compile(r"[<>!=@](?:\d*[xcbB?hHiIlLqQefdsp]){2,}")
_NUMPY_FORMAT = re.compile(r"[<>][iuf]\d(?:, ?[<>][iuf]\d)+")
# Smaller numbers are items of tuples and the like.
_LEAST_ITEM = 5
_NUMBER = re.compile(r"_?U?INT(8|16|32|64)$")
_BY_LETTER = re.compile(r"[<>][bBhHiIqQ]$")

# Reads and writes of numbers in the compiled modules: only those at a place with a name, and no literal, are
# no layout. What is read where the last field ended follows an order of fields.
_COMPILED_NUMBER = re.compile(r"\b(?:be|put)(?:8|16|32|64)\(([^,)]*)")
_COMPILED_PLACE = re.compile(r"\b[A-Z][A-Z0-9_]+\b")
_COMPILED_LITERAL = re.compile(r"\b\d+\b")
_COMPILED = re.compile(
    r"\b(?:u?varint(?:32|64)|put_varint)\("
    r"|\b[a-z_]\w*\[(?:\w+ ?\+ ?)?(?:[5-9]|\d\d+)\](?! \w+(?:$| =))"
    r"|\b(?:p|at|data|out|position|source|start) \+= (?:[2-9]|\d\d+)\b"
    r"|\bmemcpy\(.*\+ ?(?:[3-9]|\d\d+)\b"
    r"|\+ ?\d+\)+\[0\]"
    r"|\b\w*(?:_POSITION|_AT|_OFFSET|CRC_FROM|HEADER_BYTES|KEY_BYTES|VALUE_BYTES) = \d"
    r"|\bDEF |\bcdef enum: *\w|\bpacked struct\b"
    r"|\b(?:ntoh|be\d\dtoh|\w*bswap)\w*\(|\bfrom_bytes\(|\bunpack(?:_from)?\("
)
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
    match node:
        case ast.Call():
            return _is_literal_call(node)
        case ast.Constant(value=str(text)):
            return bool(_FORMAT.fullmatch(text) or _NUMPY_FORMAT.fullmatch(text))
        case ast.Assign(targets=[ast.Name(id=name), *_], value=value):
            return bool(_PLACE_NAME.search(name)) and _is_place(value)
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            return bool(_PLACE_NAME.search(name)) and _is_place(value)
        case ast.Subscript(value=ast.Name(id=name)):
            return not name.isupper() and _is_item(node.slice)
        case ast.BinOp(op=ast.Add()):
            return _is_packed(node.left) and _is_packed(node.right)
        case ast.Tuple() | ast.List():
            return sum(map(_is_packed, node.elts)) > 1
    return False


def _is_literal_call(node: ast.Call) -> bool:
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    module = called.value if isinstance(called, ast.Attribute) else None
    of_module = isinstance(called, ast.Name) or (isinstance(module, ast.Name) and module.id == "struct")
    values = [*node.args, *(keyword.value for keyword in node.keywords)]
    if (
        of_module
        and name in _STRUCT_CALLS
        and node.args
        and _is_text(node.args[0])
        and _is_format(node.args[0])
    ):
        return True
    is_single = of_module and bool(node.args) and _is_text(node.args[0])  # a format, the bytes, the place
    places = [*node.args[1 + is_single : 2 + is_single], *_offsets(node)]
    if name in ("unpack_from", "pack_into", "from_buffer", "frombuffer") and any(map(_is_place, places)):
        return True
    return name in ("from_bytes", "unpack", "iter_unpack") and any(map(_is_part, values))


def _offsets(node: ast.Call) -> list[ast.AST]:
    return [each.value for each in node.keywords if each.arg == "offset"]


def _is_packed(node: ast.AST) -> bool:
    """Whether it is one number as bytes: beside another one, their order is stated."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    of = node.func.value
    return node.func.attr == "to_bytes" or (node.func.attr == "pack" and _is_number(of))


def _is_part(node: ast.AST) -> bool:
    """Whether it is a part of bytes between places that are literals."""
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Slice)
        and any(map(_is_place, (node.slice.lower, node.slice.upper)))
    )


def _is_item(place: ast.AST) -> bool:
    """Whether it is a number, or a sum with one, that is too large for an item of a tuple."""
    if isinstance(place, ast.BinOp) and isinstance(place.op, ast.Add):
        return _is_item(place.left) or _is_item(place.right)
    return isinstance(place, ast.Constant) and type(place.value) is int and place.value >= _LEAST_ITEM


def _is_text(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_format(node: ast.AST) -> bool:
    """Whether it is a literal format of more than one number."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and not _BY_LETTER.match(node.value)
    if isinstance(node, ast.BinOp):
        return bool(_FORMAT.fullmatch(">" + _letters(node)))
    return isinstance(node, ast.JoinedStr)


def _letters(node: ast.AST) -> str:
    """What is literal in a sum of texts, without the order of the bytes."""
    if isinstance(node, ast.BinOp):
        return _letters(node.left) + _letters(node.right)
    return (
        node.value.lstrip("<>!=@") if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    )


def _is_place(node: ast.AST | None) -> bool:
    """Whether it is a number that is not zero, or a sum with one."""
    if isinstance(node, ast.BinOp):
        return _is_place(node.left) or _is_place(node.right)
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value != 0


def in_cython(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, function and source of each literal that says how a file is laid out."""
    function = ""
    for number, code in _statements(text):
        if found := _COMPILED_FUNCTION.match(code):
            function = found[1]
        elif any(not _is_derived(place) for place in _COMPILED_NUMBER.findall(code)) or _COMPILED.search(
            code
        ):
            yield number, function, code.strip()


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """The lines without comments, those within brackets as one."""
    begun, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("#")[0].rstrip()
        begun, first = (f"{begun} {code.strip()}", first) if begun else (code, number)
        if begun.count("(") <= begun.count(")"):
            yield first, begun
            begun = ""


def _is_derived(place: str) -> bool:
    return bool(_COMPILED_PLACE.search(place)) and not _COMPILED_LITERAL.search(place)
