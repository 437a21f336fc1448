"""Compares models of transformers with Heddle's after `heddle import`, and transformers' after `heddle export`.

    python3 bench/parity exchange BUILD TEXT [FAMILY...]

Each family gets a vocabulary trained on TEXT. Printed are the largest difference of a logit, relative to the largest
logit; how many of the likeliest tokens are equal; whether transformers' tensors are the same after the way back; and, for models
exported to CTranslate2, how many of its greedy outputs and which probabilities of given tokens are transformers'.
"""
import json
import subprocess
import sys

import ctranslate2
import numpy
import safetensors.torch
import torch
import transformers

from models import FAMILIES, SEQUENCES, build, distance, drawn_ids, for_each, is_encoder, logits_of
from programs import greedy_ids, model_logits, run, token_ids

TOKENS = 30
TRANSLATIONS = 500

# CTranslate2 cannot compute them.
REFUSED = {"umt5", "switch", "mixtral", "marian-separate", "phi3", "starcoder2", "mpt", "bloom", "gemma3", "mistral", "qwen2-windows", "olmo2", "gemma2", "gemma2-uncapped", "t5gemma", "t5gemma-widths"}


EXTENDED = {"t5", "marian", "nllb", "bart", "llama", "llama-bpe", "gemma2", "bert"}  # and loaded with more pieces


def start_of(special):
    return special["eos_token_id"] if special["bos_token_id"] is None else special["bos_token_id"]


def refusal(*command):
    done = subprocess.run(command, capture_output=True)
    if done.returncode != 78:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}; expected 78\n{done.stderr.decode()}")
    return done.stderr.decode().strip()


def never_generated(model, special):
    """Marian's start token, as generation_config.json of OPUS-MT has it."""
    return [special["decoder_start_token_id"]] if model.config.model_type == "marian" else []


def greedy_of(model, special, pairs):
    outputs = []
    for source, target in pairs:
        alone = not model.config.is_encoder_decoder
        prompt = [start_of(special)] + target if alone else source + [special["eos_token_id"]]
        ids = model.generate(torch.tensor([prompt]), max_new_tokens=TOKENS, num_beams=1, do_sample=False,
                             pad_token_id=special["pad_token_id"] or 0,
                             bad_words_ids=[[id] for id in never_generated(model, special)] or None)[0].tolist()
        ids = ids[len(prompt):] if alone else ids[1:]
        outputs.append(ids[:ids.index(special["eos_token_id"])] if special["eos_token_id"] in ids else ids)
    return outputs


LENGTH = 24  # of greedy outputs


def greedy(model, special, source):
    """The tokens of an output without its end and without repetitions: all that random weights would give."""
    config = transformers.GenerationConfig(**{key: special[key] for key in special if key.endswith("token_id")})
    inputs = torch.tensor([source + [special["eos_token_id"]]])
    output = model.generate(inputs, generation_config=config, num_beams=1, do_sample=False, max_new_tokens=LENGTH,
                            min_new_tokens=LENGTH, no_repeat_ngram_size=1,
                            bad_words_ids=[[id] for id in never_generated(model, special)] or None)
    return output[0, 1:].tolist()


def scores(model, special, source, target):
    """The logarithms of the probabilities of the target's tokens and its end."""
    logits = torch.from_numpy(logits_of(model, special, [(source, target)]))
    logits[:, never_generated(model, special)] = -torch.inf
    return logits.log_softmax(-1)[range(len(target) + 1), target + [special["eos_token_id"]]].numpy()


def compare_ctranslate2(heddle, run_directory, model, special, pairs):
    outputs = [greedy(model, special, source) for source, _ in pairs]
    expected = numpy.concatenate([scores(model, special, *pair) for pair in pairs])
    results = []
    for dtype in ["float32", "float16", "bfloat16", "int16", "int8"]:
        exported = f"{run_directory}.{dtype}"
        quantization = [] if dtype == "float32" else ["--quantization", dtype]
        run(heddle, "export", run_directory, "--format", "ctranslate2", "--out", exported, *quantization)
        with open(exported + "/shared_vocabulary.json", encoding="utf-8") as file:
            pieces = json.load(file)
        ids = {piece: id for id, piece in enumerate(pieces)}
        texts = [[[pieces[id] for id in side] for side in pair] for pair in pairs]
        # To transformers the start token is one that was generated, so that it is not repeated.
        start = [[pieces[id]] for id in {special["decoder_start_token_id"]} - {special["eos_token_id"]}]
        translator = ctranslate2.Translator(exported, compute_type="float32")  # of what the file has, not of the sums
        translated = translator.translate_batch([source for source, _ in texts], beam_size=1,
                                                max_decoding_length=LENGTH, min_decoding_length=LENGTH,
                                                no_repeat_ngram_size=1, suppress_sequences=start)
        equal = sum([ids[piece] for piece in result.hypotheses[0]] == output
                    for result, output in zip(translated, outputs))
        scored = translator.score_batch([source for source, _ in texts], [target for _, target in texts])
        found = numpy.concatenate([result.log_probs for result in scored])
        results.append(f"{dtype}: {equal} of {len(pairs)}, {abs(found - expected).max():.1e} apart")
    print(f"  CTranslate2's greedy outputs ({len({id for output in outputs for id in output})} tokens) and "
          "logarithms of probabilities:\n    " + "\n    ".join(results), flush=True)


