import subprocess
import sys
from pathlib import Path

import pytest

import expunge


def test_all_names_are_there():
    assert sorted(" ".join(expunge._HOMES.values()).split()) == sorted(expunge.__all__)
    for name in [*expunge.__all__, *expunge._ROOMS]:
        assert getattr(expunge, name) is not None
        assert name in dir(expunge)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = expunge.nothing


def test_only_names_for_users_are_offered():
    offered = {name for name in dir(expunge) if not name.startswith("__")}
    assert offered == {*expunge.__all__, *expunge._ROOMS}
    assert {"__version__", "__doc__", "__all__"} <= set(dir(expunge))


def test_help_does_not_wait_for_scikit_learn():
    code = "import sys, expunge.cli.app; sys.exit('sklearn' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_environments_are_compiled_when_they_are_made():
    """Where PYTHONDONTWRITEBYTECODE is set, a command would else compile all that it imports, each time."""
    recipes = (Path(__file__).parents[1] / "Makefile").read_text()
    assert "pip install" in recipes
    assert "--no-compile" not in recipes
    assert "compileall" in recipes
