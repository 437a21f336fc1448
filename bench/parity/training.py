"""Compares a training step of imported models with PyTorch's, and 20 steps side by side.

    python3 bench/parity training BUILD TEXT [FAMILY...] [--float64]

The models are those of the part exchange, in float32, without dropout and label smoothing. The batch is lines of TEXT, as ids of
each model's own vocabulary, given to both. Printed are, for each family, the difference of the first loss; the largest difference
of a tensor's gradient, and of a tensor after one step of AdamW, with transformers' name of the tensor: norms of differences,
relative to the norm of PyTorch's tensor; and the largest difference of a loss in 20 steps. With --float64 PyTorch computes in
float64.
"""
import math
import sys

import models
import safetensors.torch
import programs
import torch

SAMPLES = 24
LONGEST = 60  # tokens of a side
STEPS = 20
# Adam divides a gradient that is zero but for rounding, such as that of a key's bias, by its own size: with an epsilon
# well above that rounding such numbers are compared, too.
ADAM = dict(learning_rate=1e-3, beta1=0.9, beta2=0.98, epsilon=1e-6)
WEIGHT_DECAY = 0.1


def token_ids(build, directory, text):
    """Ids of lines that are neither empty nor long."""
    with open(text, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line, _ in zip(file, range(20 * SAMPLES))]
    ids = [line for line, _ in programs.token_ids(build, directory, lines) if 1 < len(line) <= LONGEST]
    if len(ids) < 2 * SAMPLES:
        sys.exit(f"{text}: only {len(ids)} lines of 2 to {LONGEST} tokens")
    return ids


class Batch:
    """Samples as both programs take them."""

    def __init__(self, model, special, ids):
        self.masked = "MaskedLM" in type(model).__name__
        paired = self.masked and model.config.type_vocab_size > 1  # the second half of a sequence is of type 1
        self.lines = []
        self.samples = []  # keyword arguments of the model, and the tokens to predict
        pairs = zip(ids[:SAMPLES], ids[SAMPLES:2 * SAMPLES])
        for source, target in pairs:
            if model.config.is_encoder_decoder:
                self.lines.append((source, target))
                self.samples.append((dict(input_ids=source + [special["eos_token_id"]],
                                          decoder_input_ids=[special["decoder_start_token_id"]] + target),
                                     target + [special["eos_token_id"]]))
                continue
            if self.masked:  # every fourth token is to be predicted, seen as another one
                labels = [token if place % 4 == 1 else -1 for place, token in enumerate(source)]
                inputs = [target[0] if label >= 0 else token for token, label in zip(source, labels)]
            else:
                begin = special.get("bos_token_id")
                inputs = ([] if begin is None else [begin]) + source[:-1]
                labels = source[len(source) - len(inputs):]
            first = len(inputs) // 2
            types = dict(token_type_ids=[int(place >= first) for place in range(len(inputs))]) if paired else {}
            self.lines.append((inputs, labels, [first]) if paired else (inputs, labels))
            self.samples.append((dict(input_ids=inputs, **types), labels))

    def text(self):
        return "".join(" | ".join(" ".join(map(str, part)) for part in line) + "\n" for line in self.lines)

    def loss(self, model):
        """The mean over all tokens to predict, sample by sample: nothing is padded."""
        total = 0
        cache = {} if self.masked else {"use_cache": False}
        for inputs, labels in self.samples:
            logits = model(**{key: torch.tensor([ids]) for key, ids in inputs.items()}, **cache).logits[0]
            total = total + torch.nn.functional.cross_entropy(logits, torch.tensor(labels), ignore_index=-1,
                                                              reduction="sum")
        return total / sum(label >= 0 for _, labels in self.samples for label in labels)


def train_all(model):
    """Trains what Heddle trains, too: numbers that transformers keeps as buffers, such as the output's bias, and the
    row of the padding token, from which decoders of T5 and Marian start, but which PyTorch gives no gradient as input."""
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
    for name, buffer in list(model.named_buffers()):
        if name in model.state_dict() and buffer.is_floating_point() and "position" not in name:
            owner, _, leaf = name.rpartition(".")
            module = model.get_submodule(owner)
            del module._buffers[leaf]
            module.register_parameter(leaf, torch.nn.Parameter(buffer))


def train(model, batch):
    """The losses of all steps; the gradients, and the parameters after the update, of the first."""
    train_all(model)
    adam = torch.optim.AdamW([value for value in model.parameters() if value.requires_grad], lr=ADAM["learning_rate"],
                             betas=(ADAM["beta1"], ADAM["beta2"]), eps=ADAM["epsilon"], weight_decay=WEIGHT_DECAY)
    losses = []
    named = lambda: model.named_parameters(remove_duplicate=False)
    for step in range(STEPS):
        adam.zero_grad()
        loss = batch.loss(model)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            gradients = {name: value.grad.clone() for name, value in named() if value.grad is not None}
        adam.step()
        if step == 0:
            parameters = {name: value.detach().clone() for name, value in named() if name in gradients}
    return losses, as_in_files(gradients), as_in_files(parameters)


