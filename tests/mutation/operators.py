"""Mutants: every small change to a module that its tests should notice (pure).

A mutant is one change of one place: a comparison moved by one, a condition or an operand left out,
a number one up or down, an argument, a statement, a case or an exception left out, a result turned
into None. Left alone is what cannot change behaviour or is promised to nobody: annotations,
decorators, class headers, docstrings, the wording of messages, and what only the type checker
reaches.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from types import CodeType
from typing import NamedTuple, TypeVar

T = TypeVar("T")

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COUNTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
_OTHER: dict[type[ast.boolop], type[ast.boolop]] = {ast.And: ast.Or, ast.Or: ast.And}
_NAMED = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LEFT_ALONE = {
    ast.FunctionDef: {"returns", "decorator_list"},
    ast.AsyncFunctionDef: {"returns", "decorator_list"},
    ast.ClassDef: {"bases", "keywords", "decorator_list"},
    ast.AnnAssign: {"annotation", "target"},
    ast.arg: {"annotation"},
}


class Mutant(NamedTuple):
    """One change: where it is, what stood there, what stands there now, and the changed code."""

    line: int
    where: str
    change: str
    code: Callable[[], CodeType]


class _Slot(NamedTuple):
    """A node, and the place of its parent that holds it."""

    parent: ast.AST
    field: str
    place: int | None
    node: ast.AST
    where: str
    line: int

    def fill(self, nodes: list[ast.AST]) -> None:
        """Put *nodes* where the node stands: one, or none where the place is part of a list."""
        if self.place is None:
            setattr(self.parent, self.field, nodes[0])
        else:
            siblings = list(getattr(self.parent, self.field))
            siblings[self.place : self.place + 1] = nodes
            setattr(self.parent, self.field, siblings)


def mutants(source: str, path: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of its text."""
    tree = ast.parse(source, path)
    found: list[Mutant] = []
    same: Counter[tuple[str, str]] = Counter()
    for slot in _slots(tree, "module", 0):
        for new in _changes(slot):
            change = f"{_text(slot.node)} → {_text(new) if new else 'nothing'}"
            same[slot.where, change] += 1
            nth = same[slot.where, change]
            where = slot.where if nth == 1 else f"{slot.where} #{nth}"
            found.append(Mutant(slot.line, where, change, _compiler(tree, slot, new, path)))
    return found


def _compiler(
    tree: ast.Module, slot: _Slot, new: ast.AST | None, path: str
) -> Callable[[], CodeType]:
    def code() -> CodeType:
        before = getattr(slot.parent, slot.field)
        slot.fill([] if new is None else [new])
        try:
            return compile(ast.fix_missing_locations(tree), path, "exec")
        finally:
            setattr(slot.parent, slot.field, before)

    return code


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.match_case):
        return f"case {ast.unparse(node.pattern)}"
    return " ".join(ast.unparse(node).split())


# ---- places


def _slots(parent: ast.AST, where: str, line: int) -> Iterator[_Slot]:
    """Yield every place below *parent* that may be changed, outer places first."""
    for field, value in ast.iter_fields(parent):
        if field in _LEFT_ALONE.get(type(parent), ()):
            continue
        nodes = value if isinstance(value, list) else [value]
        for index, node in enumerate(nodes):
            if not isinstance(node, ast.AST) or _is_left_alone(node):
                continue
            place = index if isinstance(value, list) else None
            inner = _inside(node, where)
            at: int = getattr(node, "lineno", line)
            yield _Slot(parent, field, place, node, inner, at)
            yield from _slots(node, inner, at)


def _inside(node: ast.AST, where: str) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name if where == "module" else f"{where}.{node.name}"
    return where


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Expr(ast.Constant()):
            return True  # a docstring
        case ast.Assign([ast.Name("message")]):
            return True
        case ast.Assign(value=ast.BinOp(op=ast.BitOr())):
            return True  # a union of types
        case ast.Import() | ast.ImportFrom() | ast.Assign(value=ast.Call(ast.Name("TypeVar"))):
            return True
        case ast.match_case(body=[ast.Expr(ast.Call(ast.Name("assert_never")))]):
            return True
        case _:
            return False


# ---- changes


def _changes(slot: _Slot) -> Iterator[ast.AST | None]:
    """Yield what may stand in the node's place; None: nothing does."""
    node, parent = slot.node, slot.parent
    match node:
        case ast.Constant() | ast.JoinedStr():
            if not isinstance(parent, ast.JoinedStr | ast.FormattedValue | ast.MatchValue):
                yield from _literals(node)
        case ast.expr():
            yield from _expressions(node, parent)
            yield from _conditions(node, slot.field)
        case ast.stmt():
            yield from _statements(node, parent)
        case ast.MatchOr():
            for rest in _without_one(node.patterns):
                yield rest[0] if len(rest) == 1 else ast.MatchOr(rest)
        case ast.keyword() | ast.match_case():
            yield None
        case _:
            pass


def _literals(node: ast.Constant | ast.JoinedStr) -> Iterator[ast.AST]:
    value = node.value if isinstance(node, ast.Constant) else "text"
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
        yield ast.Constant(value - 1)
    elif isinstance(value, float):
        yield ast.Constant(value + 1)
    elif isinstance(value, str):
        yield ast.Constant(f"XX{value}")
    elif isinstance(value, bytes):
        yield ast.Constant(b"XX" + value)


def _conditions(node: ast.expr, field: str) -> Iterator[ast.AST | None]:
    if field in {"test", "ifs"} and isinstance(node, ast.Name | ast.Attribute | ast.Call):
        yield ast.UnaryOp(ast.Not(), node)
    if field == "ifs":
        yield None


def _expressions(node: ast.expr, parent: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare():
            for place, operator in enumerate(node.ops):
                other = _COMPARED[type(operator)]()
                ops = [*node.ops[:place], other, *node.ops[place + 1 :]]
                yield ast.Compare(node.left, ops, node.comparators)
        case ast.BoolOp():
            yield ast.BoolOp(_OTHER[type(node.op)](), node.values)
            for rest in _without_one(node.values):
                yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        case ast.UnaryOp():
            yield node.operand
        case ast.BinOp(op=ast.BitOr()):
            yield from (node.left, node.right)
        case ast.BinOp():
            yield ast.BinOp(node.left, _COUNTED[type(node.op)](), node.right)
        case ast.Call():
            yield from _calls(node)
        case ast.Tuple() if isinstance(parent, ast.ExceptHandler):
            yield from (ast.Tuple(rest, ast.Load()) for rest in _without_one(node.elts))


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    if isinstance(node.func, ast.Name) and node.func.id in _NAMED:
        other = ast.Name(_NAMED[node.func.id], ast.Load())
        yield ast.Call(other, node.args, node.keywords)
    if node.args:
        yield ast.Call(node.func, node.args[:-1], node.keywords)


def _statements(node: ast.stmt, parent: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Return(value=ast.expr() as value):
            if not isinstance(value, ast.Constant) or value.value is not None:
                yield ast.Return(ast.Constant(None))
        case ast.AugAssign():
            yield ast.AugAssign(node.target, _COUNTED[type(node.op)](), node.value)
            yield ast.Pass()
        case ast.Expr() | ast.Raise():
            yield ast.Pass()
        case ast.Assign([ast.Attribute()]):
            yield ast.Pass()
        case ast.Assign() if isinstance(parent, ast.If | ast.For | ast.ExceptHandler):
            yield ast.Pass()  # the name keeps an older value
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
        case _:
            pass


def _without_one(items: list[T]) -> Iterator[list[T]]:
    for place in range(len(items)):
        yield items[:place] + items[place + 1 :]
