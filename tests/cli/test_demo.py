"""The demo runs from end to end; with fewer people than it has by default."""


def test_the_demo_shows_all_of_it(done, tmp_path):
    said = done("demo", "--people", 2000)
    for command in ("schema", "fit", "unlearn", "scan", "verify", "evaluate", "audit"):
        assert f"$ expunge {command} out/demo/" in said
    assert "20 erased one by one" in said
    assert "100 erased at once" in said
    left = {path.name for path in (tmp_path / "out" / "demo").iterdir()}
    assert left >= {
        "patients.csv", "others.csv", "schema.toml", "patients.expunge", "people.expunge", "report.html", "demo.png",
    }  # fmt: skip
    assert "No problem was found" in (tmp_path / "out" / "demo" / "report.html").read_text()


def test_so_few_people_show_nothing(refused):
    refused(3, ["--people: 999 are too few", "at least 1,000"], "demo", "--people", 999)
