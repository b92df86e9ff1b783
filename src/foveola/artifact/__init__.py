"""Artefacts on disk: checkpoints and bundles, each a directory that knows its files, digests and lineage."""

from foveola.artifact.bundle import Bundle, write_bundle
from foveola.artifact.checkpoint import Checkpoint, write_checkpoint
from foveola.artifact.describe import describe
from foveola.artifact.finding import Finding
from foveola.artifact.safetensors import TensorInfo

__all__ = ["Bundle", "Checkpoint", "Finding", "TensorInfo", "describe", "write_bundle", "write_checkpoint"]
