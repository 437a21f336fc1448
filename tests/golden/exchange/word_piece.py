"""Writes word_piece_*: small WordPiece vocabularies, lines, and the lines' ids and texts in Hugging Face's tokenizers.

usage: python word_piece.py TEXT.en TEXT.de     (pip: tokenizers; texts: Multi30k's training part)

The tokenizers are built as transformers builds those of BERT, uncased and cased. Special tokens in a text are text
(encode_special_tokens), as in Heddle.
"""
import json
import os
import sys

from byte_level import ODD_LINES, read
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import WordPiece

FOLDER = os.path.dirname(os.path.abspath(__file__))
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ADDED = ["<Tool>", "<tool>s"]  # not special: read from a text before its words are
NAMES = ["uncased", "cased"]

BERT_LINES = [
    "[CLS] a [SEP] [MASK] [UNK] ##ing # ##", "a<Tool>b <tool>s <TOOL> <tool>", "\u0130stanbul I\u0307 \u1e9e \u01c5 \u00df",
    "ΟΔΟΣ ΣΑΣ ς", "\u166dx\u1734y\u1885z\u1886\ua9bdk\ua9bd \U000111c9a", "\u0640 \u302e\u302f\U0001d165 e\u0323\u0301",
    "a\u200bb\u00adc\u2060d\ufeffe \u180e \ue000f\U000f0000g\U0010fffdh", "x" * 99, "x" * 100, "x" * 101, "\u00e9" * 60 + "\u0301" * 60,
    "\U0001f970\U0001f90c\U0001fae0 \U0001f600\U0001f600man", "天地a玄黃\u3007\u3400\U00020000\U0002b820\uf900かな한글", "a.b,c!d?e'f\"g",
    "don't do not can't 's 've 're . , ! ?", "\u00a1\u00bf\u2014\u2026\u00ab\u00bb$+<=>^`|~\u20ac\u00a7", "\u2e43\u0c77 \ua7d8 \u10a0\u13a0\uab70",
    "a\x00b\ufffdc \x85d\x0be\x0cf", "nai\u0308ve cafe\u0301 \u1ea4\u1edf \u0915\u093f\u0902 \u05e9\u05c1\u05b8",
]


def build(name, vocabulary_size, lines):
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=name == "uncased")
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(lines, trainers.WordPieceTrainer(
        vocab_size=vocabulary_size, special_tokens=SPECIAL, show_progress=False))
    tokenizer.add_tokens([AddedToken(text, normalized=text.islower()) for text in ADDED])
    return tokenizer


def write(name, text):
    with open(os.path.join(FOLDER, "word_piece_" + name), "w", encoding="utf-8", newline="") as file:
        file.write(text)


def main():
    english, german = ([line.rstrip("\n") for line in open(text, encoding="utf-8")][:3000] for text in sys.argv[1:])
    lines = english[:8] + german[:8] + ODD_LINES + BERT_LINES
    write("lines.txt", "".join(line + "\n" for line in lines))
    for name in NAMES:
        tokenizer = build(name, 600, english + german + ODD_LINES * 3 + BERT_LINES)
        ids, texts = read(tokenizer, lines)
        write(name + ".json", json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")))
        write(name + ".ids", "".join(" ".join(map(str, line)) + "\n" for line in ids))
        write(name + ".txt", "".join(text + "\n" for text in texts))


if __name__ == "__main__":
    main()
