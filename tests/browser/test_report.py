"""The report in a real browser: offline, at every width, on paper. Run by `make test-browser`."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import sync_playwright

import expunge
from expunge.audit import audit, write_report
from expunge.solvers import Lloyd

WIDTHS = (360, 768, 1000, 1400)
PICTURES = Path("out/browser")
CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)
"""The browser; without one, that which `playwright install chromium` has brought."""


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
        )
        yield started
        started.close()


def fitted(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3)) / 3
    y = np.where(X[:, 0] > 0.1 * rng.normal(size=2000), "yes, <b>surely</b>", "no")
    match kind:
        case "logistic":
            return expunge.LogisticRegression(rho=0.2, solver="dual_averaging").fit(X, y), (X, y)
        case "kmeans":
            return expunge.KMeans(3, rho=0.3, solver=Lloyd(radius=2.0)).fit(X), X
        case "ridge":
            return expunge.Ridge().fit(X, X[:, 0]), (X, X[:, 0])


@pytest.fixture(scope="module", params=["logistic", "kmeans", "ridge"])
def page(request, browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    model, test = fitted(request.param)
    model.save(folder / "model.expunge")
    with expunge.open(folder / "model.expunge") as stored:
        for number in range(5):
            stored.unlearn([number])
    write_report(audit(folder / "model.expunge", ids=[1], test=test, runs=200), folder / "report.html")
    context = browser.new_context(offline=True)
    opened = context.new_page()
    opened.kind = request.param
    opened.asked, opened.said = [], []
    opened.on("request", lambda one: opened.asked.append(one.url))
    opened.on("console", lambda one: opened.said.append(one.text))
    opened.goto(f"file://{folder / 'report.html'}")
    yield opened
    context.close()


def test_nothing_is_fetched_and_nothing_goes_wrong(page):
    assert [url for url in page.asked if not url.startswith("file://")] == []
    assert len(page.asked) == 1
    assert page.said == []
    assert page.locator("script").count() == 0
    assert "No problem was found" in page.inner_text("body")


def test_class_names_are_text(page):
    assert page.locator("b", has_text="surely").count() == 0
    if page.kind == "logistic":
        assert "yes, <b>surely</b>" in page.inner_text("body")


@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    pictures = page.locator("svg")
    assert pictures.count() >= 2
    for number in range(pictures.count()):
        box = pictures.nth(number).bounding_box()
        assert box["width"] > 100
        assert box["height"] > 50
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width + 1
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{page.kind}-{width}.png", full_page=True)


def test_it_can_be_printed(page):
    PICTURES.mkdir(parents=True, exist_ok=True)
    paper = page.pdf(path=PICTURES / f"{page.kind}.pdf", format="A4")
    assert paper.startswith(b"%PDF")


def test_everything_has_a_name(page):
    assert page.locator("html").get_attribute("lang") == "en"
    assert "model.expunge" in page.title()
    pictures = page.locator("svg")
    for number in range(pictures.count()):
        one = pictures.nth(number)
        assert one.get_attribute("aria-label") or one.locator("title").count()
    assert page.locator("table").count() == page.locator("table:has(th)").count()
