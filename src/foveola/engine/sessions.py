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
from foveola.engine.options import EngineOptions
from foveola.engine.providers import check_fall_back, providers
from foveola.exchange import Damaged


@dataclass(frozen=True, slots=True)
class Version:
    """Names of weights. ``model_hash`` is that of all together; features depend on ``vision`` only, keys and values
    on features and ``language`` only."""

    model_hash: str = ""
    vision: str = ""
    language: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Sessions:
    """Graph by the role that model.json gives it (vision, embed, decoder, …), and what weights they hold."""

    graphs: Mapping[str, Any]
    version: Version


def open_sessions(bundle: Bundle, options: EngineOptions, without: tuple[str, ...] = ()) -> Sessions:
    """Open all graphs of a bundle but those of the roles ``without``, side by side. Raises ``Damaged``."""
    files = {role: file for role, file in bundle.model["graphs"].items() if role not in without}
    with ThreadPoolExecutor(max(len(files), 1)) as pool:  # native code that lets other threads run
        opened = {role: pool.submit(open_session, bundle, file, options) for role, file in files.items()}
        graphs = {role: future.result() for role, future in opened.items()}
    return Sessions(graphs, version_of(bundle, {}))


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
    bundle: Bundle, file: str, options: EngineOptions, weights: Mapping[str, np.ndarray[Any, Any]] | None = None
) -> Any:
    """Open one graph, with ``weights`` instead of the constants of their names. Raises ``Damaged``."""
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1
    settings.add_session_config_entry("session.intra_op.allow_spinning", "1" if options.spin_us else "0")
    if options.spin_us:
        settings.add_session_config_entry("session.intra_op.spin_duration_us", str(options.spin_us))
        settings.add_session_config_entry("session.force_spinning_stop", "1")  # no waiting after the last operator
    # A memory pattern is kept for every new combination of input shapes: over thousands of pictures, a leak.
    settings.enable_mem_pattern = False
    # A sealed bundle is decrypted into memory and never onto the disk.
    sealed = bundle.vault is not None
    source: bytes | str = bundle.read(file) if sealed or weights else str(bundle.file(file))
    if weights and isinstance(source, bytes):
        source = overwritten(source, file, weights)
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
