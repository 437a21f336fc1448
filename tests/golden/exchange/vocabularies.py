"""Writes sentencepiece_*: small SentencePiece models, vocab.json files, lines, and the lines' ids in other systems.

usage: python vocabularies.py TEXT.en TEXT.de     (pip: sentencepiece, transformers; texts: Multi30k's training part)

Ids of T5 and fairseq (NLLB, mBART, XLM-R) are SentencePiece's own, mapped as fairseq and the slow tokenizers of Hugging
Face do; Marian's and M2M100's are those of MarianTokenizer and M2M100Tokenizer of Hugging Face.
"""
import collections
import io
import json
import os
import sys

import sentencepiece
from transformers import M2M100Tokenizer, MarianTokenizer

FOLDER = os.path.dirname(os.path.abspath(__file__))

ODD_LINES = [
    "", " ", "  two  spaces  ", "Straße", "ein Fußball in der Straße", "ß", "ßß", "a ß b", "日本", "日", "日 日本 日本語",
    "Съешь же ещё этих мягких булок", "Ξεσκεπάζω την ψυχοφθόρα", "نص حكيم له سر", "דג סקרן שט בים", "ऋषियों को सताने",
    "นายสังฆภัณฑ์", "色は匂へど 散りぬるを", "다람쥐 헌 쳇바퀴에", "天地玄黃", "😀 man 👩‍👩‍👧‍👦 dog", "🇩🇪", "❤️",
    "a\x01b", "\x1b[0m man", "tab\tbetween", "a\u200bb", "\ufeffman", "é or é", "\u00a0dog\u3000", "▁", "▁▁man ▁ dog",
    "3.14 % 100", "http://a.b/c?d=e", "C++ && <b>", "aaaaaaaaaaaaaaaa", "ﬁne ＡＢＣ", "Zwölf Boxkämpfer",
]


def path(name):
    return os.path.join(FOLDER, "sentencepiece_" + name)


def train(name, lines, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, minloglevel=2, num_threads=1,
        normalization_rule_name="identity", **options)
    with open(path(name + ".model"), "wb") as file:
        file.write(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def write_vocabulary(name, texts):
    with open(path(name), "w", encoding="utf-8") as file:
        json.dump({text: index for index, text in enumerate(texts)}, file, ensure_ascii=False)


def seen(processor, lines):
    """The pieces that lines are segmented into: a vocabulary that is made from texts lacks the others."""
    count = collections.Counter(piece for line in lines for piece in processor.encode(line, out_type=str))
    return [piece for piece, _ in count.most_common()]


def write_ids(name, ids):
    with open(path(name + ".ids"), "w") as file:
        file.writelines(" ".join(map(str, line)) + "\n" for line in ids)


def main():
    english, german = ([line.rstrip("\n") for line in open(text, encoding="utf-8")][:3000] for text in sys.argv[1:])
    fairseq = dict(unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
    t5 = train("t5", english + german, model_type="unigram", vocab_size=300, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    bpe = train("bpe", english + german, model_type="bpe", vocab_size=300, **fairseq)
    bytes_ = train("bytes", english + german, model_type="bpe", vocab_size=450, byte_fallback=True, **fairseq)
    source = train("source", english, model_type="unigram", vocab_size=200, **fairseq)
    target = train("target", german, model_type="unigram", vocab_size=200, **fairseq)

    lines = english[:10] + german[:10] + ODD_LINES
    with open(path("lines.txt"), "w", encoding="utf-8", newline="") as file:
        file.writelines(line + "\n" for line in lines)

    write_ids("t5", [t5.encode(line) for line in lines])
    for name, processor in ("bpe", bpe), ("bytes", bytes_):
        write_ids(name, [[index + 1 if index else 3 for index in processor.encode(line)] for line in lines])

    few = seen(source, english[10:30]) + seen(target, german[10:30]) + ["ß", "日本", "日"]
    write_vocabulary("marian.json", list(dict.fromkeys(["</s>", "<unk>", *few, ">>deu<<", "<pad>"])))
    marian = MarianTokenizer(path("source.model"), path("target.model"), path("marian.json"))
    write_ids("source", [marian(line, add_special_tokens=False)["input_ids"] for line in lines])
    write_ids("target", [marian(text_target=line, add_special_tokens=False)["input_ids"] for line in lines])

    write_vocabulary("m2m100.json", ["<s>", "<pad>", "</s>", "<unk>", *seen(bpe, english[:200])])
    m2m100 = M2M100Tokenizer(path("m2m100.json"), path("bpe.model"))
    write_ids("m2m100", [m2m100(line, add_special_tokens=False)["input_ids"] for line in lines])


main()
