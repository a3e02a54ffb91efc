"""What replaces our own code in tests: it hits all of it, or says so."""

import sys
from types import ModuleType

import pytest

from cases.patching import patched_everywhere, patched_method
from expunge.engine.couplings import common, joint, sequential


@pytest.fixture
def module(monkeypatch):
    """A module of ours, of the test's own."""
    made = ModuleType("expunge.made_up")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_a_function_is_replaced_in_all_that_use_it(module):
    module.toss = common.keep_or_jump
    with patched_everywhere("keep_or_jump", lambda *given: "heads"):
        assert [one() for one in (common.keep_or_jump, joint.keep_or_jump, sequential.keep_or_jump)] == ["heads"] * 3
        assert module.toss() == "heads"  # under another name, too
    assert module.toss is common.keep_or_jump is joint.keep_or_jump


@pytest.mark.parametrize("name", ["keep_or_leap", "expunge.engine.couplings.common.keep_or_leap"])
def test_what_is_not_there_cannot_be_replaced(name):
    with pytest.raises(AssertionError, match="nothing of ours is called so"), patched_everywhere(name, print):
        pass


def test_a_name_that_several_things_have_needs_a_module(module):
    module.keep_or_jump = module.LARGEST = print
    with pytest.raises(AssertionError, match="name the module"), patched_everywhere("keep_or_jump", print):
        pass
    with patched_everywhere("expunge.engine.couplings.common.keep_or_jump", lambda: "heads"):
        assert common.keep_or_jump() == "heads"
        assert module.keep_or_jump is print


def test_a_number_is_replaced_where_it_is_called_the_same(module):
    module.LARGEST, module.OTHER = 1000, 1000
    with patched_everywhere("expunge.made_up.LARGEST", 5):
        assert (module.LARGEST, module.OTHER) == (5, 1000)


def test_what_nobody_calls_is_no_replacement():
    with pytest.raises(AssertionError, match="nobody has called"), patched_everywhere("keep_or_jump", print):
        pass
    with pytest.raises(AssertionError, match="nobody has called"), patched_method(Base, "name", print):
        Derived().name()


def test_what_went_wrong_inside_is_not_hidden():
    with pytest.raises(ZeroDivisionError), patched_everywhere("keep_or_jump", print):
        1 / 0  # noqa: B018


def test_a_module_that_is_imported_meanwhile_and_keeps_the_replacement_is_named(module):
    def import_and_use():
        module.kept = common.keep_or_jump
        module.kept()

    with pytest.raises(AssertionError, match="made_up"), patched_everywhere("keep_or_jump", lambda: None):
        import_and_use()


class Base:
    def name(self):
        return "base"

    def other(self):
        return "other"

    @classmethod
    def made(cls, number):
        return number


class Derived(Base):
    def name(self):
        return "derived"


def test_a_method_is_replaced_in_the_class_that_defines_it():
    with patched_method(Base, "other", lambda self: "new"):
        assert Derived().other() == "new"
    with patched_method(Base, "made", lambda number: number + 1):
        assert Derived.made(1) == Base().made(1) == 2
    assert (Base().other(), Base.made(1)) == ("other", 1)
    with pytest.raises(AssertionError, match="does not define other"), patched_method(Derived, "other", print):
        pass
