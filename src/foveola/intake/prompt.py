"""Turns to token ids: the model's chat template in a sandbox, where nothing that a user writes is a control token.

The template never sees a user's text. It is rendered with one unguessable mark per text; the marks are then
replaced by the texts, and only the template's own characters are searched for control tokens. Text and the
template's ordinary characters around it are encoded in one run with ``encode_special_tokens``, so that ordinary text
yields the ids of transformers' ``apply_chat_template``, and ``<|im_end|>`` from a user yields letters (CVE-2026-44222).
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from foveola.artifact.bundle import TOKENIZER_FILE, Bundle
from foveola.exchange import Damaged, Invalid, OverBudget, Turn
from foveola.intake.template import compile_template
from foveola.intake.views import View


@dataclass(frozen=True, slots=True, eq=False)
class PromptTokens:
    """A prompt as the decoder takes it. ``ids`` int64 [S] hold the image token once per visual token.

    ``image_spans`` are the (start, end) of each picture in ``ids``, control tokens between its visual ones included;
    ``grids`` its (rows, columns), in patches or in cells as they came. ``visual`` int64 [N] are the places of all
    visual tokens.
    """

    ids: NDArray[np.int64]
    image_spans: tuple[tuple[int, int], ...]
    grids: tuple[tuple[int, int], ...]
    visual: NDArray[np.int64]

    @property
    def visual_tokens(self) -> int:
        """How many of the tokens stand for pictures."""
        return len(self.visual)


@dataclass(frozen=True, slots=True)
class Draft:
    """A prompt with one image token per picture, before the pictures' sizes are known.

    ``image_at`` are the indices of those tokens in ``ids``.
    """

    ids: tuple[int, ...]
    image_at: tuple[int, ...]

    @property
    def text_tokens(self) -> int:
        """Number of tokens that are not visual: what of the context is taken before any picture."""
        return len(self.ids) - len(self.image_at)


class PromptFormat:
    """The chat template, the tokenizer and the control tokens of one model.

    Attributes: ``image_token_id``, ``eos_ids``, ``pad_id``, ``merge_size``, ``max_length`` and ``tokenizer`` (which
    encodes text only as text). Safe to share between threads.
    """

    def __init__(self, model: Mapping[str, Any], tokenizer: Tokenizer) -> None:
        """``model`` is the bundle's model.json; ``tokenizer`` becomes this object's own, and its settings change.

        Raises Damaged when the two do not fit together.
        """
        self.tokenizer: Tokenizer = tokenizer
        self.tokenizer.no_truncation()  # a prompt is refused or whole
        self.tokenizer.no_padding()
        self._special, self._strips = _special_tokens(self.tokenizer)
        self._special_ids = frozenset(self._special.values())
        self._special_pattern = re.compile(
            "(" + "|".join(re.escape(text) for text in sorted(self._special, key=len, reverse=True)) + ")"
        )
        tokens, prompt = model["tokens"], model.get("prompt") or {}
        # Whoever reads text only has no image token; -1 is no token's number.
        self.image_token_id = -1 if model.get("geometry") == "text" else self._named(tokens.get("image"), "image")
        self.eos_ids = tuple(self._named(text, "eos") for text in tokens.get("eos", ()))
        self.pad_id = self._named(tokens.get("pad"), "pad")
        self._prefix = tuple(self._named(text, "prefix") for text in tokens.get("prefix") or ())
        self._variables: Mapping[str, Any] = prompt.get("variables") or {}
        self._picture_text: str | None = prompt.get("picture_text")
        self._prefix_after_picture = self._prefix if prompt.get("prefix_after_picture") else ()
        self.merge_size: int = model["vision"].get("merge_size", 1)
        self.max_length: int = model["text"]["max_length"]
        self._longest_token = max(len(token) for token in self.tokenizer.get_vocab(with_added_tokens=True))
        default_system = model.get("default_system")
        self._default = (Turn("system", default_system),) if default_system is not None else ()
        self._template = compile_template(model.get("chat_template"))
        self._later_runs = _later_runs(self.tokenizer)
        self._lists = False
        self._lists = not self._shows_plain_text()
        self._prove_encoding_by_runs()

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> PromptFormat:
        """The prompt format of an opened bundle. Raises Damaged."""
        raw = bundle.read(TOKENIZER_FILE)
        try:
            tokenizer = Tokenizer.from_str(raw.decode("utf-8"))
        except Exception:  # noqa: BLE001 - the library raises bare Exception; every cause means the same here
            raise Damaged(f"{TOKENIZER_FILE} is no tokenizer that this version can read.") from None
        return cls(bundle.model, tokenizer)

    def tokens(self, turns: Sequence[Turn], grids: Sequence[tuple[int, int]]) -> PromptTokens:
        """The prompt for ``turns`` whose pictures, in order, have ``grids`` = (rows, columns) in patches.

        Raises Invalid for text that is not Unicode or turns that the template refuses, OverBudget for text that can't
        fit, ValueError when the number of grids is not that of the pictures.
        """
        return self.expand(self.draft(turns), grids)

    def expand(self, draft: Draft, grids: Sequence[tuple[int, int]]) -> PromptTokens:
        """Replace the one image token per picture by as many as its grid has visual tokens."""
        counts = [((rows // self.merge_size) * (columns // self.merge_size),) for rows, columns in grids]
        return self._laid_out(draft, counts, grids)

    def show(self, draft: Draft, views: Sequence[View]) -> PromptTokens:
        """Replace the one image token per picture by what its view says stands there."""
        return self._laid_out(draft, [view.pieces for view in views], [view.grid for view in views])

    def _laid_out(
        self, draft: Draft, pieces: Sequence[Sequence[int | str]], grids: Sequence[tuple[int, int]]
    ) -> PromptTokens:
        if len(grids) != len(draft.image_at):
            raise ValueError(f"{len(draft.image_at)} pictures in the turns, {len(grids)} grids")
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        visual = [np.empty(0, dtype=np.int64)]
        done = 0
        for at, shown in zip(draft.image_at, pieces, strict=True):
            ids.extend(draft.ids[done:at])
            start = len(ids)
            for piece in shown:
                if isinstance(piece, int):
                    visual.append(np.arange(len(ids), len(ids) + piece))
                    ids.extend([self.image_token_id] * piece)
                else:
                    ids.extend(self._encoded(self._split(piece), first=False))
            spans.append((start, len(ids)))
            ids.extend(self._prefix_after_picture)
            done = at + 1
        ids.extend(draft.ids[done:])
        return PromptTokens(
            np.asarray(ids, dtype=np.int64), tuple(spans), tuple((r, c) for r, c in grids), np.concatenate(visual)
        )

    def draft(self, turns: Sequence[Turn]) -> Draft:
        """Render and encode ``turns`` with one image token per picture. Raises as ``tokens`` does."""
        turns = tuple(turns)
        if not any(turn.role == "system" for turn in turns):
            turns = (*self._default, *turns)
        self._check_texts([turn.text for turn in turns])
        pieces = self._render(turns)
        prefix = () if pieces and pieces[0] in self._prefix else self._prefix
        ids = [*prefix, *self._encoded(pieces)]
        images = [at for at, token in enumerate(ids) if token == self.image_token_id]
        expected = sum(len(turn.images) for turn in turns)
        if len(images) != expected:
            raise Damaged(f"model.json: chat_template writes {len(images)} image tokens for {expected} pictures.")
        return Draft(tuple(ids), tuple(images))

    def _render(self, turns: Sequence[Turn]) -> list[int | str]:
        """Control token ids and runs of text, in order; neighbouring runs are joined."""
        nonce = secrets.token_hex(16)
        texts: dict[str, str | int] = {}
        messages = [self._message(turn, f"{nonce}-{index}", texts) for index, turn in enumerate(turns)]
        try:
            rendered = self._template.render(messages=messages, add_generation_prompt=True, **self._variables)
        except Exception as error:  # noqa: BLE001 - whatever Python raises inside of somebody's template
            known = isinstance(error, jinja2.TemplateError) and str(error)
            reason = str(error)[:200] if known else f"it ends in {type(error).__name__}"
            raise Invalid(f"The model's chat template refuses these turns: {reason}", field="turns") from None
        pieces: list[int | str] = []
        seen: set[str] = set()
        for part in re.split(f"({nonce}-[0-9.]+-)", rendered):
            if part in texts:
                seen.add(part)
                _append(pieces, texts[part])
                continue
            for own in self._split(part):
                _append(pieces, own)
        if len(seen) != len(texts):
            raise Invalid(
                "The model's chat template leaves out the text of a turn; this model cannot be asked in this order "
                "of roles. Put everything into one user turn.",
                field="turns",
            )
        return pieces

    def _split(self, text: str) -> list[int | str]:
        """The model's own text as control tokens and runs of text between them."""
        return [self._special.get(part, part) for part in self._special_pattern.split(text) if part]

    def _encoded(self, pieces: Sequence[int | str], *, first: bool = True) -> list[int]:
        """Token ids of control tokens and runs of text. ``first``: the prompt begins with them.

        Some control tokens swallow the blanks beside them (``lstrip``, ``rstrip`` in tokenizer.json).
        """
        ids: list[int] = []
        for at, piece in enumerate(pieces):
            if isinstance(piece, int):
                ids.append(piece)
                continue
            if at and pieces[at - 1] in self._strips[1]:
                piece = piece.lstrip()
            if at + 1 < len(pieces) and pieces[at + 1] in self._strips[0]:
                piece = piece.rstrip()
            if piece:
                ids.extend(self._encode(piece, first=first and at == 0))
        return ids

    def _encode(self, text: str, *, first: bool = True) -> list[int]:
        ids: list[int] = (self.tokenizer if first else self._later_runs).encode(text, add_special_tokens=False).ids
        if not self._special_ids.isdisjoint(ids):
            # Only a tokenizer whose ordinary vocabulary spells a control token can come here.
            raise Invalid("The text holds a control token of the model that cannot be written as text.", field="text")
        return ids

    def _message(self, turn: Turn, mark: str, texts: dict[str, str | int]) -> dict[str, Any]:
        """``turn`` for the template: a mark for every text, entered into ``texts`` with what it stands for."""
        parts = turn.parts or (*range(len(turn.images)), turn.text)
        shown: list[dict[str, str]] = []
        for at, part in enumerate(parts):
            own = f"{mark}.{at}-"
            if isinstance(part, str):
                # Empty text stays empty: templates ask whether there is any.
                texts |= {own: part} if part else {}
                shown.append({"type": "text", "text": own if part else ""})
            elif self._picture_text is None:
                shown.append({"type": "image"})
            else:  # a template that knows text only: the picture is a part of the text
                texts[own] = self.image_token_id
                shown.append({"type": "text", "text": self._picture_text.replace("{image}", own)})
        if self._picture_text is not None or not (turn.images or turn.parts or self._lists):
            return {"role": turn.role, "content": "".join(part["text"] for part in shown)}
        return {"role": turn.role, "content": shown}

    def _shows_plain_text(self) -> bool:
        """Whether the template shows a turn whose content is plain text; else it wants a list of parts."""
        try:
            self._render((Turn("user", "a"),))
        except Invalid:
            return False
        return True

    def _check_texts(self, texts: Sequence[str]) -> None:
        try:
            for text in texts:
                text.encode("utf-8")
        except UnicodeEncodeError:
            raise Invalid("The text holds half of a surrogate pair; send valid Unicode.", field="text") from None
        # Normalisation composes at most three characters into one; beyond this bound no text can fit, and encoding
        # megabytes only to find out would cost seconds.
        most = 3 * self.max_length * self._longest_token
        characters = sum(map(len, texts))
        if characters > most:
            raise OverBudget(
                f"The text has {characters} characters; no more than {most} can fit into the {self.max_length} tokens "
                "of this model's context. Shorten it.",
                field="text",
            )

    def _named(self, text: object, what: str) -> int:
        if not isinstance(text, str) or text not in self._special:
            raise Damaged(
                f"model.json names {text!r} as its {what} token, which tokenizer.json does not mark as special; "
                "a user could write it. Mark it there and compile the bundle anew."
            )
        return self._special[text]

    def _prove_encoding_by_runs(self) -> None:
        """Prove on one conversation that encoding run by run gives what encoding the whole would.

        It would not for a tokenizer that treats the first word of a sequence in its own way. Leaves the tokenizer
        encoding control tokens as text.
        """
        try:
            pieces = self._render((*self._default, Turn("user", " Is part 7\n\nfine? \n")))
        except Invalid as refusal:
            raise Damaged(f"model.json: chat_template fails at one plain question. {refusal.message}") from None
        names = {token: text for text, token in self._special.items()}
        whole = "".join(names[piece] if isinstance(piece, int) else piece for piece in pieces)
        self.tokenizer.encode_special_tokens = self._later_runs.encode_special_tokens = False
        expected = self.tokenizer.encode(whole, add_special_tokens=False).ids
        self.tokenizer.encode_special_tokens = self._later_runs.encode_special_tokens = True
        if self._encoded(pieces) != expected:
            raise Damaged("tokenizer.json encodes text in dependence of what stands before it; it is not supported.")


