"""Chapters of the reproduction run on tiny sizes, their judges can say no, and the page holds what they say."""

import copy
import io
import json

import pytest

from benchmarks.paper import chapters, complexity, reproduce, sgd_2021, space, tradeoff
from benchmarks.paper.chapters import Chapter, Table, Verdict
from benchmarks.paper.measuring import Curve, Mean, all_at_most, at_least, at_most, ratio_at_equal_x, slope_of
from benchmarks.paper.page import counted, page_of

TINY = {
    "tradeoff": lambda watch: tradeoff.measure_at(
        tradeoff.Sizes(96, (0.3, 0.7, 1.0), runs=2, pilots=1, replays=2, least=8, most=20), watch
    ),
    "sgd_2021": lambda watch: sgd_2021.measure_at(
        sgd_2021.Sizes(3, 128, (0.3, 0.6), 0.5, (64, 128), runs=2, pilots=1, deletions=8), watch
    ),
    "complexity": lambda watch: complexity.measure_at(
        complexity.Sizes(
            64, (32, 64), 96, (2, 4), (0.2, 0.5), 12, runs=2, replays=4, least=8, most=16, trials=20, longest=16
        ),
        watch,
    ),
}
CHAPTERS = {module.CHAPTER.name: module.CHAPTER for module in (tradeoff, sgd_2021, complexity)}


@pytest.fixture(scope="module")
def tiny():
    found = {}
    for name, measure in TINY.items():
        shares = []
        result = measure(shares.append)
        assert shares == sorted(shares)
        assert shares[-1] == pytest.approx(1.0)
        found[name] = {"quick": True, "commit": "none", "seconds": 1.0, **json.loads(json.dumps(result))}
    return found


@pytest.mark.parametrize("name", TINY)
def test_a_chapter_draws_judges_and_tabulates_from_json(name, tiny):
    chapter, result = CHAPTERS[name], tiny[name]
    before = copy.deepcopy(result)
    file = io.BytesIO()
    chapter.draw(result).savefig(file, dpi=30)
    assert file.tell() > 1000
    verdicts = chapter.judge(result)
    assert verdicts
    assert all(verdict.held in (True, False, None) and verdict.found for verdict in verdicts)
    assert len({verdict.claim for verdict in verdicts}) == len(verdicts)
    for table in chapter.tables(result):
        assert all(len(row) == len(table.head) for row in table.rows)
    assert result == before


def _fell_like(points, exponent, x, noise=1e-4):
    """Let the excess fall like a power of what is written at x, known almost exactly."""
    for point in points:
        at = x(point)
        point["excess"] = {"mean": 0.1 * at**exponent, "error": noise * 0.1 * at**exponent, "runs": 8}


def _verdict(chapter, result, *words):
    (found,) = [v for v in chapter.judge(result) if all(word in v.claim for word in words)]
    return found


def _steady(result):
    for row in result["rows"]:
        row["unlearned"] = 1e9
        for points in row["curves"].values():
            for p, rho in zip(points, (0.01, 0.03, 0.1, 1.0), strict=True):
                p["rho"] = rho
                p["complexity"] = {"mean": rho / 2, "error": 1e-5 * rho, "runs": 8}
                p["replays"], p["deletions"] = {"mean": rho, "error": 0.0, "runs": 8}, 10_000
    return result


@pytest.fixture
def traded(tiny):
    result = copy.deepcopy(tiny["tradeoff"])
    for row in result["rows"]:
        for points in row["curves"].values():
            points.insert(0, copy.deepcopy(points[0]))
    return _steady(result)


@pytest.mark.parametrize(("exponent", "held"), [(-1.3, True), (-1.0, True), (-0.5, False)])
def test_a_trade_off_that_falls_too_slowly_is_missed(exponent, held, traded):
    points = traded["rows"][0]["curves"]["paper's"]
    _fell_like(points, exponent, lambda p: p["complexity"]["mean"])
    points[-1]["excess"]["mean"] = 1e-9
    assert _verdict(tradeoff.CHAPTER, traded, "Row 1", "paper's").held is held


