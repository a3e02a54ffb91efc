"""Files of federations whose last round is exact: deaths at any point, erased contributions, old files beside new."""

import numpy as np
import pytest

import expunge.federated as federated
from cases.stored_federations import (
    ANN,
    EVE,
    NAMES,
    all_bytes,
    answer,
    copied,
    draw,
    let_in,
    make_rounds,
    new,
    sealed_of,
    whole,
)
from expunge.store import failpoints
from expunge.store.state import KNOWN


class Died(BaseException):
    """What nothing catches."""


@pytest.fixture
def hook():
    yield
    failpoints.hook = None


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """All rounds are made but the last, for which all but one have answered."""
    path = tmp_path_factory.mktemp("begun") / "federation"
    with pytest.MonkeyPatch.context() as patches:
        draw(patches, 400)
        with new(path, finish="exact", rho=0.5) as federation:
            make_rounds(federation, 3)
            answer(federation, federation.tasks()[:-1])
    return path


def leaves(federation):
    if ANN in federation.members:
        federation.forget(ANN)


def enters(federation):
    if EVE not in federation.members:
        let_in(federation, [EVE])


@pytest.mark.parametrize("point", failpoints.FEDERATION)
@pytest.mark.parametrize("seed", range(3))
def test_whenever_the_server_dies_the_next_one_ends_with_the_same_bits(begun, tmp_path, monkeypatch, hook, point, seed):
    def die(name):
        if name == point:
            raise Died

    def told(path, *, dying):
        """A round, a departure, rounds, an arrival, and rounds again; return all that is kept at last."""
        draw(monkeypatch, 500 + 50 * seed)
        deaths = 0
        for act in (make_rounds, leaves, make_rounds, enters, make_rounds):
            failpoints.hook = die if dying else None
            federation = federated.open(path)
            try:
                act(federation)
            except Died:
                deaths += 1
                failpoints.hook = None
                federation.close()
                federation = federated.open(path)
                act(federation)
            failpoints.hook = None
            assert federation.verify().ok
            assert federation.verify_receipts().ok
            kept = whole(federation)
            federation.close()
        return kept, deaths

    expected, none = told(copied(begun, tmp_path / "one"), dying=False)
    found, deaths = told(copied(begun, tmp_path / "other"), dying=True)
    assert (deaths > 0, none) == (True, 0)
    assert found == expected


def test_of_who_leaves_no_byte_stays_and_of_the_others_the_last_contributions_do_if_it_was_not_asked_before(
    tmp_path, monkeypatch
):
    kept = []
    for seed in range(600, 606):
        draw(monkeypatch, seed)
        path = tmp_path / f"{seed}" / "federation"
        path.parent.mkdir()
        with new(path, finish="exact", rho=0.5) as federation:
            make_rounds(federation)
            sealed, key = sealed_of(federation), federation.clients.members[ANN].key
            sampled = key < 2**63
            assert sum(name == ANN for name, _ in sealed) == (4 if sampled else 1)
            federation.forget(ANN)
            kept.append(federation.finished)
            assert federation.finished != sampled
            left = sealed_of(federation)
            expected = {(name, step) for name, step in sealed if name != ANN and (not sampled or step == 0)}
            assert set(left) == expected
        content = all_bytes(path)
        assert str(key).encode() not in content
        for which, blob in sealed.items():
            assert (blob[:40] in content) == (which in left)
    assert {True, False} == set(kept)


def test_a_plan_that_an_earlier_version_wrote_has_no_finish(tmp_path):
    for finish in (None, "exact"):
        with new(tmp_path / str(finish), finish=finish) as federation:
            text = KNOWN.write(federation.plan)
        assert ('"finish"' in text) == (finish is not None)  # so that digests in receipts are the same, too
        assert KNOWN.read(text) == federation.plan


def test_a_file_says_how_it_ends(tmp_path):
    for finish in ("exact", None):
        path = tmp_path / str(finish)
        with new(path, finish=finish, rho=0.5) as federation:
            make_rounds(federation)
            let_in(federation, [EVE])
            make_rounds(federation)
        with federated.open(path) as federation:
            assert federation.plan.finish == finish
            assert federation.members == sorted([*NAMES, EVE])
            assert federation.verify().ok
        assert all(np.isfinite(array).all() for array in federated.load(path).values())
