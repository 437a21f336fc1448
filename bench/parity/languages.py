"""Compares sources and greedy outputs of imported models with transformers', from text to ids.

    python3 bench/parity languages BUILD TEXT [KIND...]

Each kind of tokenizer gets a vocabulary trained on TEXT, of which 200 lines are translated. Printed is how many sources
have the ids that transformers' tokenizer gives them, with language tokens, prefixes and suffixes, and how many greedy outputs are
those of transformers' `generate`.
"""
import os

import models
import programs
import torch
import transformers
from transformers.models.m2m_100 import tokenization_m2m_100
from transformers.models.mbart import tokenization_mbart
from transformers.models.mbart50 import tokenization_mbart50

LINES = 200
TOKENS = 24


def m2m100(text, directory):
    """fairseq's dictionary: <s> <pad> </s> <unk>, then the pieces in an order of its own."""
    pieces = models.train_pieces(text, directory + "/sentencepiece.bpe")
    names = [pieces.id_to_piece(id) for id in range(3, models.PIECES)][::-1]
    names = ["<s>", "<pad>", "</s>", "<unk>"] + names
    programs.write(directory + "/vocab.json", {name: id for id, name in enumerate(names)})
    first = len(names)
    names = [f"__{name}__" for name in tokenization_m2m_100.FAIRSEQ_LANGUAGE_CODES["m2m100"]]
    added = {str(first + n): {"content": name, "special": True} for n, name in enumerate(names)}
    programs.write(directory + "/tokenizer_config.json", {"tokenizer_class": "M2M100Tokenizer",
                                                        "added_tokens_decoder": added})
    return pieces, dict(vocab_size=first + len(names) + 8, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2)


def opus(text, directory):
    pieces, special = models.marian_vocabulary(text, directory)
    ids = {pieces.id_to_piece(id): id for id in range(models.PIECES)}
    ids.update({">>deu<<": models.PIECES, ">>fra<<": models.PIECES + 1, "<pad>": models.PIECES + 2})
    programs.write(directory + "/vocab.json", ids)
    pad = models.PIECES + 2
    return pieces, dict(special, vocab_size=pad + 1, pad_token_id=pad, decoder_start_token_id=pad)


def bart(text, directory):
    tokenizer, special = models.bart_vocabulary(text, directory)
    tokenizer.save_model(directory)
    os.remove(directory + "/tokenizer.json")
    programs.write(directory + "/tokenizer_config.json", {"tokenizer_class": "BartTokenizer"})
    return tokenizer, dict(special, vocab_size=models.PIECES)


def gemma(text, directory):
    pieces = models.train_pieces(text, directory + "/tokenizer", model_type="bpe", byte_fallback=True, pad_id=0, eos_id=1,
                                 bos_id=2, unk_id=3, pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>",
                                 add_dummy_prefix=False, remove_extra_whitespaces=False,
                                 normalization_rule_name="identity")
    programs.write(directory + "/tokenizer_config.json",
                 {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "add_eos_token": True})
    return pieces, dict(vocab_size=models.PIECES, bos_token_id=2, eos_token_id=1, pad_token_id=0,
                        decoder_start_token_id=2)


MBART = dict(models.FAIRSEQ, scale_embedding=True)
M2M = dict(models.FAIRSEQ, activation_function="relu")
MARIAN = models.FAMILIES["marian"][3]
# The family, the vocabulary, sizes, languages of the options, and settings of `generate`.
KINDS = {
    "nllb": ("nllb", models.fairseq("NllbTokenizer", ["deu_Latn", "eng_Latn", "fra_Latn"], model_type="bpe"), M2M,
             ("eng_Latn", "fra_Latn"), {}),
    "m2m100": ("nllb", m2m100, M2M, ("en", "de"), {}),
    "mbart-50": ("mbart", models.fairseq("MBart50Tokenizer", tokenization_mbart50.FAIRSEQ_LANGUAGE_CODES), MBART,
                 ("en_XX", "ro_RO"), {}),
    "mbart": ("mbart", models.fairseq("MBartTokenizer", tokenization_mbart.FAIRSEQ_LANGUAGE_CODES), MBART,
              ("en_XX", "de_DE"), {}),
    "bart": ("bart", bart, models.FAIRSEQ, ("", ""), {}),
    "bart-forced": ("bart", bart, models.FAIRSEQ, ("", ""),
                    dict(forced_bos_token_id=0, begin_suppress_tokens=list(range(5, 90)),
                         bad_words_ids=[[n, n] for n in range(4, 200)])),
    "opus-mt": ("marian", opus, MARIAN, ("", "deu"), "bad_words"),
    "t5": ("t5", models.t5_vocabulary, models.T5, ("", ""), {}),
    "t5gemma": ("t5gemma", gemma, models.FAMILIES["t5gemma"][3], ("", ""), {}),
}


