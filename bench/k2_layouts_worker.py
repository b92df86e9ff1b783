"""ModelOpt's part of ``k2_layouts.py``: MODEL OUT OURS. Quantises MODEL into OUT; packs OURS again, and compares."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import modelopt
import modelopt.torch.quantization as mtq
import torch
from modelopt.torch.export import export_hf_checkpoint
from modelopt.torch.export.quant_utils import pack_int4_in_uint8
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

GROUP = 128
source, out, ours = map(Path, sys.argv[1:])
model = LlamaForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
ids = torch.randint(0, 320, (2, 16), generator=torch.Generator().manual_seed(0))
mtq.quantize(model, mtq.INT4_AWQ_CFG, lambda quantised: quantised(ids))
export_hf_checkpoint(model.half(), export_dir=str(out))

tensors = load_file(ours / "model.safetensors")
names = [name.removesuffix("_scale") for name in tensors if name.endswith(".weight_scale")]
same = 0
for name in names:
    scale = tensors[f"{name}_scale"].float()
    halves = torch.stack((tensors[name] & 15, tensors[name] >> 4), dim=1).to(torch.int8).flatten(0, 1)
    values = torch.where(halves > 7, halves - 16, halves).float()
    weight = values * scale.repeat_interleave(GROUP, dim=1)
    same += int(torch.equal(pack_int4_in_uint8(weight, scale, GROUP), tensors[name]))
print(json.dumps({"modelopt": modelopt.__version__, "matrices": len(names), "same_bytes": same}))
