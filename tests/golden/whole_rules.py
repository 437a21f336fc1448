#!/usr/bin/env python3
"""Golden values of LAMB, Adafactor and SOAP: 20 steps in float64. Writes whole_rules.txt beside itself.

    python3 tests/golden/whole_rules.py FOLDER       (with the authors' soap.py of github.com/nikhilvyas/SOAP)

PyTorch 2.15, timm's Lamb, transformers' Adafactor and soap.py made the committed file. SOAP finds its bases in float32;
here it is given float64 instead. Covariances of lower rank than their sides have several eigenbases, each right: in the
cases of SOAP both sides of a matrix are equal, or only the shorter one gets a basis. The file has muon.txt's form: a case
starts with a line `case name=RULE KEY=VALUE...`, and has a line `NAME ROWS COLUMNS : NUMBERS...` of the elements after the
last step for each parameter; the one with 0 rows is a vector.
"""
import importlib.util
import math
import pathlib
import sys
import unittest.mock

import torch

STEPS = 20
SHAPES = {"wide": (4, 7), "tall": (9, 5), "square": (6, 6), "vector": (8,)}


def value_of(i):
    return math.sin(i + 1)


def gradient_of(i, step):
    return math.cos(0.7 * i * i + 1.3 * step) * (1 + i % 3)


def rate_of(step):
    return 0.02 / math.sqrt(step)


def tensor(shape, element):
    return torch.tensor([element(i) for i in range(math.prod(shape))], dtype=torch.float64).reshape(shape)


def lamb(parameters, beta1, beta2, epsilon, weight_decay):
    from timm.optim.lamb import Lamb
    return [Lamb(parameters.values(), betas=(beta1, beta2), eps=epsilon, weight_decay=weight_decay,
                 max_grad_norm=None, always_adapt=True)]


def adafactor(parameters, decay_rate, clip_threshold, scale_parameter, weight_decay):
    from transformers.optimization import Adafactor
    return [Adafactor(parameters.values(), lr=1, decay_rate=-decay_rate, clip_threshold=clip_threshold,
                      scale_parameter=bool(scale_parameter), relative_step=False, weight_decay=weight_decay)]


def soap(parameters, beta1, beta2, shampoo_beta, epsilon, precondition_frequency, max_precond_dim, correct_bias, weight_decay):
    spec = importlib.util.spec_from_file_location("soap", pathlib.Path(sys.argv[1]) / "soap.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    matrices = [parameter for parameter in parameters.values() if parameter.dim() == 2]
    vectors = [parameter for parameter in parameters.values() if parameter.dim() == 1]
    return [module.SOAP(matrices, betas=(beta1, beta2), shampoo_beta=shampoo_beta, eps=epsilon, weight_decay=weight_decay,
                        precondition_frequency=precondition_frequency, max_precond_dim=max_precond_dim,
                        correct_bias=bool(correct_bias)),
            torch.optim.AdamW(vectors, betas=(beta1, beta2), eps=epsilon, weight_decay=weight_decay)]


def run(make, shapes, options):
    parameters = {name: torch.nn.Parameter(tensor(SHAPES[name], value_of)) for name in shapes}
    optimizers = make(parameters, **options)
    for step in range(1, STEPS + 1):
        for parameter in parameters.values():
            parameter.grad = tensor(parameter.shape, lambda i: gradient_of(i, step))
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = rate_of(step)
            with unittest.mock.patch.object(torch, "float", torch.float64), \
                    unittest.mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
                optimizer.step()
    for name, parameter in parameters.items():
        yield name, (0, *SHAPES[name])[-2:], parameter.flatten().tolist()


CASES = [
    (lamb, SHAPES, dict(beta1=0.9, beta2=0.98, epsilon=1e-6, weight_decay=0.0)),
    (lamb, SHAPES, dict(beta1=0.8, beta2=0.9, epsilon=1e-3, weight_decay=0.1)),
    (adafactor, SHAPES, dict(decay_rate=0.8, clip_threshold=1.0, scale_parameter=1, weight_decay=0.1)),
    (adafactor, SHAPES, dict(decay_rate=0.5, clip_threshold=0.7, scale_parameter=0, weight_decay=0.0)),
    (soap, ["square", "vector"], dict(beta1=0.95, beta2=0.95, shampoo_beta=0.95, epsilon=1e-8, precondition_frequency=1,
                                      max_precond_dim=10000, correct_bias=1, weight_decay=0.1)),
    (soap, ["wide", "tall", "vector"], dict(beta1=0.9, beta2=0.98, shampoo_beta=0.9, epsilon=1e-8, precondition_frequency=3,
                                            max_precond_dim=5, correct_bias=0, weight_decay=0.0)),
    (soap, ["square", "wide", "vector"], dict(beta1=0.95, beta2=0.9, shampoo_beta=0.8, epsilon=1e-8, precondition_frequency=4,
                                    max_precond_dim=6, correct_bias=1, weight_decay=0.0)),
    (soap, ["wide", "tall", "vector"], dict(beta1=0.9, beta2=0.9, shampoo_beta=0.9, epsilon=1e-8, precondition_frequency=10,
                                  max_precond_dim=3, correct_bias=1, weight_decay=0.1)),
]


def main():
    torch.set_default_dtype(torch.float64)
    with open(pathlib.Path(__file__).with_name("whole_rules.txt"), "w") as file:
        for make, shapes, options in CASES:
            settings = "".join(f" {key}={value!r}" for key, value in options.items())
            file.write(f"case name={make.__name__}{settings}\n")
            for name, (rows, columns), numbers in run(make, shapes, options):
                file.write(f"{name} {rows} {columns} : " + " ".join(f"{number:.17g}" for number in numbers) + "\n")


if __name__ == "__main__":
    main()
