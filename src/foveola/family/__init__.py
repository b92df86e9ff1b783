"""What differs between families of vision-language models, as data.

A family says where the parts of a checkpoint are, which geometry its pictures have and what the edge must know
about its prompt. Nothing here computes with weights, and importing it loads no torch.
"""

from foveola.family.base import DecoderNames, Family, PartNames, TowerNames
from foveola.family.registry import family_of, supported

__all__ = ["DecoderNames", "Family", "PartNames", "TowerNames", "family_of", "supported"]
