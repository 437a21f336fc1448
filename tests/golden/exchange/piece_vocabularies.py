"""Writes pieces_*: small tokenizers whose pieces are of characters, as transformers 5 saves them (tokenizer.json only),
lines, and the lines' ids and texts in transformers.

usage: PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python python piece_vocabularies.py TEXT.en TEXT.de
(pip: transformers 5, sentencepiece, protobuf; texts: Multi30k's training part)

As in Heddle, special tokens in a text are text: encode_special_tokens, and in unigram models, which would find the
special pieces of their own, other names for these.
"""
import io
import json
import os
import sys
import tempfile

import sentencepiece
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

FOLDER = os.path.dirname(os.path.abspath(__file__))

# A small map of characters in place of nmt_nfkc, whose precompiled form has 300 KB.
RULES = {"e\u0301": "é", "a\u0308": "ä", "\ufb01": "fi", "\u00a0": " ", "\u3000": " ", "\u200b": " ", "\t": " ", "\r": " ",
         "\u00b4": " \u0301", "\u2460": "1", "\u0301": "'", "\x01": "", "\ufeff": "", "a\u0308\u0301": "ǟ"}
RULES.update({chr(0xff21 + i): chr(ord("A") + i) for i in range(6)})

LINES = [
    "", " ", "  ", "   two  spaces  ", "tab\tbetween \t words\t", " \u00a0 \u3000 x \u2028y\u2029", "a\u200bb \u200d",
    "\ufeffman", "\x01man a\x01b\x1b[0m\x7f \x85x", "end of line\r", "a\r\r b \r",
    "e\u0301 a\u0308 a\u0308\u0301 \ufb01\u0301 x\u0301", "\ufb01ne \uff21\uff22\uff23 \uff24og", "\u2460\u20e3 man\u00b4s",
    "Straße ẞ ISTANBUL İ", "日本語 日", "Съешь же ещё", "नमस्ते", "😀 man 👩‍👩‍👧‍👦 dog🐶🐶", "\U0010ffff\ue000\ufffd",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ab ab ab ababababab", "▁", "▁▁man ▁ dog ▁▁▁x",
    "</s> a <s> <unk>b <pad> <mask> <extra_id_0>", "eng_Latn man deu_Latn", "<0x41>B <0xC3>", "<tool>a <tool> b<tool>",
    "[A]x [A] x[A]y", "  <left> a  <left>b", "a <right>  b<right>\t c", "1 12 1,234 ½ x2y", "C++ && <b>!!! ... --- _a_",
    "don't we'll", "MAN Dog ÉTÉ été e\u0301te\u0301",
]


def train(lines, **options):
    """A file of a SentencePiece model."""
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as rules:
        if options.pop("rules", False):
            for source, target in RULES.items():
                rules.write("\t".join(" ".join(f"{ord(letter):X}" for letter in text) for text in (source, target)) + "\n")
            rules.flush()
            options["normalization_rule_tsv"] = rules.name
        else:
            options["normalization_rule_name"] = "identity"
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, minloglevel=2,
                                                 num_threads=1, vocab_size=options.pop("size", 280), **options)
    file = tempfile.NamedTemporaryFile(suffix=".model", delete=False)
    file.write(model.getvalue())
    file.close()
    return file.name


def of_class(name, model, **options):
    kind = getattr(transformers, name)
    return kind(**kind.convert_to_native_format(vocab_file=model, **options)).backend_tokenizer