def test_ours_must_be_better_at_equal_complexity(traded):
    curves = traded["rows"][1]["curves"]
    for who, factor in (("paper's", 1.0), ("ours", 2.0)):
        _fell_like(curves[who], -0.5, lambda p: p["complexity"]["mean"])
        for p in curves[who]:
            p["excess"]["mean"] *= factor
    assert _verdict(tradeoff.CHAPTER, traded, "Row 2", "smaller excess").held is False
    for p in curves["ours"]:
        p["excess"]["mean"] /= 4.0
    assert _verdict(tradeoff.CHAPTER, traded, "Row 2", "smaller excess").held is True


def test_a_complexity_above_rho_is_missed(traded):
    assert _verdict(tradeoff.CHAPTER, traded, "All rows, ours").held is True
    traded["rows"][3]["curves"]["ours"][0]["complexity"]["mean"] = 0.02
    assert _verdict(tradeoff.CHAPTER, traded, "All rows, ours").held is False


@pytest.mark.parametrize(("exponent", "held"), [(-1.0, True), (-2 / 3, False)])
def test_frank_wolfe_with_the_rate_of_2021_is_missed(exponent, held, tiny):
    result = copy.deepcopy(tiny["sgd_2021"])
    (quiet,) = [p for p in result["points"] if p["who"] == sgd_2021.FRANK_WOLFE and p["rho"] == 1.0]
    quiet["excess"]["mean"] = 1e-9
    points = [p for p in result["points"] if p["who"] == sgd_2021.FRANK_WOLFE and p["sweep"] == "ρ" and p["rho"] < 1.0]
    more = {**copy.deepcopy(points[0]), "rho": 0.1}
    result["points"].insert(0, more)
    _fell_like([more, *points], exponent, lambda p: p["n"] * p["rho"])
    assert _verdict(sgd_2021.CHAPTER, result, "Frank-Wolfe (2023), against nρ by ρ").held is held


def test_a_point_of_both_sweeps_is_measured_once(monkeypatch):
    measured = []

    def point(sweep, who, n, rho, sizes):
        measured.append((who, n, rho))
        return {"sweep": sweep, "who": who, "n": n, "rho": rho}

    monkeypatch.setattr(sgd_2021, "_point", point)
    sizes = sgd_2021.Sizes(3, 128, (0.3, 0.5), 0.5, (64, 128), runs=2, pilots=1, deletions=8)
    points = sgd_2021.measure_at(sizes, lambda share: None)["points"]
    assert len(points) == 2 * (3 + 2)
    assert sorted(measured) == sorted({(p["who"], p["n"], p["rho"]) for p in points})
    assert [p["sweep"] for p in points if (p["n"], p["rho"]) == (128, 0.5)] == ["ρ", "ρ", "n", "n"]


@pytest.mark.parametrize(("exponent", "held"), [(1.0, True), (0.5, False)])
def test_a_cost_that_does_not_fall_like_rho_is_missed(exponent, held, tiny):
    result = copy.deepcopy(tiny["complexity"])
    points = [p for p in result["points"] if p["panel"] == "prefix, ρ" and p["way"] == "sequential"]
    more = {**copy.deepcopy(points[0]), "rho": 0.05}
    result["points"].append(more)
    for p in [more, *points]:
        p["replayed"] = {"mean": 0.2 * p["rho"] ** exponent, "error": 1e-5, "runs": 8}
        p["replays"], p["deletions"] = {"mean": p["rho"], "error": 1e-5, "runs": 8}, 10_000
    assert _verdict(complexity.CHAPTER, result, "Prefix sums, sequential", "like ρ").held is held
    more["deletions"] = 10  # too few to say anything
    assert _verdict(complexity.CHAPTER, result, "Prefix sums, sequential", "like ρ").held is None


def test_a_cost_above_the_papers_bound_and_a_wrong_prediction_are_missed(tiny):
    result = copy.deepcopy(tiny["complexity"])
    for p in result["points"]:
        p["replayed"] = p["complexity"] = {"mean": 0.9 * p["rho"], "error": 1e-5, "runs": 8}
        p["predicted"] = 0.9 * p["rho"]
    assert _verdict(complexity.CHAPTER, result, "Linear queries, sequential", "at most").held is True
    assert _verdict(complexity.CHAPTER, result, "relative_complexity").held is True
    for p in result["points"]:
        p["replayed"] = {"mean": 1.3 * min(1.0, p["paper"]), "error": 1e-5, "runs": 8}
        p["predicted"] = 0.5 * p["rho"]
    assert _verdict(complexity.CHAPTER, result, "Linear queries, sequential", "at most").held is False
    assert _verdict(complexity.CHAPTER, result, "relative_complexity").held is False


