#!/usr/bin/env python3
"""Writes small random models of transformers with the logits that it computes with them (pip: torch, transformers,
safetensors, sentencepiece), for tests/apps/exchange.

    tests/golden/exchange/make_models.py TEXT [FAMILY...]
"""

import os
import shutil
import sys

import numpy
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "..", "bench", "parity"))
import models as parity  # noqa: E402

SMALL = dict(d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=4,
             encoder_ffn_dim=16, decoder_ffn_dim=12, max_position_embeddings=32)


def main():
    transformers.logging.set_verbosity_error()
    learn = parity.train_pieces
    parity.train_pieces = lambda *names, **ids: learn(*names, normalization_rule_name="identity", **ids)
    randomise = parity.randomise

    def randomise_to_few_bits(model):
        """Weights w for which 1 + w is exact."""
        randomise(model)
        for value in model.parameters():
            value.data = (value.data * 1024).round() / 1024

    small = {"marian": SMALL, "nllb": SMALL,
             "t5-v1.1": dict(d_model=16, d_kv=6, d_ff=12, num_layers=1, num_decoder_layers=1, num_heads=2),
             "mistral": dict(hidden_size=16, intermediate_size=12, num_hidden_layers=1, num_attention_heads=4,
                             num_key_value_heads=2, sliding_window=4, max_position_embeddings=32,
                             tie_word_embeddings=True),
             **{name: dict(hidden_size=16, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2,
                           max_position_embeddings=32) for name in ("bert", "roberta", "xlm-roberta")},
             "gpt2": dict(n_embd=16, n_layer=1, n_head=2, n_inner=24, n_positions=32),
             "gemma2": dict(hidden_size=16, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4,
                            num_key_value_heads=2, head_dim=6, query_pre_attn_scalar=6, sliding_window=4,
                            max_position_embeddings=32),
             "qwen2-windows": dict(hidden_size=16, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
                                   num_key_value_heads=1, max_position_embeddings=32, tie_word_embeddings=True),
             "umt5": dict(d_model=16, d_kv=6, d_ff=12, num_layers=1, num_decoder_layers=2, num_heads=2),
             "marian-separate": SMALL,
             "distilbert": dict(dim=16, hidden_dim=12, n_layers=1, n_heads=2, max_position_embeddings=32),
             "opt": dict(hidden_size=16, ffn_dim=12, num_hidden_layers=1, num_attention_heads=2,
                         max_position_embeddings=32),
             "phi3": dict(hidden_size=16, intermediate_size=12, num_hidden_layers=1, num_attention_heads=4,
                          num_key_value_heads=2, sliding_window=4, max_position_embeddings=32),
             "starcoder2": dict(hidden_size=16, intermediate_size=12, num_hidden_layers=1, num_attention_heads=4,
                                num_key_value_heads=2, sliding_window=4, max_position_embeddings=32),
             "mpt": dict(d_model=16, n_layers=1, n_heads=4, max_seq_len=32),
             "bloom": dict(hidden_size=16, n_layer=1, n_head=2, seq_length=32),
             "gemma3": dict(hidden_size=16, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4,
                            num_key_value_heads=2, head_dim=6, query_pre_attn_scalar=6, sliding_window=4,
                            layer_types=["sliding_attention", "full_attention"], max_position_embeddings=32),
             "llama-bpe": dict(hidden_size=16, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2,
                               num_key_value_heads=1, max_position_embeddings=32, tie_word_embeddings=True)}
    for family in sys.argv[2:] or small:
        sizes = small[family]
        directory = os.path.join(HERE, family)
        shutil.rmtree(directory, ignore_errors=True)
        model_class, config_class, vocabulary, usual = parity.FAMILIES[family]
        has_bytes = vocabulary in (parity.llama_vocabulary, parity.byte_level_vocabulary, parity.gpt2_vocabulary,
                                   parity.qwen_vocabulary, parity.gemma_vocabulary, parity.roberta_vocabulary)
        if family in ("opt", "phi3", "starcoder2", "mpt", "bloom", "gemma3"):
            vocabulary, has_bytes = parity.plain_vocabulary, False
        parity.PIECES = 325 if has_bytes else 90  # 256 are bytes
        parity.randomise = randomise_to_few_bits if family in ("gemma2", "gemma3") else randomise
        parity.FAMILIES[family] = (model_class, config_class, vocabulary, {**usual, **sizes})
        model, special = parity.build(family, sys.argv[1], directory)
        for name in os.listdir(directory):
            os.chmod(os.path.join(directory, name), 0o644)
            if name.endswith(".vocab") or name in ("source.model", "target.model"):
                os.remove(os.path.join(directory, name))
        random = numpy.random.default_rng(1)
        draw = lambda count, size: [int(id) for id in random.integers(4, size - 4, count)]
        source, target = draw(9, special["vocab_size"]), draw(7, special.get("decoder_vocab_size", special["vocab_size"]))
        logits = parity.logits_of(model, special, [(source, target)])
        with open(os.path.join(directory, "logits.txt"), "w", encoding="ascii") as file:
            file.write(" ".join(map(str, source)) + "\n" + " ".join(map(str, target)) + "\n")
            for row in logits:
                file.write(" ".join(f"{value:.5g}" for value in row) + "\n")


if __name__ == "__main__":
    main()
