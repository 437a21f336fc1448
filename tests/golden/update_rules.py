#!/usr/bin/env python3
"""Golden values of the update rules: 20 steps in float64 with torch.optim (Lion and Schedule-Free AdamW: their
authors' code). Writes update_rules.txt beside itself.

    python3 tests/golden/update_rules.py       (PyTorch 2.15 and schedulefree 1.4.1 made the committed file)

A line is `RULE weight_decay KEY=VALUE... : NUMBERS...`, the numbers being the elements after the last step and then
each tensor that the rule keeps. Initial values and gradients are those of value_of and gradient_of; the learning rate is
that of rate_of, of Schedule-Free 0.02 after WARMUP steps.
"""
import math
import pathlib

import schedulefree
import torch

ELEMENTS = 24
STEPS = 20
WARMUP = 6


def value_of(i):
    return math.sin(i + 1)


def gradient_of(i, step):
    """Some elements have no gradient, others large ones."""
    return 0.0 if i % 7 == 0 else math.cos(0.7 * i + 1.3 * step) * (1 + i % 3)


def rate_of(step):
    return 0.02 / math.sqrt(step)


class Lion:
    """The update of Chen et al. 2023 as in google/automl, lion_pytorch.py."""

    def __init__(self, parameters, lr, betas, weight_decay):
        self.parameter, = parameters
        self.param_groups = [{"lr": lr}]
        self.betas = betas
        self.weight_decay = weight_decay
        self.state = {self.parameter: {"exp_avg": torch.zeros_like(self.parameter)}}

    @torch.no_grad()
    def step(self):
        p, grad, lr = self.parameter, self.parameter.grad, self.param_groups[0]["lr"]
        exp_avg = self.state[p]["exp_avg"]
        beta1, beta2 = self.betas
        p.data.mul_(1 - lr * self.weight_decay)
        update = exp_avg * beta1 + grad * (1 - beta1)
        p.add_(update.sign_(), alpha=-lr)
        exp_avg.mul_(beta2).add_(grad, alpha=1 - beta2)


def run(make, kept):
    p = torch.nn.Parameter(torch.tensor([value_of(i) for i in range(ELEMENTS)], dtype=torch.float64))
    optimizer = make([p])
    for step in range(1, STEPS + 1):
        optimizer.param_groups[0]["lr"] = rate_of(step)
        p.grad = torch.tensor([gradient_of(i, step) for i in range(ELEMENTS)], dtype=torch.float64)
        optimizer.step()
    numbers = p.detach().tolist()
    for name in kept:
        numbers += optimizer.state[p][name].detach().tolist()
    return numbers


class ScheduleFree(schedulefree.AdamWScheduleFree):
    """With the average x, in which the model is evaluated, as state beside y and z; its rate has its own warm-up."""

    def __init__(self, parameters, **options):
        super().__init__(parameters, lr=0.02, warmup_steps=WARMUP, foreach=False, **options)
        self.train()

    def step(self):
        self.param_groups[0]["lr"] = 0.02
        super().step()
        for p in self.param_groups[0]["params"]:
            self.state[p]["x"] = p + (1 - 1 / self.param_groups[0]["betas"][0]) * (self.state[p]["z"] - p)


def adam(kind, decay, beta1, beta2, epsilon):
    return lambda p: kind(p, lr=1.0, betas=(beta1, beta2), eps=epsilon, weight_decay=decay)


MOMENTS = ("exp_avg", "exp_avg_sq")
CASES = [
    ("adam", 0.0, dict(beta1=0.9, beta2=0.98, epsilon=1e-9), MOMENTS,
     adam(torch.optim.Adam, 0.0, 0.9, 0.98, 1e-9)),
    ("adam", 0.1, dict(beta1=0.8, beta2=0.999, epsilon=1e-6), MOMENTS,
     adam(torch.optim.Adam, 0.1, 0.8, 0.999, 1e-6)),
    ("adamw", 0.1, dict(beta1=0.9, beta2=0.98, epsilon=1e-9), MOMENTS,
     adam(torch.optim.AdamW, 0.1, 0.9, 0.98, 1e-9)),
    ("lion", 0.0, dict(beta1=0.9, beta2=0.99), MOMENTS[:1],
     lambda p: Lion(p, lr=1.0, betas=(0.9, 0.99), weight_decay=0.0)),
    ("lion", 0.1, dict(beta1=0.95, beta2=0.98), MOMENTS[:1],
     lambda p: Lion(p, lr=1.0, betas=(0.95, 0.98), weight_decay=0.1)),
    ("sgd", 0.0, dict(momentum=0.9), ("momentum_buffer",),
     lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.9)),
    ("sgd", 0.1, dict(momentum=0.95, nesterov=1), ("momentum_buffer",),
     lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.95, nesterov=True, weight_decay=0.1)),
    ("schedule_free_adamw", 0.0, dict(beta1=0.9, beta2=0.999, epsilon=1e-8), ("exp_avg_sq", "z", "x"),
     lambda p: ScheduleFree(p, betas=(0.9, 0.999), eps=1e-8)),
    ("schedule_free_adamw", 0.1, dict(beta1=0.95, beta2=0.98, epsilon=1e-6), ("exp_avg_sq", "z", "x"),
     lambda p: ScheduleFree(p, betas=(0.95, 0.98), eps=1e-6, weight_decay=0.1)),
]


def main():
    with open(pathlib.Path(__file__).with_name("update_rules.txt"), "w") as file:
        for rule, decay, options, kept, make in CASES:
            keys = "".join(f" {key}={value!r}" for key, value in options.items())
            numbers = " ".join(f"{number:.17g}" for number in run(make, kept))
            file.write(f"{rule} {decay}{keys} : {numbers}\n")


if __name__ == "__main__":
    main()
