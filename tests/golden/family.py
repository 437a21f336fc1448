#!/usr/bin/env python3
"""Golden values of the attention family, computed with PyTorch in float64: writes family_*.txt beside itself.

    python3 tests/golden/family.py       (PyTorch 2.15 made the committed files)

Positions, grouped heads, masks, scores, norms and gates are written here a second time from their papers, sentence by sentence
without packs. Parameters are model.py's. Each file holds keys of [model] (`model key = value`), settings, sentence pairs and
tensors: logits, losses and the gradient of every parameter.
"""
import math
import pathlib

import torch
import torch.nn.functional as F
from model import make_parameter, write_setup, write_tensor

BASE = dict(encoder_layers=1, decoder_layers=2, d_model=8, d_ff=6, heads=2, max_length=16, norm="pre", activation="relu",
            positions="none", dropout=0.0)
SETTINGS = dict(source_vocabulary=11, target_vocabulary=11, joint=1, begin_id=1, source_end_id=2, end_id=2, label_smoothing=0.1)
SELF = ("encoder.self_attention", "decoder.self_attention")
ALL = SELF + ("decoder.cross_attention",)
VARIANTS = {
    "rotary": dict(positions="rotary"),
    "rotary_halves": dict(positions="rotary", position_layout="halves", rotary_base=300.0),
    "sinusoidal_halves": dict(positions="sinusoidal", position_layout="halves"),
    "alibi": dict(positions="alibi", heads=6, **{name + ".head_dim": 2 for name in ALL}),
    "relative_buckets": dict(positions="relative_buckets", position_buckets=8, max_distance=7, scale_embedding=False),
    "own_biases": dict(positions="relative_buckets", position_buckets=8, max_distance=7,
                       **{name + ".own_positions": True for name in SELF}),
    "own_rotations": dict(positions="rotary", rotary_scaling="linear", rotary_factor=4.0,
                          **{"encoder.self_attention.rotary_base": 20.0}),
    "grouped_heads": dict(heads=4, positions="rotary", **{name + ".kv_heads": 2 for name in ALL}),
    "rms_norm": dict(norm="both", norm_kind="rms", norm_epsilon=1e-6, embedding_norm=True),
    "bert_parts": dict(norm="post", activation="gelu", positions="sinusoidal", position_layout="halves", embedding_norm=True,
                       token_types=2, output_transform=True),
    "swiglu": dict(activation="swiglu", biases=False),
    "geglu": dict(activation="geglu", norm="post"),
    "window": dict(positions="rotary", **{name + ".window": 2 for name in SELF}),
    "dot_product": dict(positions="sinusoidal", position_layout="halves", **{name + ".score": "dot_product" for name in ALL}),
    "additive": dict(positions="relative_buckets", position_buckets=8, max_distance=7, **{name + ".score": "additive" for name in ALL}),
    "soft_cap": dict(positions="rotary", **{name + ".soft_cap": 1.5 for name in ALL}),
    "rotary_linear": dict(positions="rotary", rotary_scaling="linear", rotary_factor=4.0),
    "rotary_llama3": dict(positions="rotary", position_layout="halves", heads=1, rotary_base=20.0, rotary_scaling="llama3",
                          rotary_factor=8.0, rotary_original_length=12, rotary_low_turns=0.3, rotary_high_turns=1.5),
    "rotary_yarn": dict(positions="rotary", position_layout="halves", heads=1, rotary_base=20.0, rotary_scaling="yarn",
                        rotary_factor=4.0, rotary_original_length=12, rotary_low_turns=0.3, rotary_high_turns=1.5),
    "gemma2": dict(norm="both", norm_kind="rms", norm_epsilon=1e-6, positions="rotary", biases=False, logit_cap=1.5,
                   separate_embeddings=True, **{name + ".soft_cap": 2.0 for name in ALL}),
    "widths": dict(positions="rotary", separate_embeddings=True, **{"encoder.d_model": 12}),
    "olmo2": dict(norm="output", norm_kind="rms", positions="rotary", heads=4, biases=False,
                  **{name + ".joint_query_key_norm": True for name in ALL}, **{name + ".kv_heads": 2 for name in ALL}),
    "qwen2": dict(positions="rotary", biases=False, norm_kind="rms", **{name + ".biases": "qkv" for name in ALL}),
    "linear": dict(positions="sinusoidal", position_layout="halves", **{name + ".score": "linear" for name in ALL}),
}
# Pieces without begin and end tokens.
PAIRS = [([5, 9, 3, 5, 8, 10, 4, 3, 7], [7, 4, 10, 5, 3, 9, 6]), ([], [10, 6, 6, 3, 8]), ([8, 10], [])]


