"""``_native.python_scan`` in plain Python: the expression is read from its beginning each time, in whole tokens."""

import re

_STRINGS = re.compile(
    r"'''(?:[^\\']|\\.|'(?!''))*'''|\"\"\"(?:[^\\\"]|\\.|\"(?!\"\"))*\"\"\""
    r"|'(?!'')(?:[^\\']|\\.)*'|\"(?!\"\")(?:[^\\\"]|\\.)*\"",
    re.DOTALL,
)
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
MAX_DEPTH = 128


def end_of(text: str) -> tuple[int, bool, bool]:
    """Where the expression in ``text`` stops, whether it is over there, and whether at a wrong bracket."""
    open_: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char in "'\"":
            found = _STRINGS.match(text, at)
            if found is None:
                return len(text), False, False
            at = found.end()
            continue
        if char in _CLOSERS:
            if len(open_) == MAX_DEPTH:
                return at, False, True
            open_.append(_CLOSERS[char])
        elif char in ")]}":
            if not open_ or open_.pop() != char:
                return at, False, True
            if not open_:
                return at + 1, True, False
        at += 1
    return at, False, False
