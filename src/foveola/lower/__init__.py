"""Checkpoint to bundle: export, quantise by rounding, prove that nothing else changed, seal.

Importing this package loads no torch; ``compile_checkpoint`` does.
"""

from foveola.lower.options import CompileOptions

__all__ = ["CompileOptions"]
