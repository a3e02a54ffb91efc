"""The demo runs from end to end; with fewer people than it has by default."""

from matplotlib.figure import Figure

from expunge.cli.crowd import _draw


def test_the_demo_shows_all_of_it(done, tmp_path):
    said = done("demo", "--people", 2000)
    for command in ("schema", "fit", "unlearn", "scan", "verify", "evaluate", "audit"):
        assert f"$ expunge {command} out/demo/" in said
    assert "20 deleted one by one" in said
    assert "99 deleted at once" in said
    assert "so a deletion is" in said
    left = {path.name for path in (tmp_path / "out" / "demo").iterdir()}
    assert left >= {
        "patients.csv", "others.csv", "schema.toml", "patients.expunge", "people.expunge", "report.html", "demo.png",
    }  # fmt: skip
    page = (tmp_path / "out" / "demo" / "report.html").read_text()
    assert "No problem was found" in page
    assert "Not checked" not in page
    assert "21 receipts" not in page
    assert "22 receipts in an unbroken chain; all signed by the given key; the noted head is among them" in page
    assert "Of those given: 20 not in the model, nor in any byte of its files" in page


def test_the_legend_covers_nothing_and_all_axes_have_names(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *what, **more: drawn.append(figure))
    scores = dict.fromkeys(("scikit-learn", "Expunge", "Expunge, 2,000 fewer", "scikit-learn, 2,000 fewer"), 0.9)
    for replayed in ([0.05, 0.1], []):
        _draw(tmp_path / "demo.png", 500_000, [1e-4, 2e-4], replayed, {"Expunge": 0.5, "scikit-learn": 3.0}, scores)
        figure = drawn.pop()
        figure.draw_without_rendering()
        (legend,) = figure.legends
        for axes in figure.axes:
            assert axes.get_xlabel()
            assert axes.get_ylabel()
            assert axes.get_legend() is None
            assert not legend.get_window_extent().overlaps(axes.get_tightbbox())


def test_so_few_people_show_nothing(refused):
    refused(3, ["--people: 999 are too few", "at least 1,000"], "demo", "--people", 999)
