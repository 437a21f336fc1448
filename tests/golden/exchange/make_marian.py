#!/usr/bin/env python3
"""Writes a small random model as Marian does, with the logits that its C++ code (src/models/transformer.h) would give,
computed here by NumPy, for tests/apps/exchange.

    tests/golden/exchange/make_marian.py

Also deflated.npz, for tests/io/exchange.
"""

import os
import shutil

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))


def config_text(norm, tables, rows, sizes):
    pre, post, top = {"post": ('""', "dan", '""'), "pre": ("n", "da", "n")}[norm]
    options = {"dec-depth": sizes["decoder_layers"], "dim-emb": sizes["d_model"], "enc-depth": sizes["encoder_layers"],
               "dim-vocabs": f"\n  - {rows}\n  - {rows}", "input-types": "\n  []", "lemma-dim-emb": 0,
               "tied-embeddings": str(tables == "target").lower(), "tied-embeddings-src": "false",
               "tied-embeddings-all": str(tables == "all").lower(), "transformer-decoder-autoreg": "self-attention",
               "transformer-dim-ffn": sizes["d_ff"], "transformer-decoder-dim-ffn": 0, "transformer-ffn-depth": 2,
               "transformer-ffn-activation": "swish", "transformer-heads": sizes["heads"],
               "transformer-no-projection": "false", "transformer-guided-alignment-layer": "last",
               "transformer-postprocess": post, "transformer-postprocess-emb": "d", "transformer-postprocess-top": top,
               "transformer-preprocess": pre, "transformer-tied-layers": "\n  []", "ulr": "false",
               **sizes.get("options", {}),
               "transformer-train-position-embeddings": "false", "type": "transformer",
               "version": "v1.12.0 65bf82f 2023-02-21 09:56:29 -0800"}
    return "".join(f"{key}: {value}\n".replace(": \n", ":\n") for key, value in sorted(options.items()))


def make_weights(norm, tables, rows, sizes, seed=1):
    random = numpy.random.default_rng(seed)
    d, d_ff = sizes["d_model"], sizes["d_ff"]
    draw = lambda *shape: (random.standard_normal(shape) * 0.5 / shape[0] ** 0.5).astype(numpy.float32)
    weights = {}

    def dense(name, suffix, inputs, outputs):
        weights[f"{name}_W{suffix}"] = draw(inputs, outputs)
        weights[f"{name}_b{suffix}"] = draw(1, outputs) * 0.2

    def layer_norm(name, suffix=""):
        weights[f"{name}_ln_scale{suffix}"] = 1 + draw(1, d) * 0.2
        weights[f"{name}_ln_bias{suffix}"] = draw(1, d) * 0.2

    def ssru(name):
        weights[name + "_W"] = draw(d, d)
        dense(name, "f", d, d)
        if sizes.get("projection"):
            dense(name, "o", d, d)
        layer_norm(name if end else name + "_ffn", end)

    def average_attention(name):
        dense(name, "1", d, sizes["d_aan"])
        dense(name, "2", sizes["d_aan"], d)
        for gate in "if" if sizes["gate"] else "":
            dense(name, gate, d, d)
        layer_norm(name + "_ffn", end)

    end = "_pre" if norm == "pre" else ""
    for stack in ["encoder", "decoder"]:
        for layer in range(1, sizes[stack + "_layers"] + 1):
            name = f"{stack}_l{layer}"
            if stack == "decoder" and layer not in sizes.get("tied", [layer]):
                continue
            for attention in ["self"] + ["context"] * (stack == "decoder"):
                if sizes.get("kind") and stack == "decoder" and attention == "self":
                    ssru(name + "_rnn") if sizes["kind"] == "rnn" else average_attention(name + "_aan")
                    continue
                for part in "qkvo":
                    dense(f"{name}_{attention}", part, d, d)
                layer_norm(f"{name}_{attention}_Wo", end)
            dense(f"{name}_ffn", "1", d, d_ff)
            dense(f"{name}_ffn", "2", d_ff, d)
            layer_norm(f"{name}_ffn_ffn", end)
        if norm == "pre":
            layer_norm(f"{stack}_top")
    for name in ["Wemb"] if tables == "all" else ["encoder_Wemb", "decoder_Wemb"]:
        weights[name] = draw(rows, d) * rows ** 0.5 * 0.3
    if tables == "none":
        weights["decoder_ff_logit_out_Wt"] = draw(rows, d) * rows ** 0.5 * 0.3
    weights["decoder_ff_logit_out_b"] = draw(1, rows)
    return weights


