"""Reports: one file that needs nothing else, escapes what users give, and is the same every time."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import expunge
from expunge.audit import render, report, write_report
from expunge.audit.diagrams import noise_diagram, plan_diagram
from expunge.audit.findings import (
    Activity,
    Audit,
    Calibration,
    CalibrationBin,
    Check,
    ClassScore,
    Drawing,
    Facts,
    Noise,
    Score,
)
from expunge.audit.page import shown
from expunge.audit.plots import activity_plot, calibration_plot, score_plot
from expunge.audit.score_tables import share_or_dash
from expunge.base.errors import NotAStore, StoreError
from expunge.solvers import DualAveraging

pytest.importorskip("matplotlib")
RNG = np.random.default_rng(5)
X = RNG.normal(size=(80, 3)) / 3
IDS = np.array([f"person {number:03d}" for number in range(80)])
HOSTILE = ["</td><script>alert(1)</script>", '"onload="x', "$\\frac{&amp;", "日本\u202e\x07", "a" * 500]
Y = np.array(HOSTILE)[np.arange(80) % 5]
VOID = {"meta", "br", "link", "img", "hr", "input"}


class Page(HTMLParser):
    """Checks that a page is well formed, and keeps what is in it."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.attributes, self.ids, self.said = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.said.append(data)

    @property
    def text(self):
        return " ".join(self.said)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("folder of a store") / "<b>model&.expunge"
    expunge.LogisticRegression(rho=0.5, solver=DualAveraging(steps=16)).fit(X, Y, ids=IDS).save(path)
    with expunge.open(path) as model:
        model.unlearn(IDS[:3])
        model.insert(X[:1], Y[:1], ids=["newcomer"])
        model.replace(X[5:6], Y[5:6], ids=IDS[5:6])
    return path


@pytest.fixture(scope="module")
def audited(store, audit_quickly):
    """Audits the store."""
    return lambda: audit_quickly(store, seed=7, ids=IDS[[0, 2]], rows=X[[1]], test=(X, Y))


@pytest.fixture(scope="module")
def found(audited):
    return audited()


@pytest.fixture(scope="module")
def text(found):
    return render(found)


@pytest.fixture
def _undrawn(monkeypatch):
    """Pictures take a while, and some tests are not about them."""
    for name in ("plan_diagram", "noise_diagram", "noise_plot", "activity_plot", "score_plot", "calibration_plot"):
        monkeypatch.setattr(report, name, lambda what: "<svg></svg>")


def test_a_report_is_one_well_formed_page_that_needs_nothing_else(text):
    page = Page(text)
    assert {"html", "title", "main", "h1", "h2", "table", "caption", "svg", "figure", "footer"} <= set(page.tags)
    assert not {"script", "link", "img", "iframe", "object", "image", "form"} & set(page.tags)
    for name, value in page.attributes:
        assert not name.startswith("on"), name
        if name in ("src", "href", "xlink:href", "action", "data"):
            assert value.startswith("#"), value
    assert "url(http" not in text
    assert "@import" not in text
    assert len(page.ids) == len(set(page.ids))
    named = [value[1:] for name, value in page.attributes if name == "xlink:href"]
    assert set(named) <= set(page.ids)


def test_a_report_can_be_read_aloud(text):
    assert '<html lang="en">' in text
    assert len(re.findall("<h1>", text)) == 1
    assert len(re.findall(r'<svg role="img" aria-label="[^"]{30,}"', text)) == len(re.findall("<svg", text)) >= 4
    for head in re.findall(r"<th[ >][^>]*", text):
        assert "scope=" in head


def test_what_users_give_is_escaped(text):
    assert "<script" not in text
    assert "<b>model" not in text
    assert "&lt;b&gt;model&amp;.expunge" in text
    assert "\u202e" not in text
    assert "\x07" not in text
    assert "a" * 200 not in text
    page = Page(text)
    assert HOSTILE[0] in page.text
    assert not any(name == "onload" for name, _ in page.attributes)
    assert shown("\ud800") == "\ufffd"


