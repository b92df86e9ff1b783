"""``foveola guard``: make and try what guards a server."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from foveola.exchange import Invalid
from foveola.guard.wordfilter import ACTIONS, WordStream
from foveola.guard.words import compile_words, load_words, parse_words, read_list, write_words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One subcommand per thing that is made or tried."""
    tasks = parser.add_subparsers(metavar="WHAT", required=True)
    words = tasks.add_parser("words", help="compile lists of banned words into one file")
    words.add_argument("lists", metavar="LIST", type=Path, nargs="+", help="one word per line, =word for whole words")
    words.add_argument("--out", metavar="FILE", type=Path, required=True, help="the compiled file")
    words.add_argument("--json", action="store_true", help="print figures for programs")
    words.set_defaults(task=_compile)
    check = tasks.add_parser("filter", help="show what a compiled list of words does to a text")
    check.add_argument("file", metavar="FILE", type=Path, help="the compiled file")
    check.add_argument("text", metavar="TEXT", help="the text, or - to read standard input")
    check.add_argument("--action", choices=ACTIONS, default="mask")
    check.add_argument("--json", action="store_true", help="print text, hits and version for programs")
    check.set_defaults(task=_filter)


def run(arguments: argparse.Namespace) -> int:
    """Do it; raises refusals that say what is wrong with what was given."""
    return int(arguments.task(arguments))


def _compile(arguments: argparse.Namespace) -> int:
    words: dict[str, bool] = {}
    for path in arguments.lists:
        for word, whole in read_list(_text_of(path).splitlines(), path.name).items():
            words[word] = whole and words.get(word, True)
    data = compile_words(words)
    compiled = parse_words(data, arguments.out.name)
    write_words(data, arguments.out)
    figures = {"words": compiled.count, "version": compiled.version, "bytes": len(data)}
    if arguments.json:
        print(json.dumps(figures))
    else:
        print(f"{arguments.out}: {compiled.count:,} words, version {compiled.version}, {len(data):,} bytes")
    return 0


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Invalid(f"{path.name} is not UTF-8; save the list in UTF-8.", field="words") from None
    except OSError as error:
        raise Invalid(f"{path.name} cannot be read ({error.strerror}); name a list.", field="words") from None


def _filter(arguments: argparse.Namespace) -> int:
    stream = WordStream(load_words(arguments.file), arguments.action)
    text = stream.feed(sys.stdin.read() if arguments.text == "-" else arguments.text) + stream.end()
    if arguments.json:
        document = {"text": text, "hits": stream.hits, "stopped": stream.stopped, "version": stream.words.version}
        print(json.dumps(document, ensure_ascii=False))
    else:
        print(text)
    return 0
