"""The program itself: help, version, exit codes, completion, terminals, pipes; and through a fresh interpreter."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from cli.conftest import ESCAPE, flat
from cli.tables import people, schema, write_csv
from cli.zygote import COLUMNS, environment
from expunge import __version__
from expunge.cli.app import COMMANDS, app
from expunge.cli.output import EXIT_CODES

NAMES = [command.__name__ for _, group in COMMANDS for command in group]
GROUP = typer.main.get_command(app)


# --- help ---------------------------------------------------------------------------------------------


def test_the_help_lists_all_commands_and_exit_codes(done, run):
    said = done("--help")
    assert done("-h") == said
    for name in NAMES:
        assert re.search(rf"^  {name} +\w", said, re.MULTILINE), name
    for code, meaning in EXIT_CODES.items():
        assert f"{code:>5}  {meaning}" in said
    nothing = run()
    assert (nothing.code, nothing.out, nothing.err) == (2, "", said)


@pytest.mark.parametrize("name", NAMES)
def test_the_help_of_a_command_names_all_that_it_takes(name, done):
    said = done(name, "--help")
    for one in GROUP.commands[name].params:
        if one.param_type_name == "argument":
            assert one.metavar in said
            continue
        assert all(f"{option}" in said for option in one.opts)
        assert flat(one.help)[:30] in flat(said)
    assert "--json" in said


def test_a_command_that_is_not_there(refused):
    refused(2, "No such command 'fti'. Did you mean 'fit'? See `expunge --help`.", "fti")
    refused(2, "No such option: --verbose", "--verbose")


def test_the_version(done):
    assert done("--version") == f"expunge {__version__}\n"


# --- completion ---------------------------------------------------------------------------------------


def completed(done, words, shell="bash"):
    asked = {
        "bash": {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": words},
    }[shell]
    return done(env={"_EXPUNGE_COMPLETE": f"complete_{shell}", **asked})


def test_commands_and_options_are_completed(done):
    assert completed(done, "expunge ").split() == NAMES
    assert completed(done, "expunge rep").split() == ["replace", "replan"]
    assert completed(done, "expunge unlearn --sub").split() == ["--subject", "--subjects-file"]
    assert "kmeans" in completed(done, "expunge fit --model ").split()
    assert '"unlearn"' in completed(done, "expunge un", "zsh")


def test_the_script_for_a_shell_can_be_shown(done, start):
    said = done(env={"_EXPUNGE_COMPLETE": "source_bash"})
    assert "_EXPUNGE_COMPLETE=complete_bash" in said
    assert "complete_zsh" in start(env={"_EXPUNGE_COMPLETE": "source_zsh"}).wait().out


# --- terminals and pipes ------------------------------------------------------------------------------


def shown(text):
    """The lines of a terminal's output, without what colours them; what was drawn over stands in lines of its own."""
    return re.split(r"[\r\n]+", re.sub(rf"{ESCAPE}\[[0-9;?]*[A-Za-z]", "", text))


def test_on_a_terminal_there_are_colours_and_bars_and_lines_fit(run, tmp_path):
    write_csv(tmp_path / "people.csv", people())
    (tmp_path / "schema.toml").write_text(schema(confirmed=False))
    asked = ("fit", "people.csv", "--schema", "schema.toml", "-o")
    result = run(*asked, "a", terminal=True)
    assert result.code == 0
    assert "━" in result.out
    assert f"{ESCAPE}[" in result.out
    assert max(map(len, shown(result.out))) <= COLUMNS
    assert {"reading", "training"} <= {line.split(" ")[0] for line in shown(result.out)}
    quiet = run(*asked, "b", "--quiet", terminal=True)
    assert (quiet.code, "━" in quiet.out) == (0, False)
    wrong = run(*asked, "a", terminal=True)
    assert wrong.code == 3
    assert f"{ESCAPE}[1;31mError: {ESCAPE}[0m" in wrong.out
    usage = run("fit", "--nonsense", terminal=True)
    assert (usage.code, max(map(len, shown(usage.out))) <= COLUMNS) == (2, True)


