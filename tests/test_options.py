from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from foveola.options import BadSetting, resolve


@dataclass(frozen=True)
class Some:
    name: str = "a"
    count: int = 1
    share: float = 0.5
    loud: bool = False
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"`count` is {self.count}; expected at least 0.")


def file_of(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "foveola.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_flags_win_over_the_environment_over_the_file_over_defaults(tmp_path: Path) -> None:
    file = file_of(tmp_path, '[some]\nname = "file"\ncount = 2\nshare = 2\n[engine]\nname = "not ours"\n')
    environ = {"FOVEOLA_SOME_NAME": "environment", "FOVEOLA_SOME_COUNT": "3", "FOVEOLA_OTHER_X": "y", "PATH": "z"}
    flags = {"name": "flag", "count": None}
    assert resolve(Some, "some", file=file, environ=environ, flags=flags) == Some("flag", 3, 2.0)
    assert resolve(Some, "some", file=file, environ={}) == Some("file", 2, 2.0)


def test_without_anything_there_are_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve(Some, "some", environ={}) == Some()
    file_of(tmp_path, "[some]\nloud = true\n")
    assert resolve(Some, "some", environ={}) == Some(loud=True)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("loud", "true", True),
        ("loud", "0", False),
        ("folder", "/a/b", Path("/a/b")),
        ("share", "1e-3", 1e-3),
        ("count", " 7 ", 7),
    ],
)
def test_text_of_the_environment_is_parsed(name: str, text: str, value: object) -> None:
    assert getattr(resolve(Some, "some", environ={f"FOVEOLA_SOME_{name.upper()}": text}), name) == value


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"FOVEOLA_SOME_COUNT": "many"}, "FOVEOLA_SOME_COUNT in the environment is 'many'; expected a whole number."),
        ({"FOVEOLA_SOME_COUNT": "1.5"}, "FOVEOLA_SOME_COUNT in the environment is '1.5'; expected a whole number."),
        ({"FOVEOLA_SOME_LOUD": "maybe"}, "FOVEOLA_SOME_LOUD in the environment is 'maybe'; expected true or false."),
        ({"FOVEOLA_SOME_FOLDER": ""}, "FOVEOLA_SOME_FOLDER in the environment is empty; expected a path."),
        ({"FOVEOLA_SOME_COUNT": "-1"}, "FOVEOLA_SOME_COUNT in the environment: `count` is -1; expected at least 0."),
        (
            {"FOVEOLA_SOME_CUONT": "1"},
            "FOVEOLA_SOME_CUONT in the environment is not a setting; there are: name, count, share, loud, folder.",
        ),
    ],
)
def test_what_is_malformed_names_its_source(environ: dict[str, str], message: str) -> None:
    with pytest.raises(BadSetting) as caught:
        resolve(Some, "some", environ=environ)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[some]\ncount = true\n", "`count` in [some] of foveola.toml is True; expected a whole number."),
        ("[some]\nloud = 1\n", "`loud` in [some] of foveola.toml is 1; expected true or false."),
        ("[some]\nname = 5\n", "`name` in [some] of foveola.toml is 5; expected text."),
        ("[some]\ncuont = 5\n", "`cuont` in [some] of foveola.toml is not a setting; there are: name, count, "),
        ("some = 5\n", "`some` in foveola.toml must be a table: write [some] above its settings."),
        ("[sever]\nport = 1\n", "[sever] in foveola.toml is not a table of settings; there are: [serve], [engine], "),
        ("port = 1\n", "`port` in foveola.toml stands outside of a table; write it below one of [serve], "),
        ("[some\n", "The settings file foveola.toml is not TOML: "),
    ],
)
def test_what_is_malformed_in_the_file_names_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadSetting) as caught:
        resolve(Some, "some", file=file_of(tmp_path, text), environ={})
    assert str(caught.value).startswith(message)


def test_a_file_that_is_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="settings file none.toml does not exist"):
        resolve(Some, "some", file=tmp_path / "none.toml", environ={})


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"^The settings file \S+ cannot be read \(Is a directory\); name a file"):
        resolve(Some, "some", file=tmp_path, environ={})


def test_a_flag_is_named_as_it_is_written() -> None:
    with pytest.raises(BadSetting, match="^--count is 'x'; expected a whole number"):
        resolve(Some, "some", environ={}, flags={"count": "x"})
