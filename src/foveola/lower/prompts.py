"""What the edge needs to know about a checkpoint's prompts, as data: control tokens and the template's variables."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer

from foveola.artifact import Checkpoint
from foveola.exchange import Damaged, Unsupported
from foveola.family import Family
from foveola.family.registry import MOST

_VARIABLES = ("bos_token", "eos_token", "unk_token", "pad_token")


def read_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """tokenizer.json of the checkpoint. Raises ``Damaged`` where it is none."""
    path = checkpoint.file("tokenizer.json")
    try:
        text = path.read_text(encoding="utf-8")
        _check_ids(json.loads(text))
        return Tokenizer.from_str(text)
    except (Damaged, OSError):
        raise
    except Exception:  # noqa: BLE001 - the library raises bare Exception; every cause means the same here
        raise Damaged(
            "tokenizer.json is no tokenizer that this version can read; it is damaged or was cut off. Copy the "
            "checkpoint whole."
        ) from None


def _check_ids(data: Any) -> None:
    """The library writes a vocabulary number by number up to the largest, which takes hours where that is damaged."""
    vocabulary = data["model"].get("vocab")
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    ids += [token["id"] for token in data.get("added_tokens") or ()]
    most = max(ids, default=0)
    if most >= MOST:
        raise Damaged(f"tokenizer.json numbers a token {most}; no model has {MOST} of them. Copy the checkpoint whole.")


def prompt_tokens(checkpoint: Checkpoint, family: Family) -> dict[str, str | list[str] | None]:
    """Special tokens as text: the edge looks their ids up in its own tokenizer.json.

    ``prefix`` are those that the tokenizer puts before every prompt. Raises ``Damaged`` for ids that it does not have,
    ``Unsupported`` where it puts something behind every prompt.
    """
    tokenizer = read_tokenizer(checkpoint)

    def text(index: int) -> str:
        token = tokenizer.id_to_token(index) if 0 <= index < 2**32 else None
        if token is None:
            raise Damaged(f"tokenizer.json has no token {index}, which config.json names; they belong together.")
        return str(token)

    found: dict[str, str | list[str] | None] = {}
    for role, ids in family.token_ids(checkpoint.config, checkpoint.side_file("generation") or {}).items():
        found[role] = None if ids is None else [text(i) for i in ids] if isinstance(ids, list) else text(ids)
    return found | {"prefix": [text(index) for index in _prefix(tokenizer)]}


def template_variables(checkpoint: Checkpoint) -> dict[str, str]:
    """The special tokens that a chat template may name (``bos_token``), from tokenizer_config.json."""
    settings = checkpoint.side_file("tokenizer") or {}
    found = {}
    for name in _VARIABLES:
        token = settings.get(name)
        if isinstance(token, dict):
            token = token.get("content")
        if isinstance(token, str):
            found[name] = token
    return found


def _prefix(tokenizer: Tokenizer) -> list[int]:
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    whole: list[int] = tokenizer.encode("a", add_special_tokens=True).ids
    before = len(whole) - len(bare)
    if whole[before:] != bare:
        raise Unsupported(
            "tokenizer.json puts control tokens behind every prompt; supported are tokenizers that put them before it."
        )
    return whole[:before]