def sharpen(model):
    """Larger weights, so that outputs differ from each other and seldom repeat a token."""
    for name, value in model.named_parameters():
        if value.dim() == 2 and "layer" in name and "norm" not in name:
            value.data *= 8


def settings_of(special, kind, tokenizer):
    """Generation settings as a model's files have them, and as a call adds them."""
    source, target = KINDS[kind][3]
    stored = KINDS[kind][4]
    if stored == "bad_words":
        stored = dict(bad_words_ids=[[special["pad_token_id"]], [7, 8]])
    if kind == "mbart":
        return stored, dict(decoder_start_token_id=tokenizer.convert_tokens_to_ids(target))
    if target and kind != "opus-mt":
        name = f"__{target}__" if kind == "m2m100" else target
        return stored, dict(forced_bos_token_id=tokenizer.convert_tokens_to_ids(name))
    return stored, {}


def tokenizer_of(kind, directory):
    source, target = KINDS[kind][3]
    names = dict(src_lang=source, tgt_lang=target) if source else {}
    name = {"nllb": "NllbTokenizer", "m2m100": "M2M100Tokenizer", "mbart-50": "MBart50Tokenizer",
            "mbart": "MBartTokenizer", "opus-mt": "MarianTokenizer", "t5": "T5Tokenizer",
            "t5gemma": "GemmaTokenizer"}.get(kind, "BartTokenizer")
    if kind == "m2m100":
        names["vocab_file"] = directory + "/vocab.json"
        names["spm_file"] = directory + "/sentencepiece.bpe.model"
    return getattr(transformers, name).from_pretrained(directory, **names)


def compare(kind, build_directory, text, work):
    family, vocabulary, sizes, (source, target), _ = KINDS[kind]
    directory = f"{work}/{kind}"
    model_class, config_class = models.FAMILIES[family][:2]
    models.FAMILIES[kind] = (model_class, config_class, vocabulary, sizes)
    model, special = models.build(kind, text, directory)
    sharpen(model)
    model.save_pretrained(directory)
    tokenizer = tokenizer_of(kind, directory)
    stored, call = settings_of(special, kind, tokenizer)
    special_ids = {key: special[key] for key in special if key.endswith("token_id")}
    config = transformers.GenerationConfig(**special_ids, **stored)
    config.save_pretrained(directory)
    programs.run(build_directory + "/apps/heddle", "import", directory, "--out", directory + ".run")
    with open(text, encoding="utf-8") as file:
        lines = [line.strip() for line in file if 4 < len(line.split()) < 14][:LINES]
    found = programs.run(build_directory + "/bench/bench_model_logits", directory + ".run", str(TOKENS), source, target,
                       stdin="".join(line + "\n" for line in lines).encode()).decode().splitlines()
    sources = outputs = 0
    distinct = set()
    for line, ours in zip(lines, found, strict=True):
        inputs = tokenizer(f">>deu<< {line}" if kind == "opus-mt" else line, return_tensors="pt").input_ids
        start = 2 if "forced_bos_token_id" in {**stored, **call} else 1
        with torch.no_grad():
            ids = model.generate(inputs, generation_config=config, num_beams=1, do_sample=False,
                                 max_new_tokens=TOKENS + start - 1, **call)[0].tolist()[start:]
        ids = ids[:ids.index(special["eos_token_id"])] if special["eos_token_id"] in ids else ids
        distinct.update(ids)
        of_source, of_output = (list(map(int, side.split())) for side in ours.split("|"))
        sources += of_source == inputs[0].tolist()
        outputs += of_output == ids
    print(f"{kind:12} {sources} of {len(lines)} sources, {outputs} of {len(lines)} greedy outputs "
          f"({len(distinct)} tokens) equal", flush=True)


main = models.for_each(__doc__, compare, KINDS)
