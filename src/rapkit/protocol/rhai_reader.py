"""Evaluate a Rhai script in one pass while reading it. Scripts have no loops and no functions, so evaluation always ends.

What is not taken (a branch, the other side of `&&`, `||` and `??`) is read too, and skipped.
"""

from collections.abc import Mapping
from typing import Any

from rapkit.protocol.rhai_tokens import fail, in_range, number, tokens_of, unescaped
from rapkit.protocol.rhai_values import call, char, item_of, operate, property_of

_DEEPEST = 16
_MOST_WORK = 1_000_000
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("==", "!="),
    ("in",),
    ("<", "<=", ">", ">="),
    ("??",),
    ("+", "-"),
    ("*", "/", "%"),
)
"""What binds weakest comes first; of equals, what stands first."""

_LAZY = {"||": True, "&&": False}
_WORDS = frozenset(("let", "const", "if", "else", "true", "false", "return", "in"))


class _Returned(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class Reader:
    """One script over one call's arguments."""

    def __init__(self, script: str, arguments: Mapping[str, Any]) -> None:
        self._tokens = tokens_of(script)
        self._next = 0
        self._scopes: list[dict[str, Any]] = [{"args": arguments}]
        self._depth = 0
        self._work = 0
        self._skips = False

    def read(self) -> Any:
        """What the script says."""
        try:
            value = self._statements()
        except _Returned as returned:
            return returned.value
        return value if self._next == len(self._tokens) else fail()

    def check(self) -> None:
        """Read the script, and evaluate nothing of it."""
        self._skips = True
        self.read()

    # Words

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        at = self._next + ahead
        return self._tokens[at] if at < len(self._tokens) else ("", "")

    def _takes(self, *signs: str) -> str | None:
        """The next token, if it is one of these: it is read then."""
        kind, text = self._peek()
        if kind in ("sign", "name") and text in signs:
            self._next += 1
            return text
        return None

    def _needs(self, sign: str) -> None:
        if not self._takes(sign):
            fail()

    def _name(self) -> str:
        kind, text = self._peek()
        self._next += 1
        return text if kind == "name" else fail()

    # Statements

    def _statements(self) -> Any:
        """The value of the last one, unless a semicolon ends it."""
        value = None
        while self._peek() not in (("", ""), ("sign", "}")):
            if self._takes(";"):
                value = None
                continue
            is_block = self._peek() in (("name", "if"), ("sign", "{"))
            value = self._statement()
            if self._takes(";"):
                value = None
            elif not is_block and self._peek() not in (("", ""), ("sign", "}")):
                fail()
        return value

    def _statement(self) -> Any:
        if self._takes("let", "const"):
            name = self._variable()
            value = self._expression() if self._takes("=") else None
            if not self._skips:
                self._scopes[-1][name] = value
            return None
        if self._takes("return"):
            value = None if self._peek() in (("", ""), ("sign", "}"), ("sign", ";")) else self._expression()
            if self._skips:
                return None
            raise _Returned(value)
        if self._peek()[0] == "name" and self._peek(1) in (("sign", "="), ("sign", "+=")):
            return self._assignment()
        return self._expression()

    def _variable(self) -> str:
        name = self._name()
        return name if name not in _WORDS else fail()

    def _assignment(self) -> None:
        name, sign = self._variable(), self._takes("=", "+=")
        value = self._expression()
        if self._skips:
            return
        scope = next((each for each in reversed(self._scopes) if name in each), None)
        if scope is None:
            fail()
        scope[name] = value if sign == "=" else self._operated("+", scope[name], value)

    def _block(self, *, skips: bool) -> Any:
        outer, self._skips = self._skips, skips
        self._needs("{")
        self._scopes.append({})
        value = self._statements()
        self._scopes.pop()
        self._needs("}")
        self._skips = outer
        return value

    # Expressions

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            fail()

    def _expression(self) -> Any:
        self._deeper()
        value = self._level(0)
        self._depth -= 1
        return value

    def _level(self, level: int) -> Any:
        if level == len(_LEVELS):
            return self._unary()
        value = self._level(level + 1)
        while sign := self._takes(*_LEVELS[level]):
            outer = self._skips
            if sign in _LAZY or sign == "??":
                if not outer and sign in _LAZY and not isinstance(value, bool):
                    fail()
                decided = value is not None if sign == "??" else value is _LAZY[sign]
                self._skips = outer or decided
                other = self._level(level + 1)
                if not self._skips:
                    value = other if sign == "??" or isinstance(other, bool) else fail()
                self._skips = outer
                continue
            other = self._level(level + 1)
            if not self._skips:
                value = self._operated(sign, value, other)
        return value

    def _operated(self, sign: str, one: Any, other: Any) -> Any:
        self._charge(one)
        self._charge(other)
        return operate(sign, one, other)

    def _charge(self, value: Any) -> None:
        """Strings and arrays take as long as they are."""
        self._work += len(value) if isinstance(value, str | list) else 1
        if self._work > _MOST_WORK:
            fail()

    def _unary(self) -> Any:
        if self._takes("!"):
            self._deeper()
            value = self._unary()
            self._depth -= 1
            return None if self._skips else (not value if isinstance(value, bool) else fail())
        if self._takes("-"):
            kind, text = self._peek()
            if kind == "number":
                self._next += 1
                return number(f"-{text}")
            value = self._postfix(self._operand())
            if self._skips:
                return None
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return in_range(-value) if is_number and (kind != "sign" or text == "(") else fail()
        is_block = self._peek() in (("name", "if"), ("sign", "{"))
        value = self._operand()
        return value if is_block else self._postfix(value)

    def _operand(self) -> Any:
        if self._takes("("):
            return self._rest_of_parentheses()
        if self._takes("if"):
            return self._rest_of_if()
        if self._peek() == ("sign", "{"):
            return self._block(skips=self._skips)
        if word := self._takes("true", "false"):
            return word == "true"
        kind, text = self._peek()
        if kind == "name":
            return self._variable_or_function()
        self._next += 1
        match kind:
            case "number":
                return number(text)
            case "text":
                return text
            case "string":
                return unescaped(text[1:-1])
            case "char":
                return char(unescaped(text[1:-1]))
        return fail()

    def _variable_or_function(self) -> Any:
        name = self._variable()
        if self._takes("("):
            given = self._arguments()
            return None if self._skips else self._called(name, given[0], given[1:]) if given else fail()
        if self._skips:
            return None
        scope = next((each for each in reversed(self._scopes) if name in each), None)
        return fail() if scope is None else scope[name]

    def _rest_of_parentheses(self) -> Any:
        if self._takes(")"):
            return None
        value = self._expression()
        self._needs(")")
        return value

    def _arguments(self) -> list[Any]:
        given: list[Any] = []
        while not self._takes(")"):
            if given:
                self._needs(",")
            given.append(self._expression())
        return given

    def _postfix(self, value: Any) -> Any:
        """What follows a value: properties, methods and indices. Behind `?` they are skipped, and unit, if the value is."""
        outer = self._skips
        while sign := self._takes(".", "?.", "[", "?["):
            if sign.startswith("?") and value is None:
                self._skips = True
            if sign.endswith("["):
                index = self._expression()
                self._needs("]")
                value = None if self._skips else item_of(value, index)
                continue
            name = self._name()
            if self._takes("("):
                given = self._arguments()
                value = None if self._skips else self._called(name, value, given)
            else:
                value = None if self._skips else property_of(value, name)
        self._skips = outer
        return value

    def _called(self, name: str, value: Any, given: list[Any]) -> Any:
        self._charge(value)
        return call(name, value, given)

    def _rest_of_if(self) -> Any:
        """The value of the first branch whose condition holds; unit, if there is none."""
        value, decided = None, False
        while True:
            outer, self._skips = self._skips, self._skips or decided
            condition = self._expression()
            skips, self._skips = self._skips, outer
            if not skips and not isinstance(condition, bool):
                fail()
            takes = not skips and condition is True
            branch = self._block(skips=not takes)
            value, decided = (branch, True) if takes else (value, decided)
            if not self._takes("else"):
                return value
            if not self._takes("if"):
                last = self._block(skips=outer or decided)
                return value if decided else last
