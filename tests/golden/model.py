#!/usr/bin/env python3
"""Golden values of the whole model, computed with PyTorch in float64: writes model_*.txt beside itself.

    python3 tests/golden/model.py        (PyTorch 2.15 made the committed files)

The model is written here a second time, sentence by sentence without packs, from Vaswani et al. 2017 and the names in
heddle/core/model/. Weights are not stored: both sides compute them from parameter names (`value_of`).
The projections to queries, keys and values are one parameter here (`qkv`, in cross-attention `kv`) and several in Heddle, whose
initializer keys and offsets select their rows of it. Each file holds settings (`key value`), sentence pairs and tensors: logits,
losses, the gradient of every parameter at the start, and the result of ten optimizer steps on the same pairs.
"""
import math
import pathlib

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)

BASE = dict(encoder_layers=2, decoder_layers=2, d_model=8, d_ff=12, heads=2, max_length=8, norm="post",
            activation="relu", positions="sinusoidal", tied=1, joint=1, source_vocabulary=11, target_vocabulary=11,
            begin_id=1, source_end_id=2, end_id=2, label_smoothing=0.1, optimizer="adam", learning_rate=0.02,
            weight_decay=0.0, clip_norm=0.0)
VARIANTS = {
    "post_relu_sinusoidal_tied": {},
    "pre_gelu_learned_untied": dict(norm="pre", activation="gelu", positions="learned", tied=0, label_smoothing=0.0,
                                    heads=4),
    "pre_relu_sinusoidal_target_tied": dict(norm="pre", joint=0, target_vocabulary=13, source_end_id=4,
                                            optimizer="adamw", weight_decay=0.1, clip_norm=0.5),
    "post_gelu_learned_separate": dict(activation="gelu", positions="learned", tied=0, joint=0, target_vocabulary=13,
                                       source_end_id=4, d_model=10, d_ff=14, label_smoothing=0.2, weight_decay=0.01),
}
# Pieces without begin and end tokens; a side without pieces has length 1.
PAIRS = [([5, 9, 3, 5], [7, 4]), ([], [10, 6, 6, 3, 8]), ([8, 10], [])]
STEPS = 10
WHOLE_AFTER_STEPS = ("encoder.layers.0.self_attention.out.weight", "decoder.layers.1.cross_attention.q.weight",
                     "decoder.layers.1.feed_forward.norm.weight")


def value_of(name, index):
    """A number in [-1, 1) from 32-bit integer arithmetic, so that C++ gets exactly the same."""
    mask = 0xFFFFFFFF
    mixed = 0x811C9DC5
    for byte in name.encode():
        mixed = (mixed ^ byte) * 0x01000193 & mask
    mixed = (mixed + index * 0x9E3779B1) & mask
    mixed = (mixed ^ mixed >> 15) * 0x2C1B3C6D & mask
    mixed = (mixed ^ mixed >> 12) * 0x297A2D39 & mask
    mixed ^= mixed >> 15
    return mixed / 2.0**31 - 1


def make_parameter(name, *shape):
    is_norm_weight = name.endswith("norm.weight")
    scale = 0.5 if name.endswith("weight") and not is_norm_weight else 0.2
    values = [scale * value_of(name, i) + (1 if is_norm_weight else 0) for i in range(math.prod(shape))]
    return torch.tensor(values).reshape(shape).requires_grad_()


