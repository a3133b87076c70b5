"""Tokens into a tree. What cannot be said here cannot be done: no call but the table's, no private name, no statement.

or > and > not > comparison (chains) > + - > * / // % > unary > ** > postfix: .name [index] > atom
"""

from __future__ import annotations

import keyword
from collections.abc import Callable
from dataclasses import dataclass

from prismdbg.errors import UsageError, quoted
from prismdbg.expr import tree
from prismdbg.expr.functions import SIGNATURES
from prismdbg.expr.lexer import Kind, Token, tokens
from prismdbg.expr.place import complaint

MAX_DEPTH = 40
MAX_NODES = 200

_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_CONSTANTS = {"True": True, "False": False, "None": None}


@dataclass(frozen=True, slots=True)
class Expression:
    """A text that was read. The text is what is shipped to a rank."""

    text: str
    root: tree.Node

    @property
    def names(self) -> frozenset[str]:
        """The names it starts from, without attributes."""
        return frozenset(node.name for node in tree.walk(self.root) if isinstance(node, tree.Name))


def parse(text: str) -> Expression:
    """Reads an expression, or raises `UsageError` with a caret under what is wrong."""
    parser = _Parser(text)
    root = parser.whole()
    if tree.height(root) > MAX_DEPTH or sum(1 for _ in tree.walk(root)) > MAX_NODES:
        raise complaint(text, 0, "this expression is too large", hint="print its parts one by one")
    return Expression(text, root)