def test_a_report_names_nobody_and_no_folders_and_no_way_a_request_went(text):
    assert "person 0" not in text
    assert "newcomer" not in text
    assert "folder of a store" not in text
    assert "1st id given" in text
    assert "1st row given" in text
    for word in ("replayed_from", "evaluations", "seconds", "probability_"):
        assert word not in text


def test_the_same_store_and_seed_give_the_same_bytes_but_for_the_day(found, text, audited):
    again = audited()
    assert again == found
    today = found.day
    assert render(replace(again, day="2031-01-02")).replace("2031-01-02", today) == text


@pytest.mark.usefixtures("_undrawn")
def test_the_rehearsal_says_its_limit_and_what_was_scaled_down(found):
    text = Page(render(found)).text
    assert "below 0.0001 is a problem. That limit was fixed beforehand" in text
    assert "in one audit of 10,000" in text
    assert "records 1,024 6" in " ".join(text.split())
    assert "seed=7" in text


@pytest.mark.usefixtures("_undrawn")
def test_the_verdict_says_what_is_wrong(found):
    assert "No problem was found." in render(found)
    checks = (replace(found.checks[0], result="problem", problems=("sums: row <3>",)), *found.checks[1:])
    text = render(replace(found, checks=checks))
    assert "There is a problem." in text
    assert f"1 of {len(found.with_result('passed')) + len(found.with_result('attention'))} checks failed" in text
    assert "sums: row &lt;3&gt;" in text
    assert "follows from the records in the file and from no others" not in text


def test_a_file_that_could_not_be_opened_has_a_report_too():
    check = Check("opening", "The file can be read", "problem", "It is damaged.", "a", "b", ("no",))
    text = render(Audit("2026-11-15", (("expunge", "0"),), 100, 0, True, Facts("model", 10), (check,)))
    assert "1 of 1 checks failed" in text
    Page(text)


@pytest.mark.usefixtures("_undrawn")
def test_only_the_last_receipts_are_listed(found):
    many = render(replace(found, facts=replace(found.facts, receipts=1234)))
    assert "The last 3 of 1,234" in many
    assert found.facts.head in many


@pytest.mark.parametrize("kind", ["steps", "rounds", "sums"])
@pytest.mark.parametrize(("steps", "noise"), [(1, False), (2, True), (5000, True)])
def test_every_plan_can_be_drawn(kind, noise, steps):
    schedules = {1: "arrival", 2: "shuffled", 5000: "scattered"} if kind == "steps" else {}
    mechanism = {1: "tree", 2: "anytime", 5000: "sqrt"}[steps] if kind == "steps" else "identity"
    rate = 0.5 if steps == 2 else 1.0
    drawing = Drawing(kind, schedules.get(steps, "everyone"), mechanism, steps, 2 if steps == 2 else 1, 4, rate, noise)
    for svg in (plan_diagram(drawing), noise_diagram(drawing)):
        assert svg.startswith('<svg role="img"')
        assert svg.endswith("</svg>")
        assert "<image" not in svg


def test_days_and_months_can_be_drawn():
    days = [Activity("2026-01-31", "delete", 1, 4, 0), Activity("2026-02-01", "replace", 1, 2, 2)]
    assert "by day, 2026-01-31 to 2026-02-01: 4 deleted, 2 corrected" in activity_plot(days)
    months = [Activity("2025-11-30", "insert", 1, 0, 4), Activity("2026-12-01", "delete", 2, 9, 0)]
    assert "by month, 2025-11-30 to 2026-12-01: 9 deleted, 4 added" in activity_plot(months)
    assert "none" in activity_plot([Activity("2026-01-31", "delete", 1, 0, 0)])


