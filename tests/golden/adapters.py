#!/usr/bin/env python3
"""Golden values of low-rank adapters (LoRA), computed with PEFT and PyTorch in float64: writes family_adapters.txt beside itself.

    python3 tests/golden/adapters.py       (PyTorch 2.15 and PEFT 0.21 made the committed file)

The model is family.py's. Each projection that the patterns name is a torch.nn.Linear, which PEFT gives an adapter. The file holds
what family.py writes, with the gradients of all parameters, and ten steps of Adam that train the adapters only: the losses before
each step and after the last, and the adapters then.
"""
import pathlib

import peft
import torch
from family import BASE, SETTINGS, Model, toml, write_values
from model import write_tensor

ADAPTER = dict(rank=3, alpha=7.0, targets=["*_attention.q", "*_attention.v", "decoder.*.out", "*.down"])
KEYS = dict(BASE, activation="swiglu", positions="rotary")
PARTS = dict(qkv=["q", "k", "v"], kv=["k", "v"], gateup=["gate", "up"])
STEPS, LEARNING_RATE = 10, 0.02


def is_target(name):
    return (name.endswith("_attention.q") or name.endswith("_attention.v") or name.endswith(".down") or
            name.startswith("decoder.") and name.endswith(".out"))


class AdaptedModel(Model):
    def linear(self, name, x, outputs, biases=None):
        y = super().linear(name, x, outputs, biases)
        start, joined = name.rsplit(".", 1)
        parts = [f"{start}.{part}" for part in PARTS.get(joined, [joined])]
        rows = outputs // len(parts)
        return torch.cat([part + (self.adapter(each, x, rows) if is_target(each) else 0)
                          for each, part in zip(parts, y.split(rows, 1))], 1)

    def adapter(self, name, x, outputs):
        """The part of a projection that PEFT adds: its base is zero here, as family.py has computed it."""
        holder = torch.nn.Module()
        holder.target = torch.nn.Linear(x.shape[1], outputs, bias=False)
        torch.nn.init.zeros_(holder.target.weight)
        config = peft.LoraConfig(r=ADAPTER["rank"], lora_alpha=ADAPTER["alpha"], target_modules=["target"])
        layer = peft.inject_adapter_in_model(config, holder).target
        a = self.add(name + ".lora_a", ADAPTER["rank"], x.shape[1])
        b = self.add(name + ".lora_b", outputs, ADAPTER["rank"])
        return torch.func.functional_call(layer, {"lora_A.default.weight": a, "lora_B.default.weight": b}, (x,))


def train(model):
    adapters = [parameter for name, parameter in model.p.items() if "lora_" in name]
    optimizer = torch.optim.Adam(adapters, lr=LEARNING_RATE, betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model.losses()[1]
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses + [model.losses()[1].detach()])


def main():
    model = AdaptedModel(KEYS)
    with open(pathlib.Path(__file__).with_name("family_adapters.txt"), "w") as out:
        out.write("# Written by adapters.py.\n")
        for key, value in KEYS.items():
            out.write(f"model {key} = {toml(value)}\n")
        out.write("model [adapter]\n")
        for key, value in ADAPTER.items():
            out.write(f"model {key} = {value}\n".replace("'", '"'))
        settings = dict(SETTINGS, optimizer="adam", learning_rate=LEARNING_RATE, weight_decay=0.0, clip_norm=0.0)
        write_values(out, model, settings)
        write_tensor(out, "trained_losses", train(model))
        for name, parameter in model.p.items():
            if "lora_" in name:
                write_tensor(out, "after:" + name, parameter)


if __name__ == "__main__":
    main()
