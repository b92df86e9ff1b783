"""Weights on disk and in memory, for every room of the workshop: formats of few bits, and reading a checkpoint.

Importing this package loads no torch.
"""
