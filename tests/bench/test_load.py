"""The load generator on a server that only counts; the real one is asked once."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from foveola.bench.command import rates_of
from foveola.bench.load import Arrival, closed_loop, open_loop, point_of
from foveola.bench.sample import Item, Sample
from foveola.cli import main
from foveola.exchange import Invalid, Unavailable

ITEMS = [Item(str(at), b"", f"question {at}") for at in range(12)]
SAMPLE = Sample("a", 0.5, 0.25, 3, dict.fromkeys(("decode_image", "preprocess", "vision", "prefill", "decode"), 0.1))


class Server:
    """Counts who is inside; refuses every ``refuses``-th request; a barrier holds them until all are there."""

    def __init__(self, refuses: int = 0, parties: int = 0) -> None:
        self.lock = threading.Lock()
        self.inside = self.most = self.asked = self.open = 0
        self.refuses = refuses
        self.barrier = threading.Barrier(parties) if parties else None

    def connect(self) -> Asker:
        self.open += 1
        return Asker(self)


class Asker:
    def __init__(self, server: Server) -> None:
        self.server = server

    def stream(self, item: Item, max_tokens: int) -> Sample:
        server = self.server
        with server.lock:
            server.inside += 1
            server.asked += 1
            number = server.asked
            server.most = max(server.most, server.inside)
        if server.barrier is not None:
            server.barrier.wait(30)
        with server.lock:
            server.inside -= 1
        if server.refuses and number % server.refuses == 0:
            raise Unavailable("Full.")
        return SAMPLE

    def close(self) -> None:
        self.server.open -= 1


@pytest.mark.parametrize("clients", [1, 3, 4])
def test_a_closed_loop_keeps_so_many_at_once(clients: int) -> None:
    server = Server(parties=clients)
    arrivals = closed_loop(server.connect, ITEMS, clients, 8)
    assert (server.asked, server.most, server.open) == (12, clients, 0)
    assert [one.due_s for one in arrivals] == sorted(one.due_s for one in arrivals)
    assert all(one.latency_s >= 0 for one in arrivals)


def test_an_open_loop_asks_all_at_moments_of_its_own() -> None:
    server = Server()
    arrivals = open_loop(server.connect, ITEMS, 500.0, 8, seed=4)
    again = open_loop(Server().connect, ITEMS, 500.0, 8, seed=4)
    assert (server.asked, server.open) == (12, 0)
    assert [one.due_s for one in arrivals] == [one.due_s for one in again]
    assert all(one.latency_s >= 0 for one in arrivals)


def test_latency_counts_from_when_a_request_was_due() -> None:
    arrivals = [Arrival(0.0, 1.0, SAMPLE), Arrival(0.5, 4.0, SAMPLE), Arrival(1.0, 2.0, None)]
    point = point_of("open", 2.0, arrivals)
    assert point.latency_ms["p50"] == pytest.approx((1000 + 3500) / 2)
    assert point.first_ms["p99"] == 250
    assert point.images_per_s == pytest.approx(0.5)
    assert point.refused == pytest.approx(1 / 3, abs=1e-4)
    assert json.dumps(point.to_json())


def test_refusals_are_counted_and_nothing_but_refusals_is_said() -> None:
    assert point_of("closed", 2, closed_loop(Server(refuses=3).connect, ITEMS, 2, 8)).refused == pytest.approx(
        1 / 3, abs=1e-3
    )
    with pytest.raises(Unavailable, match="Not one of 12 requests was answered at level 2"):
        point_of("closed", 2, closed_loop(Server(refuses=1).connect, ITEMS, 2, 8))


def test_what_breaks_in_a_client_is_raised() -> None:
    class Broken(Asker):
        def stream(self, item: Item, max_tokens: int) -> Sample:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        closed_loop(lambda: Broken(Server()), ITEMS, 2, 8)


def test_rates() -> None:
    assert rates_of("2,4.5,-0.5") == (2, 4.5, -0.5)
    for wrong in ("", "0", "a", "nan", "1,,2"):
        with pytest.raises(Invalid, match="expected numbers such as"):
            rates_of(wrong)


@pytest.mark.process
@pytest.mark.slow
def test_a_real_server_under_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="the bench door is not open")
    page = tmp_path / "load.html"
    words = ["bench", "--load", "--quick", "--concurrency", "1,2", "--rates=-0.5", "--json", "--html", str(page)]
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(point["kind"], point["requests"]) for point in report["points"]] == [
        ("closed", 8),
        ("closed", 8),
        ("open", 8),
    ]
    assert all(point["refused"] == 0 for point in report["points"])
    assert report["points"][0]["images_per_s"] > 0
    html = page.read_text()
    assert html.count("data:image/svg+xml") == 2
    assert "http://" not in html.replace("http://www.w3.org", "")
