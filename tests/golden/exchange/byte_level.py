"""Writes byte_level_*: small byte-level BPE vocabularies, lines, and the lines' ids and texts in Hugging Face's tokenizers.

usage: python byte_level.py TEXT.en TEXT.de     (pip: tokenizers; texts: Multi30k's training part)

The tokenizers are built as transformers builds those of BART (GPT-2's words), Llama 3 and Qwen 2. Special tokens in a
text are text (encode_special_tokens), as in Heddle.
"""
import json
import os
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers.models import BPE

FOLDER = os.path.dirname(os.path.abspath(__file__))

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)"
         r"|\s+")
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

SPECIAL = {
    "bart": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
    "llama3": ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"],
    "qwen2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
}
# Not special: read from a text before its words are.
ADDED = {"bart": [], "llama3": [], "qwen2": ["<tool_call>", "</tool_call>", "<tool_call>s", "<e\u0301>"]}

ODD_LINES = [
    "", " ", "  ", "   two  spaces  ", "tab\tbetween \t words\t", " \u00a0 \u3000 x \u2028y\u2029", "a\u200bb \u200d",
    "\ufeffman", "a\x01b\x1b[0m\x7f \x85x\x1c\x1f y", "end of line\r", "a\r\r b \r", "\x0b \x0c x",
    "I'm you're it's he'd we'll they've don't", "I'M YOU'RE IT'S HE'D WE'LL THEY'VE DON'T", "'s 'S 'tis ''s '\u017f",
    "1 12 123 1234 12345678 3.14 1,000,000 \u0663\u0664 \u00bd \u2167 x2y 2nd", "C++ && <b>!!!??? ... --- $%^&*()_+",
    "http://a.b/c?d=e#f_g", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "Stra\u00dfe \u1e9e", "\u00e9 or e\u0301 or \u00e8\u0323 or \u1ec7", "\ufb01ne \uff21\uff22", "\u212b \u2126 \u1100\u1161",
    "Съешь же ещё этих мягких булок", "Ξεσκεπάζω την ψυχοφθόρα", "نص حكيم له سر قاطع", "דג סקרן שט בים",
    "ऋषियों को सताने वाले", "นายสังฆภัณฑ์ เฮงพิทักษ์ฝั่ง", "色は匂へど 散りぬるを", "다람쥐 헌 쳇바퀴에", "天地玄黃，宇宙洪荒。",
    "\U0001f600 man \U0001f469\u200d\U0001f469\u200d\U0001f467 dog\U0001f436\U0001f436", "\U0001f1e9\U0001f1ea \u2764\ufe0f",
    "\U00020000\U0001d54f\U0010ffff\ufffd", "<s> a </s> <mask> <|endoftext|> <|begin_of_text|>x<|eot_id|>",
    "<tool_call>a</tool_call> <tool_call>s <tool_call", "<e\u0301> <\u00e9>", "a<tool_call>b\u0301<tool_call>\u0301c",
]


def build(name, vocabulary_size, lines):
    tokenizer = Tokenizer(BPE(ignore_merges=name == "llama3"))
    if name == "bart":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        if name == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
        pattern = Regex(QWEN2 if name == "qwen2" else LLAMA3)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(pattern, behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    first = SPECIAL[name] if name == "bart" else []
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=vocabulary_size, special_tokens=first, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL[name]])
    tokenizer.add_tokens([AddedToken(text, normalized="e\u0301" in text) for text in ADDED[name]])
    if name == "bart":
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return tokenizer


def read(tokenizer, lines):
    """The ids of each line, and the text of these."""
    tokenizer.encode_special_tokens = True
    ids = [tokenizer.encode(line, add_special_tokens=False).ids for line in lines]
    return ids, [tokenizer.decode(line) for line in ids]


def write(name, text):
    with open(os.path.join(FOLDER, "byte_level_" + name), "w", encoding="utf-8", newline="") as file:
        file.write(text)


def main():
    english, german = ([line.rstrip("\n") for line in open(text, encoding="utf-8")][:3000] for text in sys.argv[1:])
    lines = english[:8] + german[:8] + ODD_LINES
    write("lines.txt", "".join(line + "\n" for line in lines))
    for name in SPECIAL:
        tokenizer = build(name, 480, english + german)
        ids, texts = read(tokenizer, lines)
        write(name + ".json", json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")))
        write(name + ".ids", "".join(" ".join(map(str, line)) + "\n" for line in ids))
        if name == "qwen2":  # the others keep texts as they are
            write(name + ".txt", "".join(text + "\n" for text in texts))
        else:
            assert texts == lines


if __name__ == "__main__":
    main()
