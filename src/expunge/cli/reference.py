"""The documentation of all commands, made from what their --help says: `python -m expunge.cli.reference`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from expunge.cli.app import COMMANDS, app
from expunge.cli.output import EXIT_CODES

INTRODUCTION = """\
# Commands

All commands of `expunge`; `expunge COMMAND --help` prints the same. For a tour see [cli.md](cli.md).

With `--json` every command prints one JSON object to standard output, also for errors:
`{"error": {"kind", "message", "exit_code"}}`. Without it, notes and errors go to standard error.
"""


def reference() -> str:
    """Return the documentation of all commands, as Markdown."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("expunge", [], resilient_parsing=True)
    lines = [INTRODUCTION, "## Exit codes\n", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    for title, functions in COMMANDS:
        lines += ["", f"## {title}"]
        for function in functions:
            lines += ["", *_command(group.get_command(context, function.__name__))]
    return "\n".join(lines) + "\n"


def _command(command: Any) -> Iterator[str]:
    yield f"### {command.name}"
    yield ""
    required = [one for one in command.params if one.required]
    usage = [f"{_name(one)}..." if one.nargs == -1 else _name(one).rpartition(", ")[2] for one in required]
    yield f"`expunge {' '.join([command.name, *usage])}`"
    yield ""
    for paragraph in inspect.cleandoc(command.help).split("\n\n"):
        yield " ".join(paragraph.split())
        yield ""
    yield "| | |"
    yield "|---|---|"
    for one in command.params:
        usual = "" if one.default in (None, False, ()) or one.required else f" By default {one.default}."
        name = _name(one).replace("|", "\\|")
        yield f"| `{name}` | {one.help}{usual} |"


def _name(parameter: Any) -> str:
    """Return how a parameter is written."""
    value = parameter.metavar or ""
    if parameter.param_type_name == "argument":
        return str(value)
    return " ".join([", ".join(sorted(parameter.opts, key=len)), *([value] if value else [])])


if __name__ == "__main__":
    print(reference(), end="")
