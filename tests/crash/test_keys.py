"""A process that dies while it writes a key leaves none, or a whole one."""

import os

import pytest

import expunge
from cases.store_stories import write_store
from expunge.store import keys


class Died(BaseException):
    """The process is no more."""


def test_after_a_death_in_writing_the_key_the_model_can_be_saved_again(tmp_path, monkeypatch):
    def die(*_):
        raise Died

    path = tmp_path / "model"
    with monkeypatch.context() as patches:
        patches.setattr(keys, "open", die, raising=False)  # the file is there, and nothing is in it
        patches.setattr(os, "unlink", lambda path, **_: None)  # nor is anything tidied up
        with pytest.raises(Died):
            write_store("ridge", path)
    assert not path.exists()
    write_store("ridge", path)
    with expunge.open(path) as model:
        assert model.verify().ok
    assert not list(tmp_path.glob("*-new*"))