def with_steps(lines):
    """Steps that no known family has together."""
    words = sorted({letter for line in lines + LINES for letter in line if letter.isprintable()})
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0)] + [(word, -4.0) for word in words if word != "_"]
                                         + [("man", -3.0), ("an", -3.5), ("▁man", -3.25)], 0, False))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace("``", '"'), normalizers.Replace(Regex("n't"), " not"),
        normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip(left=True, right=True)])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Split("b", "merged_with_next"),
        pre_tokenizers.Split(Regex("[gt]+"), "contiguous"), pre_tokenizers.Split(Regex("[^s]+"), "removed", invert=True),
        pre_tokenizers.CharDelimiterSplit("u"), pre_tokenizers.Metaspace(prepend_scheme="first")])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="never")
    tokenizer.add_special_tokens([AddedToken("<unk>")])
    tokenizer.add_tokens([AddedToken("[A]", single_word=True), AddedToken("<left>", lstrip=True),
                          AddedToken("<right>", rstrip=True, normalized=False), AddedToken("ÉTÉ", normalized=True)])
    return tokenizer


def first_only(model):
    """The steps of SentencePiece's own settings, as transformers makes them for a model without a class."""
    return of_class("TokenizersBackend", model, legacy=False)


def legacy_llama(tokenizer):
    """The tokenizer.json that Llama 2 was published with."""
    legacy = Tokenizer.from_str(tokenizer.to_str())
    legacy.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    legacy.pre_tokenizer = None
    return legacy


def read(tokenizer, lines):
    """The ids of each line, and the text of these."""
    document = json.loads(tokenizer.to_str())
    tokenizer.encode_special_tokens = True
    if document["model"]["type"] == "Unigram":
        special = {token["content"] for token in document["added_tokens"] if token["special"]}
        names = {}
        for index, piece in enumerate(document["model"]["vocab"]):
            if piece[0] in special:
                names[piece[0]] = piece[0] = f"\U0010fffd{index}"
        for token in document["added_tokens"]:
            token["content"] = names.get(token["content"], token["content"])
        document["post_processor"] = None
        tokenizer = Tokenizer.from_str(json.dumps(document))
        tokenizer.encode_special_tokens = True
    ids = [tokenizer.encode(line, add_special_tokens=False).ids for line in lines]
    return ids, [tokenizer.decode(line, skip_special_tokens=True) for line in ids]


def write(name, text):
    with open(os.path.join(FOLDER, "pieces_" + name), "w", encoding="utf-8", newline="") as file:
        file.write(text)


def main():
    english, german = ([line.rstrip("\n") for line in open(text, encoding="utf-8")][:3000] for text in sys.argv[1:])
    texts = english + german
    fairseq = dict(unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
    t5 = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    kept = dict(allow_whitespace_only_pieces=True, remove_extra_whitespaces=False, byte_fallback=True, size=450)
    unigram = train(texts, model_type="unigram", rules=True, **t5)
    llama = of_class("LlamaTokenizer", train(texts, model_type="bpe", **kept, **fairseq))
    gemma = train(texts, model_type="bpe", add_dummy_prefix=False, pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>",
                  eos_piece="<eos>", bos_piece="<bos>", user_defined_symbols=["<mask>", "<tool>", "▁▁", "\t"], **kept)
    tokenizers = {
        "t5": of_class("T5Tokenizer", unigram, extra_ids=3),
        "nllb": of_class("NllbTokenizer", train(texts, model_type="bpe", rules=True, **fairseq),
                         extra_special_tokens=["eng_Latn", "deu_Latn"]),
        "llama": llama,
        "llama2": legacy_llama(llama),
        "gemma": of_class("GemmaTokenizer", gemma),
        "first": first_only(train(texts, model_type="unigram", byte_fallback=True, rules=True, size=500, **t5)),
        "steps": with_steps(texts[:20]),
    }
    write("lines.json", json.dumps(LINES, ensure_ascii=False, indent=0) + "\n")
    for name, tokenizer in tokenizers.items():
        document = json.loads(tokenizer.to_str())
        write(name + ".json", json.dumps(document, ensure_ascii=False, separators=(",", ":")))
        ids, read_texts = read(tokenizer, LINES)
        write(name + ".ids.json", json.dumps([list(pair) for pair in zip(ids, read_texts)], ensure_ascii=False,
                                             separators=(",", ":")).replace("],[[", "],\n[["))


if __name__ == "__main__":
    main()