class Model:
    def __init__(self, settings):
        self.s = type("Settings", (), settings)
        self.p = {}
        d, ff = self.s.d_model, self.s.d_ff
        add = lambda name, *shape: self.p.setdefault(name, make_parameter(name, *shape))
        if self.s.tied and self.s.joint:
            self.source_table = self.target_table = self.output = add("embedding.weight", self.s.target_vocabulary, d)
        else:
            self.source_table = add("encoder.embedding.weight", self.s.source_vocabulary, d)
            self.target_table = add("decoder.embedding.weight", self.s.target_vocabulary, d)
            self.output = self.target_table if self.s.tied else add("output.weight", self.s.target_vocabulary, d)
        linears = {"self_attention": [("qkv", (3, d, d)), ("out", (d, d))],
                   "cross_attention": [("q", (d, d)), ("kv", (2, d, d)), ("out", (d, d))],
                   "feed_forward": [("up", (ff, d)), ("down", (d, ff))]}
        self.sublayers = {"encoder": ["self_attention", "feed_forward"],
                          "decoder": ["self_attention", "cross_attention", "feed_forward"]}
        for stack, layers in (("encoder", self.s.encoder_layers), ("decoder", self.s.decoder_layers)):
            if self.s.positions == "learned":
                add(f"{stack}.positions.weight", self.s.max_length, d)
            for layer in range(layers):
                for kind in self.sublayers[stack]:
                    name = f"{stack}.layers.{layer}.{kind}"
                    for linear, shape in linears[kind]:
                        add(f"{name}.{linear}.weight", *shape)
                        add(f"{name}.{linear}.bias", *shape[:-1])
                    add(f"{name}.norm.weight", d), add(f"{name}.norm.bias", d)
            if self.s.norm == "pre":
                add(f"{stack}.norm.weight", d), add(f"{stack}.norm.bias", d)

    def linear(self, name, x, part=None):
        weight, bias = self.p[name + ".weight"], self.p[name + ".bias"]
        return x @ weight.T + bias if part is None else x @ weight[part].T + bias[part]

    def layer_norm(self, name, x):
        return F.layer_norm(x, (self.s.d_model,), self.p[name + ".norm.weight"], self.p[name + ".norm.bias"], 1e-5)

    def attend(self, q, k, v, causal):
        size = self.s.d_model // self.s.heads
        heads = []
        for h in range(self.s.heads):
            mine = slice(h * size, (h + 1) * size)
            scores = q[:, mine] @ k[:, mine].T / math.sqrt(size)
            if causal:
                scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)
            heads.append(scores.softmax(-1) @ v[:, mine])
        return torch.cat(heads, 1)

    def branch(self, name, kind, x, memory, causal):
        if kind == "feed_forward":
            hidden = self.linear(name + ".up", x)
            return self.linear(name + ".down", hidden.relu() if self.s.activation == "relu" else F.gelu(hidden))
        if kind == "self_attention":
            q, k, v = (self.linear(name + ".qkv", x, part) for part in range(3))
        else:
            q = self.linear(name + ".q", x)
            k, v = (self.linear(name + ".kv", memory, part) for part in range(2))
        return self.linear(name + ".out", self.attend(q, k, v, causal and kind == "self_attention"))

    def stack(self, stack, ids, table, memory=None):
        d = self.s.d_model
        if self.s.positions == "learned":
            positions = self.p[f"{stack}.positions.weight"][:len(ids)]
        else:
            angles = torch.arange(len(ids))[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
            positions = torch.stack([angles.sin(), angles.cos()], 2).reshape(len(ids), d)
        x = math.sqrt(d) * table[torch.tensor(ids)] + positions
        layers = self.s.encoder_layers if stack == "encoder" else self.s.decoder_layers
        for layer in range(layers):
            for kind in self.sublayers[stack]:
                name = f"{stack}.layers.{layer}.{kind}"
                if self.s.norm == "pre":
                    x = x + self.branch(name, kind, self.layer_norm(name, x), memory, stack == "decoder")
                else:
                    x = self.layer_norm(name, x + self.branch(name, kind, x, memory, stack == "decoder"))
        return self.layer_norm(stack, x) if self.s.norm == "pre" else x

    def logits(self, source, target):
        memory = self.stack("encoder", source + [self.s.source_end_id], self.source_table)
        return self.stack("decoder", [self.s.begin_id] + target, self.target_table, memory) @ self.output.T

    def losses(self):
        """Logits of all target tokens, then the mean smoothed loss and mean negative log-likelihood."""
        logits = torch.cat([self.logits(source, target) for source, target in PAIRS])
        gold = torch.tensor([token for _, target in PAIRS for token in target + [self.s.end_id]])
        smoothed = F.cross_entropy(logits, gold, label_smoothing=self.s.label_smoothing)
        return logits, smoothed, F.cross_entropy(logits, gold)


def make_optimizer(model):
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[model.s.optimizer]
    return kind(model.p.values(), lr=model.s.learning_rate, betas=(0.9, 0.98), eps=1e-9,
                weight_decay=model.s.weight_decay)


def write_setup(out, settings, pairs):
    for key, value in settings.items():
        out.write(f"setting {key} {value}\n")
    for source, target in pairs:
        out.write(" ".join(["source", *map(str, source)]) + "\n" + " ".join(["target", *map(str, target)]) + "\n")


def write_tensor(out, name, tensor):
    out.write(" ".join(["tensor", name, *map(str, tensor.shape)]) + "\n")
    out.write(" ".join("%.17g" % value for value in tensor.detach().flatten().tolist()) + "\n")


def write_variant(path, settings):
    model = Model(settings)
    optimizer = make_optimizer(model)
    with open(path, "w") as out:
        out.write("# Written by model.py.\n")
        write_setup(out, settings, PAIRS)
        losses, norms = [], []
        for step in range(STEPS):
            optimizer.zero_grad()
            logits, smoothed, nll = model.losses()
            smoothed.backward()
            norm = math.sqrt(sum(p.grad.square().sum().item() for p in model.p.values()))
            if step == 0:
                write_tensor(out, "logits", logits)
                write_tensor(out, "negative_log_likelihood", nll)
                for name, parameter in model.p.items():
                    write_tensor(out, "gradient:" + name, parameter.grad)
            if 0 < model.s.clip_norm < norm:
                for parameter in model.p.values():
                    parameter.grad *= model.s.clip_norm / norm
            losses.append(smoothed.item()), norms.append(norm)
            optimizer.step()
        losses.append(model.losses()[1].item())
        write_tensor(out, "losses", torch.tensor(losses))
        write_tensor(out, "gradient_norms", torch.tensor(norms))
        for name, parameter in model.p.items():
            flat = parameter.detach().flatten()
            probe = torch.tensor([value_of("probe", i) for i in range(len(flat))])
            write_tensor(out, "sums_after:" + name, torch.stack([flat.sum(), flat @ probe]))
        for name in WHOLE_AFTER_STEPS:
            write_tensor(out, "after:" + name, model.p[name])


if __name__ == "__main__":
    for variant, changes in VARIANTS.items():
        write_variant(pathlib.Path(__file__).parent / f"model_{variant}.txt", {**BASE, **changes})