class Model:
    def __init__(self, keys):
        self.keys = keys
        self.s = type("Keys", (), dict(dict(position_layout="interleaved", rotary_base=10000.0, position_buckets=32, max_distance=128,
                                            scale_embedding=True, norm_kind="layer", norm_epsilon=1e-5, embedding_norm=False, token_types=0,
                                            output_transform=False, biases=True, rotary_scaling="none", logit_cap=0.0,
                                            separate_embeddings=False), **keys))
        self.p = {}
        if not self.s.separate_embeddings:
            self.add("embedding.weight", SETTINGS["target_vocabulary"], self.s.d_model)

    def width(self, stack):
        return self.keys.get(stack + ".d_model", self.s.d_model)

    def table(self, stack):
        name = stack + ".embedding.weight" if self.s.separate_embeddings else "embedding.weight"
        return self.add(name, SETTINGS["target_vocabulary"], self.width(stack))

    def add(self, name, *shape):
        if name not in self.p:
            self.p[name] = make_parameter(name, *shape)
        return self.p[name]

    def option(self, stack, kind, name, default):
        return self.keys.get(f"{stack}.{kind}.{name}", default)

    def linear(self, name, x, outputs, biases=None):
        y = x @ self.add(name + ".weight", outputs, x.shape[1]).T
        return y + self.add(name + ".bias", outputs) if (self.s.biases if biases is None else biases) else y

    def norm(self, name, x):
        """Ba et al. 2016; Zhang & Sennrich 2019."""
        weight = self.add(name + ".weight", x.shape[1])
        if self.s.norm_kind == "rms":
            return x / (x.square().mean(1, keepdim=True) + self.s.norm_epsilon).sqrt() * weight
        return F.layer_norm(x, (x.shape[1],), weight, self.add(name + ".bias", x.shape[1]), self.s.norm_epsilon)

    def frequencies(self, pairs, own_base=None):
        """Chen et al. 2023; Llama 3.1's code; Peng et al. 2024, with their code's whole indices. Also the length of cosines."""
        plain = (own_base or self.s.rotary_base) ** (-torch.arange(pairs) / pairs)
        if self.s.rotary_scaling == "none" or own_base:
            return plain, 1
        factor = self.s.rotary_factor
        if self.s.rotary_scaling == "linear":
            return plain / factor, 1
        length, low, high = self.s.rotary_original_length, self.s.rotary_low_turns, self.s.rotary_high_turns
        if self.s.rotary_scaling == "llama3":
            wavelength = 2 * math.pi / plain
            smooth = (length / wavelength - low) / (high - low)
            between = (1 - smooth) * plain / factor + smooth * plain
            return torch.where(wavelength > length / low, plain / factor,
                               torch.where(wavelength < length / high, plain, between)), 1
        place = lambda turns: 2 * pairs * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(self.s.rotary_base))
        first, last = max(math.floor(place(high)), 0), min(math.ceil(place(low)), 2 * pairs - 1)
        ramp = ((torch.arange(pairs) - first) / (last - first)).clamp(0, 1)
        return plain / factor * ramp + plain * (1 - ramp), 0.1 * math.log(factor) + 1

    def rotate(self, x, own_base=None):
        """Su et al. 2021, of one head's [tokens, columns]."""
        columns = x.shape[1]
        frequencies, length = self.frequencies(columns // 2, own_base)
        angle = torch.arange(len(x))[:, None] * frequencies
        cos, sin = length * angle.cos(), length * angle.sin()
        if self.s.position_layout == "halves":
            first, second = x[:, :columns // 2], x[:, columns // 2:]
            return torch.cat([first * cos - second * sin, first * sin + second * cos], 1)
        first, second = x[:, 0::2], x[:, 1::2]
        return torch.stack([first * cos - second * sin, first * sin + second * cos], 2).reshape(x.shape)

    def slopes(self, heads):
        """get_slopes of Press et al. 2022."""
        power = 2 ** math.floor(math.log2(heads))
        start = 2 ** (-(2 ** -(math.log2(power) - 3)))
        slopes = [start ** (i + 1) for i in range(power)]
        return slopes if power == heads else slopes + self.slopes(2 * power)[0::2][:heads - power]

    def bucket(self, distance, causal):
        """_relative_position_bucket of Raffel et al. 2020, of key position - query position."""
        buckets, result = self.s.position_buckets, torch.zeros_like(distance)
        if causal:
            distance = -torch.min(distance, torch.zeros_like(distance))
        else:
            buckets //= 2
            result = result + (distance > 0).long() * buckets
            distance = distance.abs()
        single = buckets // 2
        large = single + (torch.log(distance.float() / single) / math.log(self.s.max_distance / single) *
                          (buckets - single)).long()
        return result + torch.where(distance < single, distance, large.clamp(max=buckets - 1))

    def bias(self, stack, name, head, distance):
        if self.s.positions == "alibi":
            return -self.slopes(self.s.heads)[head] * distance.abs()
        if self.s.positions == "relative_buckets":
            owner = name if self.option(stack, "self_attention", "own_positions", False) else stack
            table = self.add(f"{owner}.attention_bias.weight", self.s.heads, self.s.position_buckets)
            return table[head, self.bucket(distance, stack == "decoder")]
        return torch.zeros_like(distance)

    def mask(self, stack, kind, distance):
        """The keys that a query sees."""
        causal = stack == "decoder"
        window = self.option(stack, kind, "window", None)
        sees = distance <= 0 if causal else torch.ones_like(distance).bool()
        return sees if window is None else sees & (distance.abs() <= window)

    def attention(self, stack, kind, name, x, memory):
        heads, head_dim = self.s.heads, self.option(stack, kind, "head_dim", self.width(stack) // self.s.heads)
        kv_heads = self.option(stack, kind, "kv_heads", heads)
        widths = [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
        biases = self.option(stack, kind, "biases", "all" if self.s.biases else "none")
        if kind == "self_attention":
            q, k, v = self.linear(name + ".qkv", x, sum(widths), biases != "none").split(widths, 1)
        else:
            q = self.linear(name + ".q", x, widths[0], biases != "none")
            k, v = self.linear(name + ".kv", memory, 2 * widths[1], biases != "none").split(widths[1:], 1)
        if self.option(stack, kind, "joint_query_key_norm", False):  # OLMo 2
            q, k = self.norm(name + ".q_norm", q), self.norm(name + ".k_norm", k)
        distance = torch.arange(len(k))[None, :] - torch.arange(len(q))[:, None]
        outputs = []
        for head in range(heads):
            of = head // (heads // kv_heads)  # Ainslie et al. 2023
            query = q[:, head * head_dim:(head + 1) * head_dim]
            key, value = (each[:, of * head_dim:(of + 1) * head_dim] for each in (k, v))
            if kind == "self_attention" and self.s.positions == "rotary":
                query, key = (self.rotate(each, self.option(stack, kind, "rotary_base", None)) for each in (query, key))
            scores = self.scores(stack, kind, name, head, query, key)
            if kind == "self_attention":
                scores = scores + self.bias(stack, name, head, distance)
                scores = scores.masked_fill(~self.mask(stack, kind, distance), -math.inf)
            outputs.append(scores.softmax(-1) @ value)
        return self.linear(name + ".out", torch.cat(outputs, 1), self.width(stack), biases == "all")

    def scores(self, stack, kind, name, head, query, key):
        score = self.option(stack, kind, "score", "scaled_dot_product")
        if score == "additive":  # Bahdanau et al. 2015
            weight = self.add(name + ".score.weight", self.s.heads, query.shape[1])[head]
            scores = torch.tanh(query[:, None, :] + key[None, :, :]) @ weight
        elif score == "linear":  # Katharopoulos et al. 2020: the softmax divides what it exponentiates by its sum
            scores = ((F.elu(query) + 1) @ (F.elu(key) + 1).T).log()
        else:  # Vaswani et al. 2017; Luong et al. 2015
            scores = query @ key.T / (math.sqrt(query.shape[1]) if score == "scaled_dot_product" else 1)
        soft_cap = self.option(stack, kind, "soft_cap", 0)  # Gemma Team 2024
        return soft_cap * torch.tanh(scores / soft_cap) if soft_cap else scores

    def feed_forward(self, name, x):
        functions = dict(relu=torch.relu, gelu=F.gelu, swiglu=F.silu, geglu=F.gelu)
        function = functions[self.s.activation]
        if self.s.activation.endswith("glu"):  # Shazeer 2020
            gate, up = self.linear(name + ".gateup", x, 2 * self.s.d_ff).split(self.s.d_ff, 1)
            return self.linear(name + ".down", function(gate) * up, x.shape[1])
        return self.linear(name + ".down", function(self.linear(name + ".up", x, self.s.d_ff)), x.shape[1])

    def positions(self, length):
        """tensor2tensor's get_timing_signal_1d."""
        if self.s.positions != "sinusoidal":
            return 0
        half = self.s.d_model // 2
        angle = torch.arange(length)[:, None] * torch.exp(torch.arange(half) * (-math.log(10000.0) / (half - 1)))
        return torch.cat([angle.sin(), angle.cos()], 1)

    def stack(self, stack, layers, ids, memory=None):
        x = self.table(stack)[torch.tensor(ids)] * (math.sqrt(self.width(stack)) if self.s.scale_embedding else 1)
        x = x + self.positions(len(ids))
        if self.s.token_types:
            x = x + self.add(stack + ".token_types.weight", self.s.token_types, self.s.d_model)[0]
        if self.s.embedding_norm:
            x = self.norm(stack + ".embedding_norm", x)
        kinds = ["self_attention", "feed_forward"] if stack == "encoder" else ["self_attention", "cross_attention", "feed_forward"]
        for layer in range(layers):
            for kind in kinds:
                name = f"{stack}.layers.{layer}.{kind}"
                branch = self.norm(name + ".norm", x) if self.s.norm in ("pre", "both") else x
                branch = (self.feed_forward(name, branch) if kind == "feed_forward" else
                          self.attention(stack, kind, name, branch, memory))
                if self.s.norm in ("both", "output"):
                    branch = self.norm(name + ".output_norm", branch)
                x = self.norm(name + ".norm", x + branch) if self.s.norm == "post" else x + branch
        return x if self.s.norm == "post" else self.norm(stack + ".norm", x)

    def logits(self, source, target):
        memory = self.stack("encoder", self.s.encoder_layers, source + [SETTINGS["source_end_id"]])
        x = self.stack("decoder", self.s.decoder_layers, [SETTINGS["begin_id"]] + target, memory)
        if self.s.output_transform:  # Devlin et al. 2019
            x = self.norm("output.norm", F.gelu(self.linear("output.transform", x, self.s.d_model)))
        logits = x @ self.table("decoder").T
        cap = self.s.logit_cap  # Gemma Team 2024
        return cap * torch.tanh(logits / cap) if cap else logits

    def losses(self):
        """Logits of all target tokens, then the mean smoothed loss and mean negative log-likelihood."""
        logits = torch.cat([self.logits(source, target) for source, target in PAIRS])
        gold = torch.tensor([token for _, target in PAIRS for token in target + [SETTINGS["end_id"]]])
        return logits, F.cross_entropy(logits, gold, label_smoothing=SETTINGS["label_smoothing"]), F.cross_entropy(logits, gold)


def toml(value):
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def write_values(out, model, settings):
    """The settings, the pairs, and the logits, losses and gradients of the model."""
    write_setup(out, settings, PAIRS)
    logits, smoothed, nll = model.losses()
    smoothed.backward()
    write_tensor(out, "logits", logits)
    write_tensor(out, "losses", smoothed.reshape(1))
    write_tensor(out, "negative_log_likelihood", nll)
    for name, parameter in model.p.items():
        write_tensor(out, "gradient:" + name, parameter.grad)


def write_variant(path, keys):
    model = Model(keys)
    with open(path, "w") as out:
        out.write("# Written by family.py.\n")
        for key, value in keys.items():
            out.write(f"model {key} = {toml(value)}\n")
        write_values(out, model, SETTINGS)


if __name__ == "__main__":
    for variant, changes in VARIANTS.items():
        write_variant(pathlib.Path(__file__).parent / f"family_{variant}.txt", {**BASE, **changes})
