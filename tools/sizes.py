"""Say what in the package is larger than it should be: files, functions, exceptions from type checks.

Exits with 1 if anything is above its limit.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "expunge"
FILE_LINES, FUNCTION_LINES, IGNORES, COMPLEXITY = 450, 60, 15, 12
"""How long a file and a function may be, how many `type: ignore` there may be, and how complex `make_plan`."""
LONG_FILES: frozenset[str] = frozenset()
"""Files that are known to be longer."""
LONG_FUNCTIONS: frozenset[str] = frozenset()
"""Functions that are known to be longer, as file:function."""
BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.comprehension, ast.match_case)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Give all functions and methods."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return how long a function is, signature and docstring included, decorators not."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def complexity(function: ast.AST) -> int:
    """Return how many branches, boolean operators and conditional expressions a function has.

    >>> complexity(ast.parse("if a and b or c:\\n    d = 1 if e else 2"))
    4
    """
    found = 0
    for node in ast.walk(function):
        found += isinstance(node, BRANCHES) + (len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0)
    return found


def complaints() -> Iterator[str]:
    """Give all that is above its limit, line by line."""
    ignores = 0
    for path in sorted(SOURCE.rglob("*.py")):
        name, text = path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8")
        ignores += text.count("# type: ignore")
        lines = text.count("\n")
        if lines > FILE_LINES and name not in LONG_FILES:
            yield f"{name}: {lines} lines, above {FILE_LINES}"
        for function in functions(ast.parse(text)):
            here = f"{name}:{function.name}"
            if lines_of(function) > FUNCTION_LINES and here not in LONG_FUNCTIONS:
                yield f"{here}: {lines_of(function)} lines, above {FUNCTION_LINES}"
            if name.startswith("solvers/plans/linear") and complexity(function) >= COMPLEXITY:
                yield f"{here}: complexity {complexity(function)}; it should be below {COMPLEXITY}"
    if ignores > IGNORES:
        yield f"type: ignore: {ignores} times, above {IGNORES}"
    print(f"type: ignore: {ignores} times")


def main() -> int:
    """Print what is too large; return 1 if anything is."""
    found = list(complaints())
    print("\n".join(found) or "Everything is within its limits.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
