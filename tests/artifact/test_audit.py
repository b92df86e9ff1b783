from __future__ import annotations

import json
import resource
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from foveola.artifact.audit import GENESIS, AuditLog, Head, read_audit, verify_audit
from foveola.cli import main
from foveola.exchange import Damaged


@pytest.fixture
def path(tmp_path: Path) -> Path:
    log = AuditLog(tmp_path / "a.log", lambda: "2026-01-02T03:04:05.678+00:00")
    for number in range(5):
        log.append("seen", frame=number, place="车间")
    return tmp_path / "a.log"


def test_a_log_is_read_as_it_was_written(path: Path) -> None:
    entries = list(read_audit(path))
    assert [entry["frame"] for entry in entries] == [0, 1, 2, 3, 4]
    assert entries[0]["prev"] == GENESIS and entries[0]["place"] == "车间"
    assert verify_audit(path) == Head(5, entries[-1]["hash"])
    assert path.stat().st_mode & 0o777 == 0o600


def altered(line: str) -> str:
    return line.replace('"frame":', '"frame":1')


def rehashed(line: str) -> str:
    """What a clever hand would do: alter a line and make its own hash right again."""
    import hashlib

    entry = json.loads(line) | {"frame": 99}
    del entry["hash"]
    text = json.dumps(entry, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return json.dumps(entry | {"hash": hashlib.sha256(text.encode()).hexdigest()})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda lines: [*lines[:2], altered(lines[2]), *lines[3:]], "Line 3 of a.log was altered"),
        (lambda lines: [*lines[:2], rehashed(lines[2]), *lines[3:]], "Line 4 of a.log does not follow"),
        (lambda lines: [*lines[:2], *lines[3:]], "Line 3 of a.log does not follow"),
        (lambda lines: [*lines[:2], lines[3], lines[2], lines[4]], "Line 3 of a.log does not follow"),
        (lambda lines: [lines[0], *lines], "Line 2 of a.log does not follow"),
        (lambda lines: lines[1:], "Line 1 of a.log does not follow"),
        (lambda lines: [*lines, "{}"], "Line 6 of a.log is no entry"),
        (lambda lines: [*lines, "no JSON"], "Line 6 of a.log is not valid JSON"),
    ],
)
def test_every_change_is_found_and_named(path: Path, change: Callable[[list[str]], list[str]], told: str) -> None:
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    with pytest.raises(Damaged, match=told):
        verify_audit(path)


def test_a_cut_off_line_is_found_and_nothing_is_appended_to_it(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(Damaged, match="Line 5 of a.log is cut off"):
        verify_audit(path)
    with pytest.raises(Damaged, match="ends in the middle of a line"):
        AuditLog(path).append("seen")


@pytest.mark.parametrize("room", [0, 20])
def test_a_disk_that_takes_half_a_line_leaves_the_log_as_it_was(path: Path, room: int) -> None:
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + room, hard))
    try:
        with pytest.raises(OSError):
            AuditLog(path).append("seen")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert AuditLog(path).append("seen").count == 6


def test_the_head_shows_that_the_end_was_cut_off(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = verify_audit(path).hash
    assert main(["audit", "verify", str(path), "--head", head, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"count": 5, "head": head}
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:4]))
    assert main(["audit", "verify", str(path)]) == 0
    assert main(["audit", "verify", str(path), "--head", head]) == 2
    assert "a.log is a whole chain with another end" in capsys.readouterr().err


def test_many_hands_write_one_chain(tmp_path: Path) -> None:
    logs = [AuditLog(tmp_path / "a.log") for _ in range(4)]
    threads = [threading.Thread(target=lambda log=log: [log.append("seen") for _ in range(10)]) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verify_audit(tmp_path / "a.log").count == 40


def test_our_names_are_ours(path: Path) -> None:
    with pytest.raises(ValueError, match="cannot have the field hash, prev"):
        AuditLog(path).append("seen", **{"hash": "", "prev": ""})
