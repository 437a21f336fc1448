#!/usr/bin/env python3
"""Trains the model of one of Heddle's runs again, with PyTorch, and compares the losses: a decoder-only model (each next token) or an
encoder-only one (masked tokens), as model.stacks of the run says.

    python3 tests/golden/text_models.py --run RUN --initial INITIAL       (needs PyTorch, NumPy and h5py)

RUN is a run's directory: its config.toml gives the model, the data and the optimizer, its metrics.jsonl (train.log_every = 1) the
losses to compare with. INITIAL is the directory of a run with the same configuration but train.steps = 1 and
optimizer.learning_rate = 0, whose checkpoint has the initial parameters. Batches, and masks, are computed here a second time from the
dataset, as docs/reference/train.md and the headers of heddle/io/samples describe them. Dropout must be 0. The last line compares the means of
the last 100 losses; the program fails if they differ by more than 1 %.

A batch is padded here, where Heddle computes no padding; the losses are means over real tokens.
"""
import argparse
import json
import math
import pathlib
import sys
import time
import tomllib

import h5py
import numpy
import torch
import torch.nn.functional as F

WORD, LONG = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
BEGIN, END, MASK = 2, 3, 4
NOTHING = -100  # a position that predicts nothing


def philox(key, counter, rounds=10):
    """Philox4x32 (Salmon et al. 2011)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key & WORD, key >> 32
    for _ in range(rounds):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 & WORD, p0 >> 32 ^ c3 ^ k1, p0 & WORD
        k0, k1 = k0 + 0x9E3779B9 & WORD, k1 + 0xBB67AE85 & WORD
    return c0, c1, c2, c3


def random_key(seed, name):
    """FNV-1a of the name, then SplitMix64's finaliser."""
    word = 0xCBF29CE484222325
    for byte in name.encode():
        word = (word ^ byte) * 0x100000001B3 & LONG
    word = word + seed * 0x9E3779B97F4A7C15 & LONG
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & LONG
    word = (word ^ word >> 27) * 0x94D049BB133111EB & LONG
    return word ^ word >> 31


def shuffled(count, key, epoch):
    order = list(range(count))
    for last in range(count - 1, 0, -1):
        words = philox(key, (last, 0, epoch, 0))
        other = (words[0] << 32 | words[1]) % (last + 1)
        order[last], order[other] = order[other], order[last]
    return order


def join(lines, order, max_length):
    """The sequences of an epoch; a line has its end token already."""
    sequences = []
    for line in (lines[index] for index in order):
        if sequences and len(sequences[-1]) + len(line) <= max_length:
            sequences[-1] = sequences[-1] + line
        else:
            sequences += [line[begin:begin + max_length] for begin in range(0, len(line), max_length)]
    return sequences


def samples(lines, seed, max_length):
    """(epoch, index in the epoch, sequence), epoch after epoch, in the order of training."""
    epoch = 0
    while True:
        sequences = join(lines, shuffled(len(lines), random_key(seed, "text.order"), epoch), max_length)
        for index in shuffled(len(sequences), random_key(seed, "batches.order"), epoch):
            yield epoch, index, sequences[index]
        epoch += 1


def batches(lines, config):
    budget = config["train"]["batch_tokens"]
    batch, left = [], budget
    for sample in samples(lines, config["train"]["seed"], config["model"]["max_length"]):
        epoch, _, sequence = sample
        if batch and (len(sequence) > left or epoch != batch[-1][0]):
            yield batch
            batch, left = [], budget
        batch.append(sample)
        left -= len(sequence)


def next_tokens(sequence):
    """The tokens that are read, and those that are to be predicted."""
    return [BEGIN] + sequence[:-1], sequence


def masked_tokens(sample, config, vocabulary):
    epoch, index, sequence = sample
    key = random_key(config["train"]["seed"], "text.masks")
    candidates = [at for at, token in enumerate(sequence) if token != END] or [0]
    draws = {at: philox(key, (index, 0, epoch, at)) for at in candidates}
    chosen = [at for at in candidates if sequence[at] != END and draws[at][0] / 2**32 < config["train"]["mask_rate"]]
    read, predicted = list(sequence), [NOTHING] * len(sequence)
    for at in chosen or [min(candidates, key=lambda at: draws[at][0])]:
        _, share, random, _ = draws[at]
        predicted[at] = sequence[at]
        if share / 2**32 < 0.8:
            read[at] = MASK
        elif share / 2**32 < 0.9:
            read[at] = random * vocabulary >> 32
    return read, predicted