def largest(found, expected):
    """The largest relative difference of a tensor, and its name. A tensor whose gradient is zero but for rounding is
    measured against the whole model's."""
    whole = math.sqrt(sum(value.double().square().sum().item() for value in expected.values()))
    def difference(name):
        norm = max(expected[name].double().norm().item(), 1e-5 * whole)
        return (found[name].double() - expected[name].double()).norm().item() / norm
    name = max(found, key=difference)
    return difference(name), name


def as_in_files(tensors):
    """The names and shapes of Mixtral's files, which have a tensor for each expert, instead of those in memory."""
    split = {}
    for name, value in tensors.items():
        experts = name.replace(".mlp.", ".block_sparse_moe.")
        if name.endswith(".mlp.experts.gate_up_proj"):
            for number, matrix in enumerate(value):
                for part, half in zip(("w1", "w3"), matrix.chunk(2)):
                    split[experts.replace("gate_up_proj", f"{number}.{part}.weight")] = half
        elif name.endswith(".mlp.experts.down_proj"):
            for number, matrix in enumerate(value):
                split[experts.replace("down_proj", f"{number}.w2.weight")] = matrix
        else:
            split[experts if name.endswith(".mlp.gate.weight") else name] = value
    return split


def uncovered(model, gradients, found):
    """Parameters of transformers that train and that no tensor of Heddle's files stands for, not even a tied one."""
    values = as_in_files(dict(model.named_parameters(remove_duplicate=False)))
    covered = {id(values[name]) for name in found}
    return sorted(name for name in gradients if id(values[name]) not in covered)


def settings(model):
    rate = {**{f"optimizer.{key}": value for key, value in ADAM.items()}, "optimizer.name": "adamw",
            "optimizer.weight_decay": WEIGHT_DECAY, "optimizer.clip_norm": 0, "train.label_smoothing": 0,
            "model.dropout": 0, "model.attention_dropout": 0, "model.activation_dropout": 0}
    stacks = ["encoder", "decoder"] if model.config.is_encoder_decoder else ["decoder"]
    if any(key.startswith("num_") and key.endswith("experts") for key in model.config.to_dict()):
        rate.update({f"model.{stack}.mixture_of_experts.load_balance_loss": 0.0 for stack in stacks})
    return [f"{key}={value}" for key, value in rate.items()]


def compare(family, build, text, work):
    theirs = f"{work}/{family}"
    model, special = models.build(family, text, theirs)
    programs.run(build + "/apps/heddle", "import", theirs, "--out", theirs + ".run")
    batch = Batch(model, special, token_ids(build, theirs, text))
    printed = programs.run(build + "/bench/bench_model_gradients", theirs + ".run", theirs, theirs + ".out", str(STEPS),
                           *settings(model), stdin=batch.text().encode())
    ours = [float(line) for line in printed.decode().splitlines()]
    losses, gradients, parameters = train(model.double() if IN_FLOAT64 else model, batch)
    ours_gradients, ours_parameters = (safetensors.torch.load_file(f"{theirs}.out/{each}/model.safetensors")
                                       for each in ("gradients", "parameters"))
    ours_gradients = {name: value for name, value in ours_gradients.items() if name in gradients}
    ours_parameters = {name: value for name, value in ours_parameters.items() if name in gradients}
    if missing := uncovered(model, gradients, ours_gradients):
        sys.exit(f"{family}: no gradient of {', '.join(missing)}")
    gradient, worst = largest(ours_gradients, gradients)
    parameter, last = largest(ours_parameters, parameters)
    apart = [abs(one - other) / other for one, other in zip(ours, losses)]
    print(f"{family:10} loss {losses[0]:.4f} → {losses[-1]:.4f}: {apart[0]:.1e} apart, in {STEPS} steps {max(apart):.1e}; "
          f"{len(ours_gradients)} gradients: {gradient:.1e} ({worst}); after a step: {parameter:.1e} ({last})", flush=True)
    good = apart[0] <= 1e-6 and gradient <= 1e-4 and parameter <= 1e-4 and max(apart) <= 1e-5
    if not good:
        print("  a difference is larger than 1e-6 (loss), 1e-4 (gradients, parameters) or 1e-5 (20 losses)", flush=True)
    return good


def main(arguments):
    global IN_FLOAT64
    IN_FLOAT64 = "--float64" in arguments
    models.for_each(__doc__, compare, models.FAMILIES)([argument for argument in arguments if argument != "--float64"])
