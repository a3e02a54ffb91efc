"""What the benchmark on the digits rests on: clients that do not depend on each other, and how it counts."""

import numpy as np
import pytest

from benchmarks.federated.digits import follow, mean_with_interval, run
from benchmarks.federated.digits_data import FEWEST, PARAMETERS, Clients, load, share_out
from benchmarks.federated.digits_report import draw, tables
from benchmarks.federated.digits_settings import NUMBERS, RHOS, SETTINGS, Setting, finished

DIGITS = load()
SHORT = Setting(3, 15.0, steps=5)


@pytest.fixture(scope="module")
def clients():
    return Clients(DIGITS.train, share_out(DIGITS.train, 20))


def test_twenty_clients_share_the_images_out_and_have_enough():
    owned = share_out(DIGITS.train, 20)
    assert sorted(np.concatenate(owned)) == list(range(len(DIGITS.train.labels)))
    assert min(map(len, owned)) >= FEWEST


def test_many_clients_have_enough_images_of_uneven_labels():
    owned = share_out(DIGITS.train, 100)
    assert len(owned) == 100
    assert min(map(len, owned)) >= FEWEST
    most = [np.bincount(DIGITS.train.labels[mine]).max() / len(mine) for mine in owned]
    assert np.median(most) > 0.3  # a tenth, were they even


def test_settings_are_chosen_without_the_test_part():
    choosing = load(choosing=True)
    seen = {tuple(row) for images in choosing for row in images.pixels}
    assert not seen & {tuple(row) for row in DIGITS.held_out.pixels}


@pytest.mark.parametrize("number", [20, 100])
def test_what_a_client_answers_does_not_depend_on_the_others_asked(number):
    clients = Clients(DIGITS.train, share_out(DIGITS.train, number))
    model = np.random.default_rng(0).normal(size=PARAMETERS)
    together = clients.updates(range(number), model, steps=5, rate=16.0)
    order = np.random.default_rng(1).permutation(number)
    assert np.array_equal(clients.updates(order, model, steps=5, rate=16.0), together[order])
    for client in range(0, number, 7):
        assert np.array_equal(clients.updates([client], model, steps=5, rate=16.0)[0], together[client])
        own = Clients(DIGITS.train, [clients.owned[client]])
        assert np.array_equal(own.updates([0], model, steps=5, rate=16.0)[0], together[client])


def test_local_training_takes_gradient_steps(clients):
    mine = clients.owned[3]
    pixels, labels = DIGITS.train.pixels[mine], np.eye(10)[DIGITS.train.labels[mine]]
    model = np.zeros((65, 10))
    for _ in range(5):
        chances = np.exp(pixels @ model)
        chances /= chances.sum(axis=1, keepdims=True)
        model -= 2.0 * pixels.T @ (chances - labels) / len(mine)
    [update] = clients.updates([3], np.zeros(PARAMETERS), steps=5, rate=2.0)
    assert np.allclose(update, model.ravel(), atol=1e-4)


def test_without_noise_a_departure_costs_all_rounds_but_the_first_and_leaves_what_training_anew_gives(clients):
    host = finished(clients, SHORT, rho=1.0, seed=0)
    host.federation.forget("4")
    assert host.finish().asked == 19 * (SHORT.rounds - 1)
    anew = finished(clients, SHORT, rho=1.0, seed=1, members=[member for member in range(20) if member != 4])
    assert np.array_equal(host.federation.model(), anew.federation.model())
    assert host.federation.verify().ok


def test_one_round_needs_no_noise_and_asks_nobody_again(clients):
    host = finished(clients, Setting(1, 15.0, steps=5), rho=0.1, seed=0)
    assert host.plan.sigma == 0.0
    host.federation.forget("4")
    assert host.finish().asked == 0


def test_departures_replay_as_often_as_what_clients_contributed_says(clients):
    trails = [follow(DIGITS, clients, SHORT, 0.5, leaving=10, checked=10, seed=seed) for seed in range(6)]
    each = [departure for trail in trails for departure in trail.departures]
    chances = np.array([departure.chance for departure in each])
    assert chances.max() <= 0.5 + 1e-9
    changed = np.array([departure.changed for departure in each])
    assert abs(changed.sum() - chances.sum()) < 4.0 * np.sqrt((chances * (1.0 - chances)).sum())
    assert 0.0 < np.mean([departure.share for departure in each]) < 0.5
    assert all(departure.changed for departure in each if departure.share > 0.0)


def test_an_interval_holds_its_mean():
    mean, low, high = mean_with_interval(np.array([0.0] * 90 + [0.5] * 10))
    assert mean == pytest.approx(0.05)
    assert low < mean < high


def test_there_is_a_setting_for_every_number_and_rho():
    assert set(SETTINGS) == {(number, rho) for number in NUMBERS for rho in RHOS}


def test_the_quick_run_makes_tables_and_a_picture():
    found = run(quick=True, numbers=NUMBERS)
    assert len(list(tables(found))) == 4
    assert len(draw(found).axes) == 2
    noiseless, exact, noisy = found["rows"]
    assert [row["finish"] for row in found["rows"]] == [None, "exact", None]
    assert noiseless["share"] == pytest.approx(2 / 3)
    assert noiseless["unlearned"] == noiseless["retrained"]
    assert max(exact["share"], noisy["share"]) < noiseless["share"]
