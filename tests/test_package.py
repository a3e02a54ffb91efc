import subprocess
import sys

import pytest

import expunge


def test_all_names_are_there():
    assert sorted(expunge._HOME) == sorted(expunge.__all__)
    for name in [*expunge.__all__, *expunge._MODULES]:
        assert getattr(expunge, name) is not None
        assert name in dir(expunge)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = expunge.nothing


def test_help_does_not_wait_for_scikit_learn():
    code = "import sys, expunge.cli.app; sys.exit('sklearn' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