def _append(pieces: list[int | str], piece: int | str) -> None:
    if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
        pieces[-1] += piece
    elif piece != "":
        pieces.append(piece)


def _special_tokens(tokenizer: Tokenizer) -> tuple[dict[str, int], tuple[frozenset[int], frozenset[int]]]:
    """Control tokens by text; and those that swallow the blanks on their left, and on their right."""
    special: dict[str, int] = {}
    left, right = set(), set()
    for token_id, token in tokenizer.get_added_tokens_decoder().items():
        if not token.special:
            continue
        if token.single_word:
            raise Damaged(
                f"tokenizer.json: the control token {token.content!r} counts as a whole word only (single_word), "
                "which is not supported."
            )
        special[token.content] = token_id
        if token.lstrip:
            left.add(token_id)
        if token.rstrip:
            right.add(token_id)
    if not special:
        raise Damaged("tokenizer.json marks no token as special; a model needs control tokens.")
    return special, (frozenset(left), frozenset(right))


def _later_runs(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer for runs of text that do not begin the prompt.

    SentencePiece vocabularies put a blank before the first word of a text, and some (``prepend_scheme`` first) before
    no other.
    """
    data = json.loads(tokenizer.to_str())
    before = data.get("pre_tokenizer") or {}
    steps = before.get("pretokenizers", [before]) if before.get("type") == "Sequence" else [before]
    first = [step for step in steps if step.get("type") == "Metaspace" and step.get("prepend_scheme") == "first"]
    if not first:
        return tokenizer
    for step in first:
        step["prepend_scheme"] = "never"
    return Tokenizer.from_str(json.dumps(data))
