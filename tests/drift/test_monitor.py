"""Reference and monitor together, on frames whose distribution is known."""

from __future__ import annotations

import numpy as np
import pytest

from foveola.drift.monitor import MOST_CAMERAS, OTHERS, Monitor, MonitorOptions
from foveola.drift.observation import SIDE, Observation
from foveola.drift.reference import LEAST, Reference, calibrate
from foveola.exchange import Damaged, Invalid

WIDTH = 12
CENTRES = {"scratch": (2, 2), "pit": (5, 5), "crack": (2, 6)}
Y, X = np.mgrid[0:SIDE, 0:SIDE]


def frame(rng, *, camera="left", label=None, move=0.0, shift=0.0, blur=1.0):
    """A blob near its class's place and features around its class's mean."""
    label = label or str(rng.choice(list(CENTRES)))
    y, x = np.array(CENTRES[label]) + rng.normal(0, 0.6, 2) + move
    spot = np.exp(-((Y - y) ** 2 + (X - x) ** 2) / (3 * blur)) + 0.02 * rng.random((SIDE, SIDE))
    mean = np.zeros(WIDTH)
    mean[list(CENTRES).index(label)] = 4
    return Observation(camera, label, spot / spot.sum(), mean + rng.standard_normal(WIDTH) + shift)


@pytest.fixture(scope="module")
def reference():
    rng = np.random.default_rng(0)
    return calibrate([frame(rng) for _ in range(500)])


def delay(reference, seed, **drift):
    """After how many drifted frames the first alarm of a chart comes, per chart; 200 frames are fine before."""
    rng, monitor = np.random.default_rng(seed), Monitor(reference)
    for _ in range(200):
        assert monitor.update(frame(rng)) == []
    found = {}
    for n in range(1, 201):
        for alarm in monitor.update(frame(rng, **drift)):
            found.setdefault(alarm.chart, n)
            assert alarm.value > alarm.bound
            assert alarm.frame == 200 + n
    return found


def test_quiet_frames_raise_next_to_nothing(reference):
    """8 000 frames of another seed at one false alarm in 10 000: hardly more than two."""
    rng, alarms = np.random.default_rng(5), 0
    monitor = Monitor(reference)
    for _ in range(8000):
        raised = monitor.update(frame(rng))
        alarms += len(raised)
        if raised:
            monitor.acknowledge("left")
    assert alarms <= 3


def test_maps_that_move_are_found(reference):
    assert delay(reference, 1, move=2.0)["looks"] <= 60


def test_features_that_shift_are_found(reference):
    assert delay(reference, 2, shift=0.5)["features"] <= 100


def test_both_together_are_certified(reference):
    assert delay(reference, 3, move=2.0, shift=1.0)["certified"] <= 150


def test_another_mix_of_classes_is_no_drift(reference):
    rng, monitor = np.random.default_rng(4), Monitor(reference)
    for _ in range(600):
        assert monitor.update(frame(rng, label="pit")) == []


def test_an_alarm_is_raised_once_until_somebody_looks(reference):
    rng, monitor = np.random.default_rng(1), Monitor(reference)
    raised = [a.chart for _ in range(300) for a in monitor.update(frame(rng, move=3.0))]
    assert raised.count("looks") == 1
    assert "looks" in monitor.standings()["left"].raised
    assert monitor.acknowledge("left")
    assert monitor.standings()["left"].raised == ()
    assert not monitor.acknowledge("nobody")
    again = [a.chart for _ in range(300) for a in monitor.update(frame(rng, move=3.0))]
    assert again.count("looks") == 1


def test_more_cameras_make_the_certified_bound_higher(reference):
    rng = np.random.default_rng(0)
    shares = []
    for cameras in (1, 100):
        monitor = Monitor(reference, MonitorOptions(cameras=cameras))
        for _ in range(50):
            monitor.update(frame(rng, move=3.0))
        shares.append(monitor.standings()["left"].shares["certified"])
    assert shares[1] < shares[0]


def test_cameras_are_bounded(reference):
    rng, monitor = np.random.default_rng(0), Monitor(reference)
    for i in range(MOST_CAMERAS + 20):
        monitor.update(frame(rng, camera=f"camera {i}"))
    standings = monitor.standings()
    assert len(standings) == MOST_CAMERAS + 1
    assert standings[OTHERS].frames == 20


def test_a_restart_goes_on_where_it_stood(reference, tmp_path):
    rng = np.random.default_rng(7)
    frames = [frame(rng, move=0.7) for _ in range(80)]
    whole, first, second = Monitor(reference), Monitor(reference), Monitor(reference)
    for f in frames[:50]:
        whole.update(f)
        first.update(f)
    first.save(tmp_path / "state.json")
    second.restore(tmp_path / "state.json")
    for f in frames[50:]:
        whole.update(f)
        second.update(f)
    a, b = whole.standings()["left"], second.standings()["left"]
    assert a.frames == b.frames == 80
    assert b.shares["looks"] == pytest.approx(a.shares["looks"])
    assert b.shares["features"] == pytest.approx(a.shares["features"])


@pytest.mark.parametrize("text", ["", "{}", '{"format": "foveola.drift-state/1", "cameras": {"a": {"mean": [1]}}}'])
def test_a_broken_state_is_told(reference, tmp_path, text):
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(Damaged, match="state.json does not hold the state of this drift monitor; remove it"):
        Monitor(reference).restore(tmp_path / "state.json")


def test_a_reference_comes_back_from_its_file(reference, tmp_path):
    reference.save(tmp_path / "line.npz")
    again = Reference.open(tmp_path / "line.npz")
    seen = frame(np.random.default_rng(3), move=1.0)
    assert again.labels == reference.labels == ("", "crack", "pit", "scratch")
    assert again.map_score(seen) == reference.map_score(seen)
    assert np.array_equal(again.residual(seen), reference.residual(seen))
    assert again.map_peaks == reference.map_peaks
    assert again.feature_peaks == reference.feature_peaks


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 not a zip", None])
def test_a_broken_reference_is_told(reference, tmp_path, damage):
    path = tmp_path / "line.npz"
    reference.save(path)
    path.write_bytes(path.read_bytes()[:-200] if damage is None else damage)
    with pytest.raises(Damaged, match="line.npz is not a whole drift reference"):
        Reference.open(path)


def test_too_few_frames_are_told():
    rng = np.random.default_rng(0)
    with pytest.raises(Invalid, match=f"{LEAST - 1} frames came; a reference needs at least {LEAST}"):
        calibrate([frame(rng) for _ in range(LEAST - 1)])


def test_without_features_the_maps_are_watched():
    rng = np.random.default_rng(0)

    def bare(**drift):
        seen = frame(rng, **drift)
        return Observation(seen.camera, seen.label, seen.map, np.zeros(0))

    monitor = Monitor(calibrate([bare() for _ in range(200)]))
    charts = {a.chart for _ in range(100) for a in monitor.update(bare(move=3.0))}
    assert "looks" in charts
    assert "features" not in monitor.standings()["left"].shares
