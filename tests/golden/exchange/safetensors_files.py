"""Writes the safetensors files of SafetensorsTest with the libraries that users have: `safetensors`, and the shards and
index of `huggingface_hub`, as transformers' save_pretrained uses them (pip install safetensors huggingface_hub torch).

    python3 safetensors_files.py    # model.safetensors, buffers.safetensors, sharded/

Element i of a tensor is (i - 3) / 7, computed in float64 and rounded to float32, then to the tensor's dtype.
"""
import json
import pathlib

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import save_file

here = pathlib.Path(__file__).parent


def tensor(dtype, *shape):
    elements = torch.Size(shape).numel()
    return ((torch.arange(elements, dtype=torch.float64) - 3) / 7).to(torch.float32).to(dtype).reshape(shape)


model = {
    "decoder.weight": tensor(torch.float16, 3, 5),
    "scale": tensor(torch.float32),
    "encoder.weight": tensor(torch.float32, 2, 3),
    "empty": tensor(torch.bfloat16, 0, 4),
    'a "quoted" \\ name of ümläuts': tensor(torch.bfloat16, 7),
    "encoder.bias": tensor(torch.bfloat16, 9),
}
save_file(model, here / "model.safetensors", metadata={"format": "pt"})

buffers = {
    "weight": tensor(torch.float32, 2, 2),
    "position_ids": torch.arange(5),
    "mask": torch.tensor([True, False, True]),
    "double": torch.zeros(2, dtype=torch.float64),
}
save_file(buffers, here / "buffers.safetensors", metadata={"format": "pt", "a note": "ü\n"})

# A shard takes 64 bytes; "large" has one of its own.
shards = {
    "one": tensor(torch.float32, 8),
    "large": tensor(torch.float32, 20),
    "two": tensor(torch.bfloat16, 10),
    "three": tensor(torch.float16, 2, 3),
    "four": tensor(torch.float32, 4, 2),
}
split = split_torch_state_dict_into_shards(
    shards, filename_pattern="model{suffix}.safetensors", max_shard_size=64
)
(here / "sharded").mkdir(exist_ok=True)
for name, tensors in split.filename_to_tensors.items():
    save_file({key: shards[key] for key in tensors}, here / "sharded" / name, metadata={"format": "pt"})
parameters = sum(value.numel() for value in shards.values())
index = {"metadata": {"total_parameters": parameters, **split.metadata}, "weight_map": split.tensor_to_filename}
(here / "sharded" / "model.safetensors.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
