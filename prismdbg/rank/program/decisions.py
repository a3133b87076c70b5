"""Where a program decides by a value that it reads at one line, as far as its source says. Pure; only `ast`.

The value is followed through names, attributes, lists that it is put into, and functions of the same file that return
or receive it. Scopes are not told apart: what is found may be decided by it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def decided_at(source: str, line: int) -> int:
    """The first line with a condition that the value read at `line` takes part in; 0 where none is found."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return 0
    read = _innermost(tree, line)
    if read is None:
        return 0
    if any(_covers(test, line) for test in _conditions(read)):
        return line
    return _Followed(tree, read).condition()


def _innermost(tree: ast.Module, line: int) -> ast.stmt | None:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and _covers(node, line)]
    return min(found, key=lambda node: (node.end_lineno or 0) - node.lineno, default=None)


def _covers(node: ast.expr | ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _conditions(root: ast.AST) -> Iterator[ast.expr]:
    """What decides what runs, or how often."""
    for node in ast.walk(root):
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            if not _asks_what_it_is(node.test):
                yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.Match):
            yield node.subject
        elif isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) == "range":
            yield node.iter


def _asks_what_it_is(test: ast.expr) -> bool:
    """`x is None` asks for no value."""
    return isinstance(test, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in test.ops)


class _Followed:
    def __init__(self, tree: ast.Module, read: ast.stmt) -> None:
        self._tree = tree
        self._functions = {node.name: node for node in ast.walk(tree) if isinstance(node, _DEFINITIONS)}
        self._home = {
            id(inner): node.name for node in self._functions.values() for inner in ast.walk(node) if inner is not node
        }
        self._names: set[str] = set()
        self._takes(read)
        before = -1
        while before < len(self._names):
            before = len(self._names)
            for node in ast.walk(tree):
                if isinstance(node, ast.stmt) and not hasattr(node, "body") and self._mentions(node):
                    self._takes(node)

    def condition(self) -> int:
        return min((test.lineno for test in _conditions(self._tree) if self._mentions(test)), default=0)

    def _mentions(self, node: ast.AST) -> bool:
        return any(
            ast.unparse(inner) in self._names for inner in ast.walk(node) if isinstance(inner, ast.Name | ast.Attribute)
        )

    def _takes(self, node: ast.stmt) -> None:
        """Whoever gets the value from this statement."""
        match node:
            case ast.Assign():
                self._names.update(name for target in node.targets for name in _targets(target))
            case ast.AugAssign() | ast.AnnAssign():
                self._names.update(_targets(node.target))
            case ast.Return() if id(node) in self._home:
                self._names.add(self._home[id(node)])
            case ast.Expr(value=ast.Call() as call):
                self._is_called(call)
        for inner in ast.walk(node):
            if isinstance(inner, ast.NamedExpr):
                self._names.update(_targets(inner.target))
            elif isinstance(inner, ast.Call) and not isinstance(node, ast.Expr):
                self._given(inner)

    def _is_called(self, call: ast.Call) -> None:
        """`losses.append(x)`: the list has it."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "add", "update", "extend", "put"):
            self._names.add(ast.unparse(call.func.value))
        self._given(call)

    def _given(self, call: ast.Call) -> None:
        """Of a function of this file, the parameters."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
        function = self._functions.get(name)
        if function is not None and (call.args or call.keywords):
            self._names.update(each.arg for each in function.args.args if each.arg not in ("self", "cls"))


def _targets(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _targets(each)
    elif isinstance(target, ast.Subscript):
        yield ast.unparse(target.value)
    else:
        yield ast.unparse(target)