class Model:
    def __init__(self, weights, norm, sizes):
        self.w, self.norm, self.sizes = {name: value.astype(float) for name, value in weights.items()}, norm, sizes

    def dense(self, x, name, suffix):
        return x @ self.w[f"{name}_W{suffix}"] + self.w[f"{name}_b{suffix}"]

    def layer_norm(self, x, name, suffix=""):
        centred = x - x.mean(-1, keepdims=True)
        deviation = ((centred ** 2).mean(-1, keepdims=True) + 1e-6) ** 0.5
        return centred / deviation * self.w[f"{name}_ln_scale{suffix}"] + self.w[f"{name}_ln_bias{suffix}"]

    def sublayer(self, x, name, branch):
        if self.norm == "pre":
            return x + branch(self.layer_norm(x, name, "_pre"))
        return self.layer_norm(x + branch(x), name)

    def attention(self, name, x, memory, causal):
        heads = self.sizes["heads"]
        split = lambda y: y.reshape(len(y), heads, -1).transpose(1, 0, 2)
        q, k, v = (split(self.dense(y, name, part)) for y, part in [(x, "q"), (memory, "k"), (memory, "v")])
        scores = q @ k.transpose(0, 2, 1) / q.shape[-1] ** 0.5
        if causal:
            scores = numpy.where(numpy.tri(len(x)) > 0, scores, -numpy.inf)
        weights = numpy.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return self.dense((weights @ v).transpose(1, 0, 2).reshape(len(x), -1), name, "o")

    def ssru(self, x, name):
        """rnn/cells.h: highway(c, x, f) is sigmoid(f) c + (1 - sigmoid(f)) x."""
        forget = 1 / (1 + numpy.exp(-self.dense(x, name, "f")))
        state, output = numpy.zeros(x.shape[1]), []
        for t, row in enumerate(x @ self.w[name + "_W"]):
            state = forget[t] * state + (1 - forget[t]) * row
            output.append(numpy.maximum(state, 0))
        output = numpy.array(output)
        return self.dense(output, name, "o") if self.sizes.get("projection") else output

    def average_attention(self, x, name):
        mask = numpy.tri(len(x))
        y = self.dense(mask / mask.sum(1, keepdims=True) @ x, name, "1")
        y = y / (1 + numpy.exp(-y)) if self.sizes["activation"] == "swish" else numpy.maximum(y, 0)
        y = self.dense(y, name, "2")
        if self.sizes["gate"]:
            gate = lambda of, suffix: of / (1 + numpy.exp(-self.dense(of, name, suffix)))
            y = gate(x, "i") + gate(y, "f")
        return y

    def recurrence(self, x, name):
        """The decoder's sublayer in place of self-attention."""
        if self.sizes["kind"] == "rnn":
            own = name + "_rnn"
            return self.sublayer(x, own if self.norm == "pre" else own + "_ffn", lambda y: self.ssru(y, own))
        return self.sublayer(x, name + "_aan_ffn", lambda y: self.average_attention(y, name + "_aan"))

    def feed_forward(self, x, name):
        y = self.dense(x, name, "1")
        return self.dense(y / (1 + numpy.exp(-y)), name, "2")

    def positions(self, x):
        half = x.shape[1] // 2
        angles = numpy.arange(len(x))[:, None] * numpy.exp(numpy.arange(half) * -numpy.log(10000) / (half - 1))
        return x.shape[1] ** 0.5 * x + numpy.concatenate([numpy.sin(angles), numpy.cos(angles)], 1)

    def stack(self, name, x, memory=None):
        x = self.positions(x)
        for layer in range(1, self.sizes[name + "_layers"] + 1):
            tied = self.sizes.get("tied") if memory is not None else None
            prefix = f"{name}_l{tied[layer - 1] if tied else layer}"
            own, other = prefix + "_self", prefix + "_context"
            if memory is not None and self.sizes.get("kind"):
                x = self.recurrence(x, prefix)
            else:
                x = self.sublayer(x, own + "_Wo", lambda y: self.attention(own, y, y, memory is not None))
            if memory is not None:
                x = self.sublayer(x, other + "_Wo", lambda y: self.attention(other, y, memory, False))
            x = self.sublayer(x, prefix + "_ffn_ffn", lambda y: self.feed_forward(y, prefix + "_ffn"))
        return self.layer_norm(x, name + "_top") if self.norm == "pre" else x

    def logits(self, source, target):
        source_table = self.w.get("encoder_Wemb", self.w.get("Wemb"))
        target_table = self.w.get("decoder_Wemb", self.w.get("Wemb"))
        memory = self.stack("encoder", source_table[source])
        start = numpy.zeros((1, target_table.shape[1]))
        output = self.stack("decoder", numpy.concatenate([start, target_table[target]]), memory)
        return output @ self.w.get("decoder_ff_logit_out_Wt", target_table).T + self.w["decoder_ff_logit_out_b"]