def test_colours_are_off_where_they_are_not_wanted(model, run):
    model()
    result = run("info", "m.expunge", terminal=True, env={"NO_COLOR": "1"})
    assert (result.code, f"{ESCAPE}[3" in result.out) == (0, False)
    found = run("info", "m.expunge", "--json", terminal=True)
    assert (found.code, ESCAPE in found.out) == (0, False)
    assert found.data["records"] == 60


def test_terminals_that_know_few_letters(model, run, tmp_path):
    model()
    env = {"PYTHONIOENCODING": "cp1252"}
    assert run("verify", "m.expunge", "--help", env=env).code == 0
    result = run("plan", "--records", "2e3", "--features", "5", "--rho", "1", "--seconds", "0.01", env=env)
    assert (result.code, "a deletion replays" in result.out) == (0, True)
    (tmp_path / "χ.csv").write_bytes((tmp_path / "others.csv").read_bytes())
    assert run("predict", "m.expunge", "χ.csv", "-o", "π.csv", "--json", env=env).data["predictions"] == "π.csv"
    assert len(run("predict", "m.expunge", "χ.csv", env=env).out.splitlines()) == 21
    assert "?" in run("predict", "m.expunge", "ω.csv", env=env).err


def test_a_list_that_nobody_reads_to_its_end(start):
    here, there = os.pipe()
    os.close(here)
    result = start("--help", out=there).wait()
    os.close(there)
    assert result.code in (0, 1)
    assert result.err == ""


def test_what_the_system_refuses_is_told_with_the_path(model, refused, run, tmp_path):
    path = model()
    refused(3, "schema.toml: File exists; check the path, its permissions", "demo", "--folder", "schema.toml")
    write_csv(tmp_path / "many.csv", people(3000, 101))
    result = run("predict", "m.expunge", "many.csv", "-o", "p.csv", limit=path.stat().st_size // 2)
    assert (result.code, result.out) == (3, "")
    assert "File too large; check the path, its permissions, and the free space on the disk." in flat(result.err)
    assert not list(tmp_path.glob("p.csv*"))


def test_an_error_of_ours_asks_to_be_reported(run, model):
    model()
    result = run("info", "m.expunge", hook={"raise": True})
    assert result.code == 70
    assert "unexpected ZeroDivisionError" in flat(result.err)
    assert "This is an error in Expunge; please report it" in flat(result.err)


# --- a fresh interpreter ------------------------------------------------------------------------------


def fresh(*arguments, cwd, program=(sys.executable, "-m", "expunge")):
    asked = [*program, *map(str, arguments)]
    found = subprocess.run(asked, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found
    return found.stdout


def test_a_module_that_is_run_is_the_program(tmp_path):
    """What README's quick start has is run so too; see test_documented.py."""
    assert fresh("--version", cwd=tmp_path) == f"expunge {__version__}\n"


STORY = (
    ("plan", "--records", "1e3", "--features", "3", "--seconds", "0.01"),
    ("predict", "m.expunge", "others.csv"),
    ("backup", "m.expunge", "monday"),
    ("insert", "m.expunge", "others.csv"),
    ("receipts", "m.expunge", "-o", "r.json"),
    ("scan", "m.expunge", "--id", "12345678"),
    ("restore", "monday", "m.expunge"),
)


def test_other_commands_import_what_they_need(model, done):
    model()
    for asked in STORY:
        done(*asked, hook={"fresh": True})


def test_the_installed_script(tmp_path):
    script = Path(sys.executable).with_name("expunge")
    if not script.exists():
        pytest.skip("it is not installed beside this interpreter")
    assert fresh("--version", cwd=tmp_path, program=(script,)) == f"expunge {__version__}\n"


def test_without_the_extras_it_says_what_to_install(tmp_path):
    code = "import sys; sys.modules['typer'] = None; sys.argv = ['expunge']; from expunge.cli import main; main()"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == "expunge: the command line needs typer; install it with pip install 'expunge[cli]'.\n"
