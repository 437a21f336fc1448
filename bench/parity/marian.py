"""Takes models of Marian's files through `heddle import` and `heddle export`.

    python3 bench/parity marian BUILD

The models have post- and pre-norm, each way to tie embeddings, stored
and deflated arrays, and a vocabulary in .yml. Printed is whether the tensors and the vocabularies have the same bytes
after the way back; and, for what CTranslate2's own converter makes of the files, and for Heddle's export to CTranslate2
of the model with the converter's positions and epsilon, how far probabilities are apart and how many outputs are equal.
"""
import json
import os
import sys
import tempfile

import ctranslate2
import ctranslate2.converters.marian
import make_marian
import numpy
from programs import run

SIZES = dict(d_model=48, d_ff=64, heads=4, encoder_layers=3, decoder_layers=2)
SENTENCES = 200


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write_vocabulary(path, pieces, seed):
    """The end, the unknown piece, and the others in an order of their own."""
    pieces = pieces[:2] + [str(piece) for piece in numpy.random.default_rng(seed).permutation(pieces[2:])]
    with open(path, "w", encoding="utf-8") as file:
        for id, piece in enumerate(pieces):
            escaped = piece.replace("\\", "\\\\").replace('"', '\\"')
            file.write(f'"{escaped}": {id}\n')
    return pieces


def build(directory, pieces, norm, tables, compressed):
    os.makedirs(directory)
    weights = make_marian.make_weights(norm, tables, len(pieces), SIZES)
    make_marian.save(directory, weights, make_marian.config_text(norm, tables, len(pieces), SIZES), compressed)
    for name in ["source.spm", "target.spm"]:
        with open(f"{directory}/{name}", "wb") as file:
            file.write(read(os.path.dirname(make_marian.__file__) + "/marian_npz/vocab.spm"))
    names = ["source.yml", "source.yml" if tables == "all" else "target.yml"]
    vocabularies = [write_vocabulary(f"{directory}/{name}", pieces, len(name) + (name[0] == "t")) for name in names]
    with open(directory + "/decoder.yml", "w", encoding="ascii") as file:
        file.write("models:\n  - model.npz\nvocabs:\n" + "".join(f"  - {name}\n" for name in names))
    return names, vocabularies


def compare(heddle, work, norm, tables, compressed):
    directory = f"{work}/{norm}.{tables}.{compressed}"
    with open(os.path.dirname(make_marian.__file__) + "/marian/vocab.json", encoding="utf-8") as file:
        ids = json.load(file)
    pieces = [piece for piece in sorted(ids, key=ids.get) if piece != "<pad>"]
    names, vocabularies = build(directory, pieces, norm, tables, compressed)
    run(heddle, "import", directory, "--out", directory + ".run")
    run(heddle, "export", directory + ".run", "--format", "marian", "--out", directory + ".back")
    old, new = (numpy.load(f"{place}/model.npz") for place in (directory, directory + ".back"))
    tensors = [name for name in old.files if not name.startswith("special:")]
    same = sum(old[name].tobytes() == new[name].tobytes() and old[name].shape == new[name].shape for name in tensors)
    kept = all(read(f"{directory}/{name}") == read(f"{directory}.back/{name}") for name in names + ["source.spm"])

    converter = ctranslate2.converters.marian.MarianConverter(
        directory + ".back/model.npz", [f"{directory}.back/{name}" for name in names])
    converter.convert(directory + ".theirs")
    run(heddle, "import", directory, "--out", directory + ".paper", "--set", "model.position_frequencies=paper",
        "--set", "model.norm_epsilon=1e-5")
    run(heddle, "export", directory + ".paper", "--format", "ctranslate2", "--out", directory + ".ours")
    random = numpy.random.default_rng(1)
    draw = lambda side: [vocabularies[side][id] for id in random.integers(2, len(pieces), random.integers(1, 30))]
    sources, targets = ([draw(side) for _ in range(SENTENCES)] for side in [0, 1])
    translators = [ctranslate2.Translator(directory + end, compute_type="float32") for end in [".theirs", ".ours"]]
    scores = [numpy.concatenate([result.log_probs for result in each.score_batch(sources, targets)])
              for each in translators]
    outputs = [[result.hypotheses[0] for result in each.translate_batch(sources, beam_size=4, max_decoding_length=20,
                                                                        min_decoding_length=10)]
               for each in translators]
    print(f"{norm:4} {tables:6} {'deflated' if compressed else 'stored':8} {same} of {len(tensors)} tensors equal, "
          f"vocabularies {'equal' if kept else 'DIFFER'}; CTranslate2: probabilities "
          f"{abs(scores[0] - scores[1]).max():.1e} apart, {sum(a == b for a, b in zip(*outputs))} of {SENTENCES} "
          "outputs equal", flush=True)


def main(arguments):
    if len(arguments) != 1:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as work:
        for norm in ["post", "pre"]:
            for tables in ["all", "target", "none"]:
                for compressed in [False, True]:
                    compare(os.path.abspath(arguments[0]) + "/apps/heddle", work, norm, tables, compressed)