def save(path, weights, text):
    meta = numpy.frombuffer(text.encode() + b"\0", numpy.int8)
    numpy.savez(path, **weights, **{"special:model.yml": meta})


def save_vocabulary(directory):
    os.makedirs(directory, exist_ok=True)
    shutil.copy(os.path.join(HERE, "marian", "source.spm"), os.path.join(directory, "vocab.spm"))
    with open(os.path.join(directory, "decoder.yml"), "w", encoding="ascii") as file:
        file.write("relative-paths: true\nmodels:\n  - model.npz\nvocabs:\n  - vocab.spm\n  - vocab.spm\n"
                   "beam-size: 6\nnormalize: 1\n")


def save_model(path, logits, norm, sizes):
    rows, tables = 90, "all"
    weights = make_weights(norm, tables, rows, sizes)
    save(path, weights, config_text(norm, tables, rows, sizes))
    random = numpy.random.default_rng(1)
    source, target = ([int(id) for id in random.integers(2, rows, count)] for count in [9, 7])
    with open(logits, "w", encoding="ascii") as file:
        file.write(" ".join(map(str, source)) + "\n" + " ".join(map(str, target)) + "\n")
        for row in Model(weights, norm, sizes).logits(source + [0], target):
            file.write(" ".join(f"{value:.5g}" for value in row) + "\n")


def save_students():
    """Decoders with SSRU and with average attention, and tied layers."""
    directory = os.path.join(HERE, "marian_students")
    save_vocabulary(directory)
    sizes = dict(d_model=8, d_ff=12, heads=2, encoder_layers=1, decoder_layers=3)
    rnn = {"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru", "layer-normalization": "false",
           "transformer-rnn-projection": "false"}
    average = {"transformer-decoder-autoreg": "average-attention", "transformer-dim-aan": 20,
               "transformer-aan-depth": 2, "transformer-aan-activation": "relu", "transformer-aan-nogate": "false"}
    tied = {"transformer-tied-layers": "\n  - 1\n  - 1\n  - 2"}
    students = {
        "ssru": ("post", dict(kind="rnn", tied=[1, 1, 2], options=rnn | tied)),
        "ssru_pre": ("pre", dict(kind="rnn", projection=True, options=rnn | {"transformer-rnn-projection": "true"})),
        "average": ("post", dict(kind="average", d_aan=20, activation="relu", gate=True, options=average)),
        "average_plain": ("post", dict(kind="average", d_aan=20, activation="swish", gate=False,
                                       options={"transformer-decoder-autoreg": "average-attention",
                                                "transformer-dim-aan": 20, "transformer-aan-nogate": "true"}))}
    for name, (norm, options) in students.items():
        path = os.path.join(directory, name)
        save_model(path + ".npz", path + ".logits.txt", norm, sizes | options)


def main():
    sizes = dict(d_model=16, d_ff=12, heads=2, encoder_layers=2, decoder_layers=1)
    directory = os.path.join(HERE, "marian_npz")
    save_vocabulary(directory)
    save_model(os.path.join(directory, "model.npz"), os.path.join(directory, "logits.txt"), "post", sizes)
    save_students()
    numpy.savez_compressed(os.path.join(HERE, "deflated.npz"), text=numpy.frombuffer(b"a text", numpy.int8),
                           numbers=numpy.arange(12, dtype=numpy.float32).reshape(3, 4), none=numpy.zeros(0, "f4"),
                           turned=numpy.ones((2, 3), numpy.float32).T.copy(), one=numpy.float32(7))


if __name__ == "__main__":
    main()
