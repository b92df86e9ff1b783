"""The graphs of a bundle, opened in ONNX Runtime, and the names of the weights that are in them.

A patch opens some of them again with other weights (``patch.py``); the rest is shared, since a session may be run from
anywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort

from foveola.artifact import Bundle
from foveola.engine.initializers import overwritten
from foveola.engine.levels import LEVELS, at_level
from foveola.engine.options import EngineOptions
from foveola.engine.providers import check_fall_back, providers
from foveola.exchange import Damaged

DECODER, PREFILL = "decoder", "prefill"
"""Role of a graph, and of the session that reads prompts where the bundle's plan wants one: the decoder's graph with
its products at another accuracy level."""

SHORT_SPIN_US = 100


@dataclass(frozen=True, slots=True)
class Version:
    """Names of weights. ``model_hash`` is that of all together; features depend on ``vision`` only, keys and values
    on features and ``language`` only."""

    model_hash: str = ""
    vision: str = ""
    language: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Sessions:
    """Graph by the role that model.json gives it (vision, embed, decoder, …), and what weights they hold. ``PREFILL``
    is there besides where prompts have a session of their own."""

    graphs: Mapping[str, Any]
    version: Version


def open_sessions(bundle: Bundle, options: EngineOptions, without: tuple[str, ...] = ()) -> Sessions:
    """Open all graphs of a bundle but those of the roles ``without``, side by side. Raises ``Damaged``."""
    with ThreadPoolExecutor(4) as pool:  # native code that lets other threads run
        opened = [
            pool.submit(open_role, bundle, role, options) for role in bundle.model["graphs"] if role not in without
        ]
        graphs = {role: session for future in opened for role, session in future.result().items()}
    return Sessions(graphs, version_of(bundle, {}))


def open_role(
    bundle: Bundle, role: str, options: EngineOptions, weights: Mapping[str, np.ndarray[Any, Any]] | None = None
) -> dict[str, Any]:
    """Open the graph of a role, with ``weights`` instead of the constants of their names: its session by its role and,
    of the decoder, that for prompts where the plan wants one. Raises ``Damaged``."""
    file = bundle.model["graphs"][role]
    opened = {role: open_session(bundle, file, options, weights)}
    level = prefill_level(bundle, options) if role == DECODER else None
    if level is not None:
        opened[PREFILL] = open_session(bundle, file, options, weights, accuracy_level=level)
    return opened


def prefill_level(bundle: Bundle, options: EngineOptions) -> int | None:
    """The accuracy level at which prompts are to be read; None where one session does both. Raises ``Damaged``."""
    phases = bundle.model.get("plan", {}).get("phases")
    if phases is None or not options.two_layouts or options.provider != "cpu":
        return None
    level = phases.get("prefill_level") if isinstance(phases, dict) else phases
    if level is not None and (isinstance(level, bool) or level not in LEVELS):
        raise Damaged(
            f"model.json: plan.phases.prefill_level is {level!r}; expected one of {', '.join(map(str, LEVELS))}, or "
            "null. Measure the plan anew."
        )
    return None if level is None else int(level)


def version_of(bundle: Bundle, patches: Mapping[str, str]) -> Version:
    """The version of a bundle in which some graphs, by role, have weights of another digest than their file's."""
    digests = {role: patches.get(role, bundle.files[file].sha256) for role, file in bundle.model["graphs"].items()}
    language = "".join(digest for role, digest in sorted(digests.items()) if role != "vision")
    model_hash = bundle.model_hash
    if patches:
        named = model_hash + "".join(f"{role}={digest};" for role, digest in sorted(patches.items()))
        model_hash = hashlib.sha256(named.encode()).hexdigest()
    return Version(model_hash, digests.get("vision", ""), hashlib.sha256(language.encode()).hexdigest())


def open_session(
    bundle: Bundle,
    file: str,
    options: EngineOptions,
    weights: Mapping[str, np.ndarray[Any, Any]] | None = None,
    *,
    accuracy_level: int | None = None,
) -> Any:
    """Open one graph, with ``weights`` instead of the constants of their names and its products at ``accuracy_level``
    instead of their own. Raises ``Damaged``."""
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1
    settings.add_session_config_entry("session.intra_op.allow_spinning", "1" if options.spin_us else "0")
    if options.spin_us:
        settings.add_session_config_entry("session.intra_op.spin_duration_us", str(options.spin_us))
    if options.spin_us > SHORT_SPIN_US:
        # No waiting after the last operator. A short wait may outlast it: the next token's run finds the threads awake.
        settings.add_session_config_entry("session.force_spinning_stop", "1")
    # A memory pattern is kept for every new combination of input shapes: over thousands of pictures, a leak.
    settings.enable_mem_pattern = False
    # A sealed bundle is decrypted into memory and never onto the disk.
    sealed = bundle.vault is not None
    changed = bool(weights) or accuracy_level is not None
    source: bytes | str = bundle.read(file) if sealed or changed else str(bundle.file(file))
    if changed and isinstance(source, bytes):
        source = overwritten(source, file, weights) if weights else source
        source = source if accuracy_level is None else at_level(source, file, accuracy_level)
        folder = str(bundle.file(file).parent)  # for what lies beside the graph
        settings.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    if sealed and (beside := f"{file}.data") in bundle.files:
        data = bundle.read(beside)
        settings.add_external_initializers_from_files_in_memory([beside], [data], [len(data)])
    asked = providers(options.provider)
    try:
        session = ort.InferenceSession(source, settings, providers=asked)
    except Exception as error:
        # The seal was right, so the file is as it was compiled; what ONNX Runtime says of it names paths.
        raise Damaged(
            f"{file} cannot be loaded by ONNX Runtime {ort.__version__}; compile the bundle anew for this version."
        ) from error
    check_fall_back(asked, session.get_providers(), bundle.model.get("profile", "ort"), file)
    return session
