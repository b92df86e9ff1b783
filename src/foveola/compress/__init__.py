"""Checkpoint to smaller checkpoint: a recipe of steps, each of which says what it changed and what that cost.

Importing this package loads no torch.
"""
