"""The console's files: what is sent, under which policy, in which words and colours."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from foveola.serve.console import FILES, POLICY, SCRIPTS, file_of
from foveola.serve.gate import role_of
from foveola.serve.keys import Key, KeyRing
from tests.serve.fake import FakeAnswer, laid, served

READABLE = 4.5  # WCAG 2.2, level AA, for text
TEXT_ON = [
    ("ink", "ground"), ("ink", "panel"), ("muted", "ground"), ("muted", "panel"), ("accent", "panel"),
    ("on-accent", "accent"), ("alarm", "panel"), ("on-alarm", "alarm"), ("good", "panel"),
]  # fmt: skip
EDGE = 3.0  # the same rules, for the borders of what can be used
RING = KeyRing((Key("night", b"0" * 32),))


@pytest.mark.parametrize("path", FILES)
async def test_every_file_comes_without_a_key_under_the_policy(path: str) -> None:
    async with laid(ring=RING) as table:
        reply = await table.client.get(path)
    name, kind = FILES[path]
    assert reply.status_code == 200
    assert reply.content == file_of(name)
    assert reply.headers["content-type"] == kind
    assert reply.headers["content-security-policy"] == POLICY
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"


def test_the_policy_lets_nothing_in() -> None:
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == "'none'"
    assert "unsafe" not in POLICY


@pytest.mark.parametrize("name", {name for name, _ in FILES.values()})
def test_nothing_comes_from_elsewhere(name: str) -> None:
    text = file_of(name).decode().replace("http://www.w3.org/2000/svg", "")  # the name of a namespace, never fetched
    assert not re.search(r"(?:https?:)?//[a-z]", text)
    for markup in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert markup not in text


class Page(HTMLParser):
    """Tags of the page with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(file_of("console.html").decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_holds_no_script_and_no_style_of_its_own() -> None:
    for tag, attributes in Page().tags:
        assert tag != "style"
        assert tag != "script" or attributes.get("src")
        assert not [name for name in attributes if name == "style" or name.startswith("on")]


def test_every_field_has_a_label() -> None:
    tags = Page().tags
    labelled = {attributes.get("for") for tag, attributes in tags if tag == "label"}
    inside = {"heat-on", "strict", "file", "weights", "again"}  # these stand within their labels
    for tag, attributes in tags:
        if tag in ("input", "textarea"):
            assert attributes["id"] in labelled | inside or "aria-label" in attributes


def test_ids_are_unique_and_known_to_the_script() -> None:
    known = [attributes["id"] for _, attributes in Page().tags if "id" in attributes]
    assert len(known) == len(set(known))
    assert set(re.findall(r'\$\("([\w-]+)"\)', scripts())) <= set(known)


def test_both_languages_say_everything() -> None:
    words: dict[str, dict[str, str]] = json.loads(file_of("words.json"))
    assert set(words) == {"en", "zh"}
    assert words["en"].keys() == words["zh"].keys()
    for name, english in words["en"].items():
        holes = re.compile(r"\{\w+\}")
        assert set(holes.findall(english)) == set(holes.findall(words["zh"][name])), name
        assert english and words["zh"][name]
    asked = set(re.findall(r'word\("(\w+)"', scripts()))
    keys = ("data-word", "data-label")
    shown = {attributes[key] for _, attributes in Page().tags for key in keys if key in attributes}
    assert asked | shown <= words["en"].keys()


def scripts() -> str:
    """All scripts of the page."""
    return "\n".join(file_of(f"{name}.js").decode() for name in SCRIPTS)


def palettes() -> dict[str, dict[str, str]]:
    light, dark = file_of("console.css").decode().split("prefers-color-scheme: dark", 1)
    return {name: dict(re.findall(r"--([\w-]+): (#\w{6})", css)) for name, css in (("light", light), ("dark", dark))}


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable(scheme: str) -> None:
    colours = palettes()[scheme]
    found = {pair: round(contrast(colours[pair[0]], colours[pair[1]]), 2) for pair in TEXT_ON}
    assert min(found.values()) >= READABLE, found
    assert contrast(colours["edge"], colours["panel"]) >= EDGE


async def test_the_page_is_told_what_is_there() -> None:
    async with laid(ring=RING) as table:
        told = (await table.client.get("/console/there.json")).json()
    assert {name for name, there_is in told.items() if there_is} == {"ready", "keys"}
    async with laid(load=lambda: served(FakeAnswer()), ready=False) as table:
        assert (await table.client.get("/console/there.json")).json()["keys"] is False


def test_the_page_is_open_and_what_it_asks_for_is_not() -> None:
    assert role_of("/console") is None
    assert role_of("/v1/drift") == "ask"
    assert role_of("/v1/admin/versions") == "admin"
