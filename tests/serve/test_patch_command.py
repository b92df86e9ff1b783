"""What ``foveola patch`` says of a server's reply."""

from __future__ import annotations

from foveola.serve.patch_command import _told

REPLY = {"tensors": 3, "module_path": "visual", "before": "a" * 64, "model_hash": "b" * 64, "seconds": 0.5}


def test_a_patch_a_rollback_and_one_that_changes_nothing() -> None:
    assert list(_told(REPLY)) == ["3 tensors of visual replaced: aaaaaaaaaaaa -> bbbbbbbbbbbb in 0.50 s."]
    assert list(_told(REPLY | {"tensors": 0})) == ["Taken back: aaaaaaaaaaaa -> bbbbbbbbbbbb in 0.50 s."]
    same = list(_told(REPLY | {"before": "b" * 64}))
    assert same == ["Nothing has changed: these are the weights that serve already (bbbbbbbbbbbb)."]
