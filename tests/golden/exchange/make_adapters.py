#!/usr/bin/env python3
"""Writes random adapters of PEFT for models that make_models.py wrote, with the logits of both together (pip: torch, transformers,
peft, safetensors), for tests/apps/exchange.

    tests/golden/exchange/make_adapters.py
"""

import os
import shutil

import peft
import torch
import transformers
from make_models import HERE, parity

ADAPTERS = {"marian": dict(r=3, lora_alpha=5, target_modules=["q_proj", "v_proj", "fc1", "decoder.layers.0.encoder_attn.out_proj"]),
            "llama-bpe": dict(r=2, lora_alpha=3, use_rslora=True, target_modules=["k_proj", "down_proj"])}


def main():
    for family, settings in ADAPTERS.items():
        base = os.path.join(HERE, family)
        directory = base + "-lora"
        shutil.rmtree(directory, ignore_errors=True)
        model = getattr(transformers, parity.FAMILIES[family][0]).from_pretrained(base).float()
        model = peft.get_peft_model(model, peft.LoraConfig(**settings)).eval()
        generator = torch.Generator().manual_seed(3)
        for name, value in model.named_parameters():
            if "lora_" in name:
                value.data = torch.randn(value.shape, generator=generator) * 0.3
        model.peft_config["default"].base_model_name_or_path = family
        model.save_pretrained(directory)
        os.chmod(os.path.join(directory, "adapter_model.safetensors"), 0o644)
        os.remove(os.path.join(directory, "README.md"))
        with open(os.path.join(base, "logits.txt"), encoding="ascii") as file:
            source, target = (list(map(int, file.readline().split())) for _ in range(2))
        special = {key: getattr(model.config, key) for key in ("eos_token_id", "decoder_start_token_id") if hasattr(model.config, key)}
        with open(os.path.join(directory, "logits.txt"), "w", encoding="ascii") as file:
            file.write(" ".join(map(str, source)) + "\n" + " ".join(map(str, target)) + "\n")
            for row in parity.logits_of(model, special, [(source, target)]):
                file.write(" ".join(f"{value:.5g}" for value in row) + "\n")


if __name__ == "__main__":
    main()