@pytest.mark.usefixtures("_undrawn")
def test_scores_of_all_kinds_are_reported(found):
    clusters = Score("clusters", 0, (("mean squared distance to the centre", 0.0),), ("1", "2"), ((0, 0),))
    numbers = Score("numbers", 1, (("R²", -0.5),), edges=(-1.0, 0.0, 1.0), shares=(1.0, 0.0))
    for score in (clusters, numbers):
        assert "Score on the test records" in render(replace(found, score=score))
        assert score_plot(score)
    many = Score("classes", 40, (("accuracy", 0.5), ("most", 0.1)), tuple("abcdefghijklmnop"), ((1,) * 16,) * 16)
    assert "Predictions on the test records" not in render(replace(found, score=many))


def test_precision_recall_and_calibration_are_reported(found, text):
    said = " ".join(Page(text).text.split())
    assert len(found.score.classes) == 5
    for title in ("Precision and recall by class", "Calibration", "Predicted probabilities and what was observed"):
        assert title in said
    assert "AUC, mean of each class against the rest 0." in said
    first = found.score.classes[0]
    assert f"{first.records} {share_or_dash(first.precision)} {share_or_dash(first.recall)}" in said
    for one in found.score.calibration.bins:
        assert f"{one.low:.1f} to {one.high:.1f} {one.records} {one.predicted:g} {one.observed:g}" in said
    assert re.search(r'aria-label="Calibration on 80 test records: 0\.', text)


@pytest.mark.usefixtures("_undrawn")
def test_undefined_scores_are_said_and_not_drawn(found):
    classes = tuple(ClassScore(f"<i>{j}", j, None, 0.5) for j in range(120))
    calibration = Calibration("<i>Yes", (CalibrationBin(0.0, 0.1, 4, 0.05, 0.0),))
    values = (("accuracy", 0.5), ("most", 0.1), ("AUC", None))
    names = ("<i>No", "<i>Yes")
    score = Score("classes", 4, values, names, ((1, 1), (1, 1)), classes=classes, calibration=calibration,
                  notes=("AUC is undefined: <why>.",))  # fmt: skip
    text = render(replace(found, score=score))
    assert "AUC undefined. AUC is undefined: &lt;why&gt;." in text
    assert "The 50 of 120 classes with the most records." in text
    assert "&lt;i&gt;119" in text
    assert "&lt;i&gt;69<" not in text
    assert "The probability of class &lt;i&gt;Yes, and how often" in text
    assert "<i>" not in text
    Page(text)


def test_calibration_of_one_bin_can_be_drawn():
    svg = calibration_plot(Calibration(None, (CalibrationBin(0.9, 1.0, 1, 1.0, 1.0),)))
    assert 'aria-label="Calibration on 1 test record: 1 predicted and 1 observed."' in svg


@pytest.mark.usefixtures("_undrawn")
def test_noise_is_drawn_if_there_is_enough(found):
    edges = tuple(np.arange(-4, 4.5, 0.5).tolist())
    noise = Noise(5000, 1.5, 0.4, edges, (0.1,) * 16)
    assert "The noise in the file" in render(replace(found, noise=noise))
    assert "The noise in the file" not in render(replace(found, noise=replace(noise, edges=(), heights=())))


# --- writing --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_undrawn")
def test_a_report_replaces_an_older_one_and_leaves_nothing_else(found, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("older")
    write_report(found, path)
    assert path.read_text(encoding="utf-8") == render(found)
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.usefixtures("_undrawn")
def test_stores_their_files_and_folders_are_not_overwritten(found, store, tmp_path):
    before = store.read_bytes()
    with pytest.raises(StoreError, match="this is a store"):
        write_report(found, store)
    for ending in ("-key", "-wal", "-lock"):
        with pytest.raises(StoreError, match="belongs to a store"):
            write_report(found, f"{store}{ending}")
    with pytest.raises(NotAStore, match="folder"):
        write_report(found, tmp_path)
    with pytest.raises(StoreError, match="cannot be written"):
        write_report(found, tmp_path / "nowhere" / "report.html")
    assert store.read_bytes() == before
