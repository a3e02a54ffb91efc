"""Where the randomness of a request comes from, and that none of it is left."""

from expunge.estimators.randomness import randomness


def test_requests_within_requests_have_randomness_of_their_own():
    seen = []
    for _ in range(3):
        with randomness(None, 0) as outer:
            with randomness(None, 0) as inner:
                seen.append(inner.integers(2**62))
            seen.append(outer.integers(2**62))
        with randomness(None, 0) as after:
            seen.append(after.integers(2**62))
    assert len(set(seen)) == len(seen)


def test_a_generator_that_was_given_back_tells_nothing():
    states = []
    for _ in range(2):
        with randomness(None, 0) as rng:
            rng.standard_normal(5)
        states.append(rng.bit_generator.state)
    assert states[0] == states[1]