_Rule = Callable[[], tree.Node]


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> tree.Node:
        if len(self._tokens) == 1:
            raise complaint(self._text, 0, "an expression is missing", hint="write for instance nan(out) or step > 12")
        node = self._either()
        if not self._at_end:
            raise self._unexpected()
        return node

    @property
    def _at_end(self) -> bool:
        return self._tokens[self._at].kind is Kind.END

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._next
        if token.kind is not Kind.END:
            self._at += 1
        return token

    def _accept(self, *texts: str) -> Token | None:
        if self._next.kind in (Kind.SIGN, Kind.NAME) and self._next.text in texts:
            return self._take()
        return None

    def _expect(self, text: str) -> None:
        if self._accept(text) is None:
            raise self._unexpected(f"; {text!r} is missing")

    def _unexpected(self, more: str = "") -> UsageError:
        token = self._next
        what = (
            "the expression ends too early" if token.kind is Kind.END else f"{quoted(token.text)} is not expected here"
        )
        hint = "write the rest of it" if token.kind is Kind.END else "check what stands before it"
        return complaint(self._text, token.column, what + more, hint=hint)

    def _either(self) -> tree.Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise complaint(self._text, self._next.column, f"nested more than {MAX_DEPTH} deep")
        node = self._chain("or", lambda: self._chain("and", self._negation))
        self._depth -= 1
        return node

    def _chain(self, word: str, operand: _Rule) -> tree.Node:
        column = self._next.column
        operands = [operand()]
        while self._accept(word):
            operands.append(operand())
        return operands[0] if len(operands) == 1 else tree.Logic(column, word, tuple(operands))

    def _negation(self) -> tree.Node:
        signs = []
        while token := self._accept("not"):
            signs.append(token)
        return self._wrapped(signs, self._comparison())

    def _wrapped(self, signs: list[Token], node: tree.Node) -> tree.Node:
        for token in reversed(signs):
            node = tree.Unary(token.column, token.text, node)
        return node

    def _comparison(self) -> tree.Node:
        column = self._next.column
        first = self._sum()
        rest = []
        while sign := self._comparison_sign():
            rest.append((sign, self._sum()))
        return tree.Comparison(column, first, tuple(rest)) if rest else first

    def _comparison_sign(self) -> str:
        if token := self._accept(*_COMPARISONS, "in"):
            return token.text
        if self._accept("is"):
            return "is not" if self._accept("not") else "is"
        if self._accept("not"):
            self._expect("in")
            return "not in"
        return ""

    def _sum(self) -> tree.Node:
        return self._left(("+", "-"), lambda: self._left(("*", "/", "//", "%"), self._signed))

    def _left(self, signs: tuple[str, ...], operand: _Rule) -> tree.Node:
        node = operand()
        while token := self._accept(*signs):
            node = tree.Arithmetic(token.column, token.text, node, operand())
        return node

    def _signed(self) -> tree.Node:
        signs = []
        while token := self._accept("-", "+"):
            signs.append(token)
        node = self._postfix()
        if power := self._accept("**"):
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise complaint(self._text, power.column, f"nested more than {MAX_DEPTH} deep")
            node = tree.Arithmetic(power.column, "**", node, self._signed())
            self._depth -= 1
        return self._wrapped(signs, node)

    def _postfix(self) -> tree.Node:
        node = self._atom()
        while True:
            if dot := self._accept("."):
                node = tree.Attribute(dot.column, node, self._attribute())
            elif bracket := self._accept("["):
                node = tree.Index(bracket.column, node, self._keys())
            elif self._next.text == "(" and self._next.kind is Kind.SIGN:
                raise self._not_callable(node)
            else:
                return node

    def _attribute(self) -> str:
        token = self._take()
        if token.kind is not Kind.NAME or keyword.iskeyword(token.text):
            raise complaint(self._text, token.column, "a name is missing after the dot")
        if token.text.startswith("_"):
            raise complaint(
                self._text, token.column, f"{quoted(token.text)} is private", hint="use a name without _ at its start"
            )
        return token.text

    def _keys(self) -> tuple[tree.Node, ...]:
        keys = [self._key()]
        while self._accept(","):
            if self._next.text == "]":
                break
            keys.append(self._key())
        self._expect("]")
        return tuple(keys)

    def _key(self) -> tree.Node:
        column = self._next.column
        start = None if self._next.text == ":" else self._either()
        if self._accept(":") is None:
            assert start is not None
            return start
        stop = None if self._next.text in (":", "]", ",") else self._either()
        step = None
        if self._accept(":"):
            step = None if self._next.text in ("]", ",") else self._either()
        return tree.Slice(column, start, stop, step)

    def _atom(self) -> tree.Node:
        token = self._take()
        if token.kind in (Kind.NUMBER, Kind.TEXT):
            return tree.Literal(token.column, token.value)
        if token.kind is Kind.NAME:
            return self._named(token)
        if token.kind is Kind.SIGN and token.text in ("(", "["):
            return self._enclosed(token)
        self._at -= token.kind is not Kind.END
        raise self._unexpected()

    def _named(self, token: Token) -> tree.Node:
        name = token.text
        if name in _CONSTANTS:
            return tree.Literal(token.column, _CONSTANTS[name])
        if keyword.iskeyword(name):
            raise complaint(self._text, token.column, f"{name!r} is not part of expressions")
        if name.startswith("__"):
            raise complaint(
                self._text, token.column, f"{quoted(name)} is private", hint="use a name without __ at its start"
            )
        return self._call(token) if self._accept("(") else tree.Name(token.column, name)

    def _call(self, token: Token) -> tree.Node:
        signature = SIGNATURES.get(token.text)
        if signature is None:
            raise complaint(
                self._text,
                token.column,
                f"unknown function {quoted(token.text)}",
                hint="use one of: " + " ".join(sorted(SIGNATURES)),
            )
        arguments = self._items(")")
        if not signature.least <= len(arguments) <= (signature.most or len(arguments)):
            wanted = f"at least {signature.least}" if signature.most is None else str(signature.least)
            message = f"{token.text} takes {wanted} argument, not {len(arguments)}"
            raise complaint(self._text, token.column, message, hint=f"use {token.text} for: {signature.meaning}")
        return tree.Call(token.column, token.text, arguments)

    def _not_callable(self, node: tree.Node) -> UsageError:
        hint = "use a function: " + " ".join(sorted(SIGNATURES))
        if isinstance(node, tree.Attribute) and node.name in SIGNATURES:
            hint = f"write {node.name}(...) instead of ....{node.name}()"
        return complaint(self._text, self._next.column, "methods and objects cannot be called here", hint=hint)

    def _enclosed(self, opening: Token) -> tree.Node:
        closing = ")" if opening.text == "(" else "]"
        items = self._items(closing)
        is_group = opening.text == "(" and len(items) == 1 and self._tokens[self._at - 2].text != ","
        if is_group:
            return items[0]
        return tree.Sequence(opening.column, items)

    def _items(self, closing: str) -> tuple[tree.Node, ...]:
        items: list[tree.Node] = []
        while self._accept(closing) is None:
            items.append(self._either())
            if self._accept(",") is None:
                self._expect(closing)
                break
        return tuple(items)
