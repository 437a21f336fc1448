"""Fine-tunes a model of transformers on four ranks, and compares what three systems then translate.

    python3 bench/parity finetuned BUILD TRAIN.en TRAIN.de TEST.en TEST.de [--steps N] [--lora RANK] [--set KEY=VALUE...]

Texts may be gzip.
A Marian model with transformers' random weights and a vocabulary trained on the texts is imported, trained for N steps
and exported: the model that somebody published. It is imported, trained for N steps on the other half of the text over
tensor 2 × data 2, as a whole, with --lora by adapters beside the frozen model, or as --set says, and exported to
huggingface and ctranslate2, adapters merged into the weights. Heddle's own outputs are those of the run, with its adapters
as they are. Printed are BLEU before and after, whether the tokenizer of the export gives Heddle's ids, and how many of 500 greedy outputs of transformers, of
CTranslate2 and of Heddle are equal.
"""
import argparse
import gzip
import json
import os
import tempfile
from pathlib import Path

import ctranslate2
import models
import programs
import torch
import transformers

SENTENCES = 500
LENGTH = 80  # of an output
SIZES = dict(d_model=128, encoder_layers=3, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=4,
             encoder_ffn_dim=256, decoder_ffn_dim=256, max_position_embeddings=256, activation_function="swish",
             scale_embedding=True, dropout=0.1)


def lines_of(path):
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def write_lines(path, lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def publish(work, texts):
    """A model with random weights as transformers saves it."""
    models.PIECES = 4000
    write_lines(work / "both", texts[0] + texts[1])
    (work / "random").mkdir()
    _, special = models.marian_vocabulary(str(work / "both"), str(work / "random"))
    torch.manual_seed(1)
    model = transformers.MarianMTModel(transformers.MarianConfig(**SIZES, **special))
    model.save_pretrained(work / "random")
    return special


class Commands:
    def __init__(self, build, work):
        self.build, self.work = build, work
        os.environ.update(OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                          OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_mpi_yield_when_idle="1",
                          OMPI_MCA_hwloc_base_binding_policy="none", XDG_CACHE_HOME=str(work / "cache"))

    def heddle(self, *words):
        return programs.run(str(self.build / "apps" / "heddle"), *map(str, words)).decode()

    def train(self, start, run, half, steps, ranks, settings):
        """Trains a run that starts with another one's parameters, on a half of the text in that one's vocabulary."""
        data = self.work / f"{run.name}.data"
        self.heddle("prepare", "--source", self.work / f"{half}.en", "--target", self.work / f"{half}.de",
                    "--vocab-model", start / "source.model", "--target-vocab-model", start / "target.model", "--out", data)
        settings = ["run.directory=" + str(run), "train.initialize_from=" + str(start), f"data.train={data}/train.h5",
                    f"train.steps={steps}", "train.validate_every=0", "train.batch_tokens=4096", "checkpoint.every_steps=0",
                    "train.micro_batch_tokens=2048", "optimizer.learning_rate=0.002", "optimizer.warmup_steps=100"] + settings
        words = [word for setting in settings for word in ("--set", setting)]
        programs.run("mpirun", "-np", str(ranks), str(self.build / "apps" / "heddle"), "train",
                     str(start / "config.toml"), *words)

    def bleu(self, run, texts):
        printed = self.heddle("evaluate", "--checkpoint", run, "--source", texts[0], "--reference", texts[1])
        return next(line for line in printed.splitlines() if "BLEU" in line)

    def token_ids(self, directory, lines):
        return [ids for ids, _ in programs.token_ids(str(self.build), str(directory), lines)]

    def greedy(self, run, sources):
        return programs.greedy_ids(str(self.build), str(run), [(ids, []) for ids in sources], LENGTH)


def greedy_of_transformers(directory, special, sources):
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(directory).eval().float()
    start, end = special["decoder_start_token_id"], special["eos_token_id"]
    outputs = []
    for source in sources:
        ids = model.generate(torch.tensor([source + [end]]), max_new_tokens=LENGTH, num_beams=1, do_sample=False,
                             bad_words_ids=[[start]])[0, 1:].tolist()
        outputs.append(ids[:ids.index(end)] if end in ids else ids)
    return outputs


def greedy_of_ctranslate2(directory, sources):
    pieces = json.loads((directory / "shared_vocabulary.json").read_text(encoding="utf-8"))
    ids = {piece: id for id, piece in enumerate(pieces)}
    translator = ctranslate2.Translator(str(directory), compute_type="float32")
    results = translator.translate_batch([[pieces[id] for id in source] for source in sources], beam_size=1,
                                         max_decoding_length=LENGTH)
    return [[ids[piece] for piece in result.hypotheses[0]] for result in results]


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("texts", type=Path, nargs=4)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--lora", type=int, metavar="RANK", help="train adapters of this rank of all projections")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    adapters = [f"adapter.rank={options.lora}", 'adapter.targets=["*"]', "adapter.save_base=false"] if options.lora else []
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        commands = Commands(options.build.resolve(), work)
        texts = [lines_of(path) for path in options.texts]
        half = len(texts[0]) // 2
        for language, lines in zip(["en", "de"], texts):
            write_lines(work / f"first.{language}", lines[:half])
            write_lines(work / f"second.{language}", lines[half:])
        special = publish(work, texts)
        commands.heddle("import", work / "random", "--out", work / "random.run")
        commands.train(work / "random.run", work / "trained", "first", options.steps, 2, [])
        commands.heddle("export", work / "trained", "--out", work / "published")
        commands.heddle("import", work / "published", "--out", work / "imported")
        print("before:", commands.bleu(work / "imported", options.texts[2:]), flush=True)
        commands.train(work / "imported", work / "tuned", "second", options.steps, 4,
                       ["parallel.tensor=2", "parallel.data=2"] + adapters + options.settings)
        print("after: ", commands.bleu(work / "tuned", options.texts[2:]), flush=True)
        merge = ["--merge"] if adapters else []
        commands.heddle("export", work / "tuned", "--out", work / "huggingface", *merge)
        commands.heddle("export", work / "tuned", "--out", work / "ctranslate2", "--format", "ctranslate2", *merge)
        lines = texts[2][:SENTENCES]
        sources = commands.token_ids(work / "huggingface", lines)
        tokenizer = transformers.AutoTokenizer.from_pretrained(work / "huggingface")
        equal = sum(tokenizer(line).input_ids == ids + [special["eos_token_id"]] for line, ids in zip(lines, sources))
        print(f"tokenizer: ids of {equal} of {len(lines)} sentences equal", flush=True)
        expected = greedy_of_transformers(work / "huggingface", special, sources)
        results = {"CTranslate2": greedy_of_ctranslate2(work / "ctranslate2", sources),
                   "Heddle": commands.greedy(work / "tuned", sources)}
        print(f"transformers: {len({tuple(ids) for ids in expected})} different outputs, {sum(map(len, expected))} tokens")
        for system, outputs in results.items():
            same = sum(one == other for one, other in zip(outputs, expected))
            print(f"{system}: {same} of {len(expected)} greedy outputs are those of transformers")
