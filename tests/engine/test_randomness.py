"""Where randomness comes from, that it has the laws it should, and that none of it is left.

Every test of a law has level 1e-4, a fixed key, and a stream that is nearly right as a control, which must fail.
"""

import math
import time

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from expunge.base.errors import BadPlan
from expunge.engine import randomness
from expunge.engine.randomness import KEY_BYTES, Randomness, SecretStream

LEVEL, DRAWS = 1e-4, 400_000
ZERO, ONE = bytes(KEY_BYTES), bytes(KEY_BYTES - 1) + b"1"


def stream(key=ZERO, label=b"test"):
    return SecretStream(key, label)


LAWS = {
    "random": stats.uniform(),
    "standard_normal": stats.norm(),
    "standard_exponential": stats.expon(),
}


@pytest.mark.parametrize("name", LAWS)
def test_numbers_have_the_law_that_their_name_says(name):
    drawn = getattr(stream(), name)(DRAWS)
    assert stats.kstest(drawn, LAWS[name].cdf).pvalue > LEVEL
    assert stats.kstest(drawn * 1.03, LAWS[name].cdf).pvalue < LEVEL


@pytest.mark.parametrize("name", LAWS)
def test_numbers_drawn_one_by_one_have_it_too(name):
    one = stream()
    drawn = np.array([getattr(one, name)() for _ in range(DRAWS // 10)])
    assert stats.kstest(drawn, LAWS[name].cdf).pvalue > LEVEL
    assert stats.kstest(drawn * 1.1, LAWS[name].cdf).pvalue < LEVEL
    assert type(getattr(one, name)()) is float


def test_normal_numbers_have_the_right_moments_and_tails():
    drawn = stream().standard_normal((1000, DRAWS // 1000))
    for power, expected in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0), (6, 15.0)):
        spread = math.sqrt((stats.norm.moment(2 * power) - expected**2) / DRAWS)
        assert abs((drawn**power).mean() - expected) < stats.norm.isf(LEVEL / 2) * spread
    for far in (2.0, 3.0, 4.0):
        beyond = int((np.abs(drawn) > far).sum())
        assert stats.binomtest(beyond, DRAWS, 2 * stats.norm.sf(far)).pvalue > LEVEL
    lighter = np.clip(drawn, -3.0, 3.0)
    assert stats.binomtest(int((np.abs(lighter) > 3.0).sum()), DRAWS, 2 * stats.norm.sf(3.0)).pvalue < LEVEL


def correlation_p_value(one, other):
    return stats.pearsonr(one, other).pvalue


def test_numbers_do_not_depend_on_each_other():
    """Neighbours, the two halves of an array, sign and size, blocks, one stream and another."""
    drawn = stream().standard_normal(DRAWS)
    half = DRAWS // 2
    pairs = [
        (drawn[1:], drawn[:-1]), (drawn[:half], drawn[half:]), (np.sign(drawn), np.abs(drawn)),
        (np.abs(drawn[1:]), np.abs(drawn[:-1])), (drawn, stream(ONE).standard_normal(DRAWS)),
        (drawn, stream(label=b"text").standard_normal(DRAWS)),
    ]  # fmt: skip
    assert min(correlation_p_value(*pair) for pair in pairs) > LEVEL / len(pairs)
    assert correlation_p_value(drawn + 0.05 * np.roll(drawn, 1), np.roll(drawn, 1)) < LEVEL


def test_the_most_extreme_bits_give_finite_numbers(monkeypatch):
    for bits, uniform in ((b"\x00", 0.0), (b"\xff", 1.0 - 2.0**-53)):
        one = stream()
        monkeypatch.setattr(SecretStream, "_bytes", lambda _, wanted, bits=bits: memoryview(bits * wanted))
        assert one.random() == uniform == one.random((2, 3))[1, 2]
        assert one.standard_exponential() == one.standard_exponential(3)[1] == -math.log1p(-uniform)
        assert one.standard_normal() == one.standard_normal(3)[1]
        assert abs(one.standard_normal()) < 12


def test_normal_numbers_are_dense_far_out(monkeypatch):
    """Quantiles of 52 digits lie seven units of the noise's grid apart at 6.5 standard deviations."""
    few = 2**11 + np.zeros(2_000, dtype=np.uint64)  # all have the same first digits, far out

    class Far(SecretStream):
        asked = 0

        def _array(self, size):
            self.asked += 1
            return few << np.uint64(12) if self.asked == 1 else super()._array(size)

    drawn = Far(ZERO, b"test").standard_normal(2_000)
    assert -7.3 < drawn.min() < drawn.max() < -6.5
    assert len(np.unique(drawn)) == 2_000
    edges = stats.norm.ppf(np.array([2**11, 2**11 + 1]) * 2.0**-53)
    assert edges[0] < drawn.min() < drawn.max() < edges[1]
    assert stats.kstest((stats.norm.cdf(drawn) * 2.0**53) - 2**11, "uniform").pvalue > LEVEL


def test_the_same_key_gives_the_same_numbers_and_another_others():
    def numbers(key):
        drawn = Randomness(key)
        return [drawn.plan.random(), drawn.layout.random(), drawn.noise.random(), drawn.coins.random()]

    assert numbers(ZERO) == numbers(ZERO)
    assert len({*numbers(ZERO), *numbers(ONE)}) == 8


def test_streams_do_not_depend_on_what_others_have_drawn():
    first, second = Randomness(ZERO), Randomness(ZERO)
    for name in ("plan", "layout", "coins"):
        getattr(first, name).random(1000)
    np.testing.assert_array_equal(first.noise.standard_normal(5), second.noise.standard_normal(5))


def test_blocks_follow_each_other_whatever_was_asked_for():
    one, seen = stream(), []
    for size in (1, 3, 40, 1, 5000, 2, 100, 1):
        seen += one.random(size).tolist()
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("size", [1, 7, 500, (3, 6000), 40_000])
def test_many_numbers_are_what_the_words_of_the_stream_say(size):
    """To the last bit: an interrupted request is repeated from its key, perhaps by another version."""
    stream, words = (SecretStream(bytes(32), b"noise") for _ in range(2))
    for _ in range(2):
        drawn, given = stream.standard_normal(size), words._array(size)
        digits = (given >> np.uint64(12)).astype(np.float64)
        rare = digits < 2.0**46
        digits += 0.5
        if rare.any():
            digits[rare] += words.random(int(rare.sum())) + 2.0**-54 - 0.5
        np.testing.assert_array_equal(drawn, ndtri(digits * 2.0**-53) * (1.0 - 2.0 * (given & np.uint64(1))))
        np.testing.assert_array_equal(stream.random(size), (words._array(size) >> np.uint64(11)) * 2.0**-53)


def test_fresh_keys_come_from_one_place(monkeypatch):
    assert Randomness.fresh().key != Randomness.fresh().key
    monkeypatch.setattr(randomness, "fresh_key", lambda: ONE)
    assert Randomness.fresh().key == Randomness.given(None, 3).key == ONE


def test_a_generator_gives_a_key_for_each_request():
    keys = [Randomness.of(np.random.default_rng(5)).key for _ in range(2)]
    assert keys[0] == keys[1] == np.random.default_rng(5).bytes(KEY_BYTES)
    kept = Randomness(ONE)
    assert Randomness.of(kept) is kept
    given = np.random.default_rng(5)
    assert Randomness.given(given, 1).key == keys[0] != Randomness.given(given, 1).key


def test_a_random_state_gives_each_request_randomness_of_its_own():
    seen = {Randomness.given(state, request).key for state in (0, 1, 12, np.int64(3)) for request in (0, 1, 2, 21)}
    assert len(seen) == 16
    assert Randomness.given(3, 2).key == Randomness.given(np.int32(3), 2).key
    for wrong in (-1, 1.5, "3", [1]):
        with pytest.raises(BadPlan, match=r"random_state="):
            Randomness.given(wrong, 0)


def test_what_was_wiped_tells_and_gives_nothing():
    with Randomness(ONE) as drawn:
        streams = [drawn.plan, drawn.layout, drawn.noise, drawn.coins]
        for one in streams:
            one.random(3)
        assert len({str(one.bit_generator.state) for one in streams[:2]}) == 2
    assert len({str(one.bit_generator.state) for one in streams[:2]}) == 1
    for one in streams[2:]:
        assert not one._key
        assert not one._block
        with pytest.raises(ValueError, match="wiped"):
            one.random()
    for ask in (lambda: drawn.key, lambda: drawn.noise, lambda: drawn.layout):
        with pytest.raises(ValueError, match="wiped"):
            ask()
    assert not drawn._key


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_key_has_256_bits(length):
    with pytest.raises(ValueError, match="key"):
        Randomness(bytes(length))


def test_noise_for_a_table_is_drawn_in_milliseconds():
    one = stream()
    seconds = []
    for _ in range(9):
        began = time.perf_counter()
        one.standard_normal((1024, 55))
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.02  # it takes 2 ms where nothing else is going on