def compare_generator(heddle, run_directory, model, special, texts):
    run(heddle, "export", run_directory, "--format", "ctranslate2", "--out", run_directory + ".float32")
    with open(run_directory + ".float32/vocabulary.json", encoding="utf-8") as file:
        pieces = json.load(file)
    generator = ctranslate2.Generator(run_directory + ".float32", compute_type="float32")
    scored = generator.score_batch([[pieces[id] for id in [start_of(special)] + text] for text in texts])
    difference = 0
    for text, result in zip(texts, scored):
        with torch.no_grad():
            logits = model(torch.tensor([[start_of(special)] + text[:-1]])).logits[0]
        expected = logits.log_softmax(-1)[range(len(text)), text].numpy()
        difference = max(difference, abs(numpy.array(result.log_probs) - expected).max())
    print(f"  CTranslate2: logarithms of probabilities {difference:.1e} apart", flush=True)


def compare_extended(build_directory, run_directory, model, pairs, special, text):
    """Models with more pieces: the logits of the old ones, and the ids of texts with new ones; NLLB: a language."""
    heddle, grown = build_directory + "/apps/heddle", run_directory + ".grown"
    pieces = ["<2gsw>", "<law>"]
    language = ["--language", "gsw_Latn"] if model.config.model_type == "m2m_100" else []
    run(heddle, "extend-vocabulary", run_directory, "--piece", pieces[0], "--piece", pieces[1], "--out", grown,
        *language)
    run(heddle, "export", grown, "--out", grown + ".back")
    again = type(model).from_pretrained(grown + ".back").eval().float()
    before, after = (logits_of(each, special, pairs) for each in (model, again))
    apart = distance(after[:, :before.shape[1]], before)
    tokenizer = transformers.AutoTokenizer.from_pretrained(grown + ".back")
    with open(text, encoding="utf-8") as file:
        lines = [f"{pieces[n % 2]} {line.strip()}" for line, n in zip(file, range(SEQUENCES))]
    equal = sum(ours == tokenizer(line, add_special_tokens=False).input_ids
                for (ours, _), line in zip(token_ids(build_directory, grown + ".back", lines), lines, strict=True))
    print(f"  with {len(pieces)} more pieces: logits {apart:.1e} apart, "
          f"{tokenizer.convert_tokens_to_ids(pieces)} of {after.shape[1]} ids, {equal} of {len(lines)} texts have "
          "transformers' ids", flush=True)
    if language:
        tokenizer.src_lang = language[1]
        print(f"    the new language is id {after.shape[1] - 1}, transformers' texts in it begin with "
              f"{tokenizer(lines[0]).input_ids[0]}", flush=True)


def compare(family, build_directory, text, work):
    heddle = build_directory + "/apps/heddle"
    theirs = f"{work}/{family}"
    model, special = build(family, text, theirs)
    run(heddle, "import", theirs, "--out", theirs + ".run")
    draw = drawn_ids(special)
    pairs = [(draw(), draw()) for _ in range(SEQUENCES)]
    expected = logits_of(model, special, pairs)
    found = numpy.frombuffer(model_logits(build_directory, theirs + ".run", pairs), numpy.float32).reshape(expected.shape)
    best = (found.argmax(-1) == expected.argmax(-1)).mean()
    equal = "no"
    if not is_encoder(model):
        ours = greedy_ids(build_directory, theirs + ".run", pairs, TOKENS)
        equal = sum(one == other for one, other in zip(ours, greedy_of(model, special, pairs)))
    run(heddle, "export", theirs + ".run", "--out", theirs + ".back")
    again = type(model).from_pretrained(theirs + ".back").eval().float()
    old, new = (safetensors.torch.load_file(f"{each}/model.safetensors") for each in (theirs, theirs + ".back"))
    same = sum(name in new and torch.equal(old[name], new[name]) for name in old)
    print(f"{family:15} logits {distance(found, expected):.1e} apart, {100 * best:.1f} % of the likeliest tokens equal, "
          f"{equal} of {len(pairs)} greedy outputs; back: "
          f"{same} of {len(old)} tensors equal, logits {distance(logits_of(again, special, pairs), expected):.1e} apart", flush=True)
    if family in EXTENDED:
        compare_extended(build_directory, theirs + ".run", model, pairs, special, text)
    if family in REFUSED:
        print("  CTranslate2: " + refusal(heddle, "export", theirs + ".run", "--format", "ctranslate2", "--out",
                                          theirs + ".refused"), flush=True)
    elif model.config.is_encoder_decoder:
        compare_ctranslate2(heddle, theirs + ".run", model, special, [(draw(), draw()) for _ in range(TRANSLATIONS)])
    elif not is_encoder(model):
        compare_generator(heddle, theirs + ".run", model, special, [draw() for _ in range(TRANSLATIONS)])


main = for_each(__doc__, compare, FAMILIES)
