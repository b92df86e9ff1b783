from __future__ import annotations

import argparse
import errno
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import foveola
from foveola import cli
from foveola.exchange import Damaged
from foveola.options import BadSetting


def verb(run: Any, arguments: Any = lambda parser: None) -> Any:
    return SimpleNamespace(add_arguments=arguments, run=run)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put one module behind the verb ``inspect``."""

    def put(module: Any) -> None:
        monkeypatch.setattr(cli, "_load", lambda _: module)

    return put


def test_the_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for name, one in cli.VERBS.items():
        assert name in shown
        assert one.help.split()[0] in shown


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"foveola {foveola.__version__}\n"


@pytest.mark.parametrize("argv", [[], ["fly"], ["--fly"], ["serve", "--fly"], ["ask", "only-a-picture.png"]])
def test_what_is_not_understood_ends_with_2_and_the_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: foveola")


def test_a_verb_gets_its_arguments_and_gives_the_exit_code(only: Any) -> None:
    seen: list[argparse.Namespace] = []

    def run(arguments: argparse.Namespace) -> int:
        seen.append(arguments)
        return 7

    only(verb(run, lambda parser: parser.add_argument("what")))
    assert cli.main(["inspect", "this"]) == 7
    assert seen[0].what == "this"


@pytest.mark.parametrize("error", [Damaged("vision.onnx is truncated."), BadSetting("vision.onnx is truncated.")])
def test_a_refusal_is_its_message_and_2(error: Exception, only: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def run(_: argparse.Namespace) -> int:
        raise error

    only(verb(run))
    assert cli.main(["inspect"]) == 2
    assert capsys.readouterr().err == "foveola: vision.onnx is truncated.\n"


def test_control_c_is_130(only: Any) -> None:
    def run(_: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    only(verb(run))
    assert cli.main(["inspect"]) == 130


def test_a_bug_keeps_its_trace(only: Any) -> None:
    def run(_: argparse.Namespace) -> int:
        raise ZeroDivisionError

    only(verb(run))
    with pytest.raises(ZeroDivisionError):
        cli.main(["inspect"])


def test_a_missing_door_says_how_to_open_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(_: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")

    monkeypatch.setattr("importlib.import_module", missing)
    assert cli.main(["compile"]) == 2
    assert capsys.readouterr().err == (
        "foveola: The package torch is not installed, and this verb needs it: pip install 'foveola[workshop]'.\n"
    )


def test_a_broken_import_of_our_own_is_no_missing_door(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'foveola.lower.gone'", name="foveola.lower.gone")

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(ModuleNotFoundError):
        cli.main(["compile"])


def run(*argv: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    source = str(Path(foveola.__file__).parents[1])
    environ = {**os.environ, "PYTHONPATH": source, **(env or {})}
    command = [sys.executable, "-m", "foveola", *argv]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environ, cwd=cwd)


@pytest.mark.parametrize(
    ("argv", "env", "told"),
    [
        (["serve", "--port", "many"], {}, "--port is 'many'; expected a whole number."),
        (["serve", "--port", "99999"], {}, "--port: `port` is 99999; expected 0 to 65535."),
        (
            ["serve"],
            {"FOVEOLA_SERVE_DRAIN_S": "soon"},
            "FOVEOLA_SERVE_DRAIN_S in the environment is 'soon'; expected a number.",
        ),
        (["serve", "--bundle", "nowhere"], {}, "The bundle nowhere is no directory"),
        (["serve", "--config", "none.toml"], {}, "The settings file none.toml does not exist"),
        (["ask", "nowhere.png", "What?"], {}, "nowhere.png cannot be read (No such file or directory)"),
        (["ask", "-", " "], {}, "`text` is"),
        (["ask", "-", "What?", "--max-tokens", "0"], {}, "`max_tokens` is 0; expected a whole number"),
        (["inspect", "nowhere"], {}, "nowhere is no directory"),
    ],
)
def test_the_real_verbs_refuse_clearly(argv: list[str], env: dict[str, str], told: str, tmp_path: Path) -> None:
    done = run(*argv, env=env, cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.startswith("foveola: ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_taken_port_is_refused_clearly(tmp_path: Path) -> None:
    from foveola.serve.listen import listen

    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        done = run("serve", "--bundle", str(tmp_path), "--port", port, cwd=tmp_path)
    assert done.returncode == 2
    assert f"foveola: Cannot listen on 127.0.0.1 port {port}" in done.stderr


def test_a_directory_that_is_no_bundle_ends_the_server_with_2(tmp_path: Path) -> None:
    done = run("serve", "--bundle", str(tmp_path), "--port", "0", cwd=tmp_path)
    assert done.returncode == 2
    assert '"event": "load_failed"' in done.stderr
    assert "manifest.json is missing" in done.stderr
    assert "Traceback" not in done.stderr


def test_output_into_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    command = f"{sys.executable} -m foveola --help | true"
    environ = {**os.environ, "PYTHONPATH": str(Path(foveola.__file__).parents[1])}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environ, cwd=tmp_path, check=False)
    assert "Traceback" not in done.stderr


def test_a_failing_disk_is_told_without_a_trace(only: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def full(_: argparse.Namespace) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "out.json")

    only(verb(full))
    assert cli.main(["inspect"]) == 2
    told = "foveola: No space left on device (out.json); put that right and run it again.\n"
    assert capsys.readouterr().err == told


def test_a_terminal_that_knows_no_chinese_is_no_reason_to_fail() -> None:
    program = "from foveola import cli\nimport types\n"
    program += (
        "cli._load = lambda _: types.SimpleNamespace(add_arguments=lambda p: None, run=lambda a: print('合格') or 0)\n"
    )
    program += "raise SystemExit(cli.main(['inspect']))"
    environ = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": "src"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environ, check=False)
    assert (done.returncode, done.stdout) == (0, b"\\u5408\\u683c\n")


def test_sigterm_before_the_model_is_there_is_a_clean_end(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(Path(foveola.__file__).parents[1])}
    command = [sys.executable, "-m", "foveola", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environ, cwd=tmp_path, text=True) as server:
        assert server.stderr is not None
        assert '"event": "listening"' in server.stderr.readline()
        server.terminate()
        assert "Traceback" not in server.stderr.read()
    assert server.returncode == 0


def test_descriptions_keep_their_capitals(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["serve", "--help"])
    assert "Serve a model over HTTP." in capsys.readouterr().out
