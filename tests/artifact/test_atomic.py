from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from foveola.artifact import atomic
from foveola.artifact.atomic import staged_directory


def write(out: Path, text: str, *, replace: bool = False) -> None:
    with staged_directory(out, replace=replace) as staging:
        (staging / "sub").mkdir()
        (staging / "one").write_text(text)
        (staging / "sub" / "two").write_text(text)


def read(out: Path) -> tuple[str, str]:
    return (out / "one").read_text(), (out / "sub" / "two").read_text()


def test_the_directory_appears_with_all_files_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "new" / "out", "x")
    assert read(tmp_path / "new" / "out") == ("x", "x")
    assert os.listdir(tmp_path / "new") == ["out"]


def test_nothing_is_there_before_the_end(tmp_path: Path) -> None:
    with staged_directory(tmp_path / "out") as staging:
        (staging / "one").write_text("x")
        assert not (tmp_path / "out").exists()
        assert staging.parent == tmp_path


def test_an_error_inside_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), staged_directory(tmp_path / "out") as staging:
        (staging / "one").write_text("x")
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_an_error_inside_leaves_the_old_content(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")
    with pytest.raises(KeyboardInterrupt), staged_directory(tmp_path / "out", replace=True) as staging:
        (staging / "one").write_text("new")
        raise KeyboardInterrupt
    assert read(tmp_path / "out") == ("old", "old")
    assert os.listdir(tmp_path) == ["out"]


def test_a_killed_process_leaves_nothing_at_the_destination(tmp_path: Path) -> None:
    code = (
        "import sys, os, signal; from pathlib import Path; from foveola.artifact.atomic import staged_directory\n"
        "with staged_directory(Path(sys.argv[1])) as staging:\n"
        "    (staging / 'one').write_text('x'); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    assert all(name.startswith(".out.") and name.endswith(".partial") for name in os.listdir(tmp_path))


def test_something_already_there_is_not_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")
    with pytest.raises(FileExistsError, match="out exists and is not empty; choose another name, or ask to replace it"):
        write(tmp_path / "out", "new")
    assert read(tmp_path / "out") == ("old", "old")
    assert os.listdir(tmp_path) == ["out"]


def test_what_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError), staged_directory(tmp_path / "out") as staging:
        (staging / "one").write_text("mine")
        write(tmp_path / "out", "theirs")
    assert read(tmp_path / "out") == ("theirs", "theirs")


def test_an_empty_directory_counts_as_free(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write(tmp_path / "out", "x")
    assert read(tmp_path / "out") == ("x", "x")


@pytest.mark.parametrize("replace", [False, True])
def test_a_file_or_a_link_at_the_destination_is_refused(tmp_path: Path, replace: bool) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link"):
        with pytest.raises(FileExistsError, match=f"{name} exists and is not a directory"):
            write(tmp_path / name, "new", replace=replace)
    assert (tmp_path / "file").read_text() == "x"


@pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "two steps"])
def test_replacing_swaps_everything(tmp_path: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not exchange:
        monkeypatch.setattr(atomic, "_exchange", lambda *_: False)
    write(tmp_path / "out", "old")
    (tmp_path / "out" / "three").write_text("only in the old one")
    write(tmp_path / "out", "new", replace=True)
    assert read(tmp_path / "out") == ("new", "new")
    assert not (tmp_path / "out" / "three").exists()
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.skipif(sys.platform != "linux", reason="the exchange in one step is Linux's")
def test_while_replacing_there_is_always_one_whole_directory(tmp_path: Path) -> None:
    write(tmp_path / "out", "0")
    missing: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            try:
                handle = os.open(tmp_path / "out", os.O_RDONLY)
            except FileNotFoundError:
                missing.append("out")
                continue
            os.close(handle)

    watcher = threading.Thread(target=look)
    watcher.start()
    for number in range(1, 30):
        write(tmp_path / "out", str(number), replace=True)
    done.set()
    watcher.join()
    assert missing == []
    assert read(tmp_path / "out") == ("29", "29")


def test_when_the_second_step_fails_the_old_content_comes_back(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")
    with pytest.raises(OSError, match="No such file"):
        atomic._swap_in_two_steps(tmp_path / "not there.partial", tmp_path / "out")
    assert read(tmp_path / "out") == ("old", "old")


def test_the_permissions_are_those_of_any_new_directory(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    write(tmp_path / "out", "x")
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)
