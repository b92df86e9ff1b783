"""Graph rewriting per chip: label, simplify, fuse, prove, price.

``rewrite.rewrite`` is the line. A *replacement* is a few nodes that stand for a few others; a pass of ``passes/`` finds
them, ``proof`` runs both on random and real inputs before any is applied, ``chips/`` say as data what a chip fuses and
under which conditions.
"""
