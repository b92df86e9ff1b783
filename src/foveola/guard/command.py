"""``foveola guard``: make and try what guards a server."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from foveola.artifact.audit import AuditLog
from foveola.exchange import BadImage, Invalid
from foveola.guard.digests import SIZE, open_digests, read_digests, sort_digests, write_digests
from foveola.guard.keys import private_key
from foveola.guard.wordfilter import ACTIONS, WordStream
from foveola.guard.words import compile_words, load_words, parse_words, read_list, write_words

_JPEG = b"\xff\xd8"


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
    allow = tasks.add_parser("allow", help="make or change a list of pictures that may be asked about")
    allow.add_argument("lists", metavar="LIST", type=Path, nargs="*", help="SHA-256 digests as sha256sum writes them")
    allow.add_argument("--out", metavar="FILE", type=Path, required=True, help="the list that a server reads")
    allow.add_argument("--base", metavar="FILE", type=Path, help="an earlier list whose digests stay")
    allow.add_argument("--remove", metavar="LIST", type=Path, action="append", default=[], help="digests to take out")
    allow.add_argument("--name", default="allow-list")
    allow.add_argument("--version", metavar="N", type=int, help="default: one more than that of --base, or 1")
    allow.add_argument("--sign", metavar="KEY", type=Path, help="private Ed25519 key in PEM")
    allow.add_argument("--json", action="store_true", help="print figures for programs")
    allow.set_defaults(task=_allow)
    blur = tasks.add_parser("blur", help="write pictures without faces, licence plates and metadata")
    blur.add_argument("pictures", metavar="PICTURE", type=Path, nargs="+")
    blur.add_argument("--out", metavar="DIR", type=Path, required=True, help="a folder; names stay")
    blur.add_argument("--audit", metavar="FILE", type=Path, help="the hash-chained log of what was done")
    blur.add_argument("--json", action="store_true", help="print one object per picture for programs")
    blur.set_defaults(task=_blur)


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


def _allow(arguments: argparse.Namespace) -> int:
    base = open_digests(arguments.base) if arguments.base is not None else None
    version = arguments.version or (base.version + 1 if base is not None else 1)
    rows = [base.rows()] if base is not None else []
    rows += [read_digests(_text_of(path).splitlines(), path.name) for path in arguments.lists]
    kept = sort_digests(np.concatenate(rows)) if rows else np.zeros((0, SIZE), np.uint8)
    for path in arguments.remove:
        gone = {row.tobytes() for row in read_digests(_text_of(path).splitlines(), path.name)}
        kept = kept[[row.tobytes() not in gone for row in kept]]
    key = private_key(arguments.sign) if arguments.sign is not None else None
    write_digests(arguments.out, kept, name=arguments.name, version=version, key=key)
    figures = {"name": arguments.name, "version": version, "digests": len(kept), "signed": key is not None}
    if arguments.json:
        print(json.dumps(figures))
    else:
        signed = "signed" if key is not None else "not signed"
        print(f"{arguments.out}: {len(kept):,} digests, version {version}, {signed}")
    return 0


def _blur(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import track

    from foveola.guard.privacy import Deidentifier

    audit = AuditLog(arguments.audit) if arguments.audit is not None else None
    deidentifier = Deidentifier.open(audit)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for path in track(arguments.pictures, "Erasing…", console=Console(stderr=True), disable=arguments.json):
        try:
            data = path.read_bytes()
        except OSError as error:
            raise BadImage(f"{path.name} cannot be read ({error.strerror}); name a picture's file.") from None
        done = deidentifier.picture(data, name=path.name)
        out = arguments.out / f"{path.stem}{'.jpg' if done.data.startswith(_JPEG) else '.png'}"
        out.write_bytes(done.data)
        counts = {f"{kind}s": sum(one.kind == kind for one in done.regions) for kind in ("face", "plate")}
        if arguments.json:
            print(json.dumps({"picture": path.name, "out": out.name, **counts, "coordinates": done.coordinate_hash}))
        else:
            print(f"{out}: {counts['faces']} faces and {counts['plates']} plates erased")
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
