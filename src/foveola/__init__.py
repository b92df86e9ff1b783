"""Foveola: a vision-language model from checkpoint to production line.

Rooms are subpackages; see ``docs/`` for how a request and a checkpoint travel through them. Importing this
package loads nothing heavy.
"""

__version__ = "0.1.0"
