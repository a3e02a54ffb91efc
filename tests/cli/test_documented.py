"""What is documented is so: every line of the quick start and of the tour runs, every command and option is listed."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from expunge.cli.demo import write_patients
from expunge.cli.reference import reference

ROOT = Path(__file__).resolve().parents[2]


def console(page):
    """Return the commands of a page, line by line."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.fixture
def demo(tmp_path):
    """A folder with the tables that the demo leaves."""
    (tmp_path / "out" / "demo").mkdir(parents=True)
    write_patients(tmp_path / "out" / "demo")
    return tmp_path


def test_every_command_and_option_is_documented_as_it_says_itself():
    assert (ROOT / "docs" / "commands.md").read_text() == reference(), "run `make docs`"


def test_the_quick_start_of_the_readme_runs_line_by_line(demo, done):
    """The first line in a fresh interpreter, as a newcomer's; the others in forks of one."""
    first, *lines = console("README.md")
    assert first == ". .venv/bin/activate"
    assert len(lines) == 6
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "expunge"
        if line is lines[0]:
            subprocess.run([sys.executable, "-m", "expunge", *arguments], cwd=demo, check=True, capture_output=True)
        else:
            done(*arguments)
    assert "No problem was found" in (demo / "report.html").read_text()


@pytest.mark.long
def test_the_tour_runs_line_by_line(demo, done):
    lines = console("docs/cli.md")
    assert {line.split()[1] for line in lines if line.startswith("expunge")} >= {
        "schema", "plan", "fit", "info", "predict", "evaluate", "unlearn", "insert", "replace", "receipts", "verify",
        "scan", "audit", "keygen", "backup", "restore", "compact",
    }  # fmt: skip
    for line in lines:
        if line.startswith("expunge"):
            done(*shlex.split(line)[1:])
        else:
            subprocess.run(line, shell=True, cwd=demo, check=True)


def test_commands_that_the_makefile_and_texts_name_are_there(done):
    make = shutil.which("make")
    assert make is not None
    for target in re.findall(r"^make ([\w-]+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        subprocess.run([make, "-n", target], cwd=ROOT, check=True, capture_output=True)
    named = set()
    for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", *(ROOT / "src" / "expunge" / "cli").glob("*.py")]:
        named |= set(re.findall(r"`expunge ([a-z]+)[ `]", page.read_text()))
    assert {"schema", "fit", "unlearn", "audit"} <= named
    for command in named:
        assert f"expunge {command}" in done(command, "--help")