# --- decisions ------------------------------------------------------------------------------------------


def test_what_an_interval_leaves_open_is_not_decided():
    assert [at_most(1.0, low, low + 0.5) for low in (0.4, 0.8, 1.1)] == [True, None, False]
    assert [at_least(1.0, low, low + 0.5) for low in (0.4, 0.8, 1.1)] == [False, None, True]
    assert all_at_most(1.0, [Mean(0.5, 0.01, 8), Mean(1.2, 0.01, 8)]) is False
    assert all_at_most(1.0, [Mean(0.5, 0.01, 8), Mean(1.02, 0.02, 8)]) is True
    assert all_at_most(1.0, [Mean(0.9, 0.3, 8), Mean(1.02, 0.3, 8)]) is None


def test_slopes_and_ratios_are_those_of_powers():
    x = [0.01, 0.1, 1.0]
    slope = slope_of(x, [Mean(3.0 * at**-0.5, 0.01 * at**-0.5, 8) for at in x])
    assert slope.slope == pytest.approx(-0.5)
    assert slope.low < -0.5 < slope.high
    curves = [Curve([Mean(at, 0.0, 8) for at in x], [Mean(k * at**-0.5, 1e-6, 8) for at in x]) for k in (3.0, 1.5)]
    assert ratio_at_equal_x(*curves)[0] == pytest.approx(2.0)
    assert ratio_at_equal_x(curves[0], Curve([Mean(at, 0.0, 8) for at in (2.0, 3.0)], curves[1].y[:2])) is None


# --- the page -------------------------------------------------------------------------------------------


def test_the_page_holds_every_verdict_and_picture(tiny):
    shown = [(chapter, tiny[name]) for name, chapter in CHAPTERS.items()]
    page = page_of(shown)
    verdicts = [verdict for chapter, result in shown for verdict in chapter.judge(result)]
    assert counted(verdicts) in page
    assert page.count("data:image/png;base64,") == len(shown)
    assert "quick run" in page
    assert "http" not in page


def _chapter(judge, name="made-up"):
    return Chapter(
        name, "Made <up>", "`code`", lambda quick, watch: {}, lambda r: None, judge, lambda r: [Table([], [])]
    )


def test_the_page_says_what_was_not_run_and_what_failed():
    page = page_of([(_chapter(lambda r: []), None), (_chapter(lambda r: [], "other"), {"failed": "why <not>"})])
    assert "This chapter was not run." in page
    assert "why &lt;not&gt;" in page
    assert "Made &lt;up&gt;" in page
    assert "<code>code</code>" in page


def test_verdicts_are_counted_in_three_kinds():
    verdicts = [Verdict("a", True, ""), Verdict("b", False, ""), Verdict("c", None, "")]
    assert counted(verdicts) == "1 of 3 claims held, 1 missed, 1 not decided"
    assert [verdict.word for verdict in verdicts] == ["held", "MISSED", "not decided"]


def test_every_chapter_that_is_listed_is_there():
    for name in reproduce.MINUTES:
        assert reproduce.chapter_of(name).name == name


def test_a_chapter_that_fails_is_told_and_its_old_result_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(chapters, "OUT", tmp_path)
    (tmp_path / "lemmata.json").write_text("{}")
    why = reproduce.run_apart("lemmata", False, lambda share: None)
    assert "lemmata" in why
    assert "failed" in json.loads((tmp_path / "lemmata.json").read_text())


def test_a_quick_run_leaves_the_results_of_a_full_one(tmp_path, monkeypatch):
    monkeypatch.setattr(chapters, "OUT", tmp_path)
    monkeypatch.setattr(space, "QUICK_POWERS", range(5, 8))
    monkeypatch.setattr(space, "POWERS", range(5, 9))
    for quick in (False, True):
        chapters.run_chapter(space.CHAPTER, quick, lambda share: None)
        reproduce.write_page(quick)
    for folder, count in ((tmp_path, 4), (tmp_path / "quick", 3)):
        result = json.loads((folder / "space.json").read_text())
        assert len({point["n"] for point in result["points"]}) == count
        assert result["quick"] == (folder != tmp_path)
        assert (folder / "space.png").exists()
        assert ("quick run" in (folder / "index.html").read_text(encoding="utf-8")) == result["quick"]
