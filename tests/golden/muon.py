#!/usr/bin/env python3
"""Golden values of Muon with AdamW beside it: 20 steps in float64 with torch.optim. Writes muon.txt beside itself.

    python3 tests/golden/muon.py               (PyTorch 2.15 made the committed file)

PyTorch's Muon iterates in bfloat16; here the iteration is given float64 instead. A case starts with a line of its options,
`case name=muon KEY=VALUE...`, and has a line `NAME ROWS COLUMNS : NUMBERS...` for each parameter, the numbers being the
elements after the last step and then the momentum; the parameter with 0 rows is a vector, which AdamW updates. Initial
values and gradients are those of value_of and gradient_of; the learning rate is that of rate_of.
"""
import math
import pathlib
import unittest.mock

import torch

STEPS = 20
SHAPES = {"wide": (4, 7), "tall": (9, 5), "square": (6, 6)}
VECTOR = 8


def value_of(i):
    return math.sin(i + 1)


def gradient_of(i, step):
    return math.cos(0.7 * i * i + 1.3 * step) * (1 + i % 3)


def rate_of(step):
    return 0.02 / math.sqrt(step)


def tensor(shape, element):
    return torch.tensor([element(i) for i in range(math.prod(shape))], dtype=torch.float64).reshape(shape)


def run(momentum, nesterov, iterations, match_adam, weight_decay):
    matrices = {name: torch.nn.Parameter(tensor(shape, value_of)) for name, shape in SHAPES.items()}
    vector = torch.nn.Parameter(tensor((VECTOR,), value_of))
    muon = torch.optim.Muon(matrices.values(), momentum=momentum, nesterov=bool(nesterov), ns_steps=iterations,
                            weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw" if match_adam else "original")
    rest = torch.optim.AdamW([vector], betas=(0.9, 0.98), eps=1e-9, weight_decay=weight_decay)
    for step in range(1, STEPS + 1):
        for parameter in [*matrices.values(), vector]:
            parameter.grad = tensor(parameter.shape, lambda i: gradient_of(i, step))
        for optimizer in (muon, rest):
            optimizer.param_groups[0]["lr"] = rate_of(step)
        with unittest.mock.patch.object(torch, "bfloat16", torch.float64):
            muon.step()
        rest.step()
    for name, matrix in matrices.items():
        yield name, SHAPES[name], matrix.flatten().tolist() + muon.state[matrix]["momentum_buffer"].flatten().tolist()
    yield "vector", (0, VECTOR), vector.tolist()


CASES = [
    dict(momentum=0.95, nesterov=1, iterations=5, match_adam=1, weight_decay=0.0),
    dict(momentum=0.95, nesterov=1, iterations=5, match_adam=0, weight_decay=0.1),
    dict(momentum=0.9, nesterov=0, iterations=6, match_adam=1, weight_decay=0.1),
]


def main():
    with open(pathlib.Path(__file__).with_name("muon.txt"), "w") as file:
        for options in CASES:
            file.write("case name=muon" + "".join(f" {key}={value!r}" for key, value in options.items()) + "\n")
            for name, (rows, columns), numbers in run(**options):
                file.write(f"{name} {rows} {columns} : " + " ".join(f"{number:.17g}" for number in numbers) + "\n")


if __name__ == "__main__":
    main()