class Model(torch.nn.Module):
    def __init__(self, config, parameters):
        super().__init__()
        self.config = config
        self.stack, = config["stacks"]
        self.values = torch.nn.ParameterDict({name.replace(".", "/"): torch.nn.Parameter(torch.from_numpy(value))
                                              for name, value in parameters.items()})
        angles = torch.arange(config["max_length"])[:, None] / 10000 ** (torch.arange(0, config["d_model"], 2) / config["d_model"])
        self.positions = torch.stack([angles.sin(), angles.cos()], 2).flatten(1)

    def parameter(self, name):
        return self.values[name.replace(".", "/")]

    def linear(self, name, x):
        return F.linear(x, self.parameter(name + ".weight"), self.parameter(name + ".bias"))

    def norm(self, name, x):
        return F.layer_norm(x, x.shape[-1:], self.parameter(name + ".norm.weight"), self.parameter(name + ".norm.bias"), 1e-5)

    def self_attention(self, name, x, visible):
        split = lambda y: y.unflatten(-1, (self.config["heads"], -1)).transpose(1, 2)
        q, k, v = (split(self.linear(f"{name}.{part}", x)) for part in "qkv")
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        return self.linear(name + ".out", heads.transpose(1, 2).flatten(2))

    def feed_forward(self, name, x, _):
        return self.linear(name + ".down", self.linear(name + ".up", x).relu())

    def forward(self, ids, real):
        """`real` is false where a batch is padded."""
        visible = real[:, None, None, :]
        if self.stack == "decoder":
            visible = visible & torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
        pre = self.config["norm"] == "pre"
        table = self.parameter("embedding.weight")
        x = math.sqrt(self.config["d_model"]) * F.embedding(ids, table) + self.positions[:ids.shape[1]]
        for layer in range(self.config[f"{self.stack}_layers"]):
            for kind, branch in (("self_attention", self.self_attention), ("feed_forward", self.feed_forward)):
                name = f"{self.stack}.layers.{layer}.{kind}"
                x = x + branch(name, self.norm(name, x), visible) if pre else self.norm(name, x + branch(name, x, visible))
        return F.linear(self.norm(self.stack, x) if pre else x, table)


def require_supported(config):
    model, training, optimizer = config["model"], config["train"], config["optimizer"]
    wanted = [(model, "dropout", 0), (model, "attention_dropout", 0), (model, "activation_dropout", 0), (model, "activation", "relu"),
              (model, "positions", "sinusoidal"), (model, "tie_embeddings", True), (training, "label_smoothing", 0),
              (training, "log_every", 1), (optimizer, "schedule", "inverse_sqrt"), (optimizer, "name", "adam"),
              (optimizer, "clip_norm", 0)]
    for section, key, value in wanted:
        if section[key] != value:
            sys.exit(f"{key} = {section[key]!r}: this program computes only {key} = {value!r}")
    if len(model["stacks"]) != 1:
        sys.exit(f"stacks = {model['stacks']}: expected one stack")


def read_lines(path):
    with h5py.File(path) as file:
        tokens, offsets = file["text/tokens"][:].tolist(), file["text/offsets"][:].tolist()
    if len(offsets) > 131072 + 1:
        sys.exit(f"{path}: more than the 131,072 lines of one window, the order of which this program computes")
    return [tokens[begin:end] + [END] for begin, end in zip(offsets, offsets[1:])]


def read_parameters(run):
    parameters = {}
    for path in sorted((pathlib.Path(run) / "checkpoints" / "step-00000001").glob("tensors-*.h5")):
        with h5py.File(path) as file:
            parameters |= {name: numpy.asarray(group["value"], dtype=numpy.float32) for name, group in file["parameters"].items()}
    return parameters


def train(config, parameters, lines):
    """The loss of each step."""
    model = Model(config["model"], parameters)
    settings = config["optimizer"]
    adam = torch.optim.Adam(model.parameters(), lr=1, betas=(settings["beta1"], settings["beta2"]), eps=settings["epsilon"],
                            weight_decay=settings["weight_decay"])
    warmup = max(settings["warmup_steps"], 1)
    vocabulary = len(parameters["embedding.weight"])
    pad = lambda rows, value: torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, value)
    for step, batch in enumerate(batches(lines, config), 1):
        rows = [next_tokens(sample[2]) if model.stack == "decoder" else masked_tokens(sample, config, vocabulary) for sample in batch]
        real = pad([[True] * len(read) for read, _ in rows], False)
        logits = model(pad([read for read, _ in rows], 0), real)
        loss = F.cross_entropy(logits.flatten(0, 1), pad([predicted for _, predicted in rows], NOTHING).flatten())
        adam.param_groups[0]["lr"] = settings["learning_rate"] * min(step / warmup, math.sqrt(warmup / step))
        adam.zero_grad()
        loss.backward()
        adam.step()
        yield loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", required=True)
    parser.add_argument("--initial", required=True)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = tomllib.loads((pathlib.Path(options.run) / "config.toml").read_text())
    require_supported(config)
    metrics = (pathlib.Path(options.run) / "metrics.jsonl").read_text().splitlines()
    heddle = [json.loads(line)["train_loss"] for line in metrics]
    losses, began = [], time.perf_counter()
    for loss in train(config, read_parameters(options.initial), read_lines(config["data"]["train"])):
        losses.append(loss)
        if len(losses) in (1, 10) or len(losses) % 100 == 0:
            print(f"step {len(losses)}: {loss:.6f}, Heddle {heddle[len(losses) - 1]:.6f}", flush=True)
        if len(losses) == len(heddle):
            break
    mine, other = (sum(values[-100:]) / len(values[-100:]) for values in (losses, heddle))
    print(f"{config['model']['stacks'][0]}, {len(losses)} steps in {time.perf_counter() - began:.0f} s: mean of the last 100 losses "
          f"{mine:.5f}, Heddle {other:.5f} ({100 * (other / mine - 1):+.3f} %)")
    sys.exit(abs(other / mine - 1) > 0.01)


if __name__ == "__main__":
    main()
