"""Compares byte-level BPE and WordPiece tokenizers of Hugging Face's tokenizers with Heddle's: ids and decoded texts of
10,000 texts.

    python3 bench/parity tokenization BUILD TEXT.en TEXT.de

The tokenizers are those of
tests/golden/exchange/byte_level.py and word_piece.py with 8,000 pieces, trained on both texts and from made ones, and
are read from tokenizer.json, and from vocab.json and merges.txt or vocab.txt by transformers' own classes. The texts are 4,000 lines and 6,000
made ones: words of ten scripts, emoji, control characters, broken spaces, contractions, digits, special tokens, and
any character of Unicode (as far as Python has it: a newer letter is none for an older ICU).
"""
import json
import os
import random
import sys
import tempfile
import unicodedata

import byte_level
import transformers
import word_piece
from programs import token_ids, write
from tokenizers import Tokenizer

WORDS = """Съешь же ещё этих мягких французских булок Ξεσκεπάζω την ψυχοφθόρα βδελυγμία Τάχιστη αλώπηξ نص حكيم له سر قاطع
١٢٣ ٤٥٦٧ דג סקרן שט בים שָׁלוֹם עֲלֵיכֶם ऋषियों को सताने वाले दुष्ट राक्षसों १२३ नायक นายสังฆภัณฑ์ ผู้เฒ่าซึ่งมีอาชีพ ฃวด
色は匂へど 散りぬるを カタカナ ﾊﾝｶｸ ガギグゲゴ が ぱ 다람쥐 헌 쳇바퀴에 각 한 天地玄黃，宇宙洪荒。 〇一二三 ㊀ 𠀀𠮷
Nguyễn Đình Chiểu tiếng Việt Ắ ự ộ""".split()
KINDS = [
    WORDS, WORDS, WORDS,
    ["😀", "👩‍👩‍👧‍👦", "🇩🇪", "🇫🇷🇯🇵", "❤️", "👍🏽", "🏳️‍🌈", "1️⃣", "©", "™️", "🐶🐶🐶"],
    [chr(code) for code in range(32)] + ["\x7f", "\x80", "\x9f", "\u200d", "\u200e", "\u202e", "\ufffd", "\ue000"],
    ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'VE", "'LL", "'rE", "'ſ", "’s", "''", "n't"],
    ["1", "12", "123", "1234", "12345", "3.14", "1,000", "٣٤٥", "½", "Ⅷ", "²", "x2", "2x", "㉑", "00000000"],
    ["!", "...", "---", "?!", "&&", "<b>", "$%", "()", "{}", "@#", "//", "\\", '"', "«»", "。", "¿", "_x", "€", "→"],
    sum(byte_level.SPECIAL.values(), []) + sum(byte_level.ADDED.values(), []) + ["<tool_", "Ġ", "▁"],
    word_piece.SPECIAL + word_piece.ADDED + ["##", "#", "##s", "İ", "ΟΔΟΣ", "x" * 99, "x" * 101, "é" * 101],
]
SPACES = [" ", "  ", "   ", "\t", "\t\t ", " \t", "\u00a0", "\u2003", "\u3000", "\u2028", "\u2029", "\u200b", "\ufeff", "\r",
          "\r\n", "\n", "\n\n", " \n ", "\x0b", "\x0c", "\x85", "\x1c", "\x1f", " " * 9, "\u1680", "\u180e", "\u202f"]
CLASSES = {"bart": "BartTokenizer", "qwen2": "Qwen2Tokenizer"}


def any_character():
    """One that Python's Unicode has: a letter that is newer than ICU's is none for it."""
    while True:
        character = chr(random.choice([random.randrange(0x80, 0x3000), random.randrange(0x3000, 0xd800),
                                       random.randrange(0xe000, 0x30000), random.randrange(0x10000, 0x110000)]))
        if unicodedata.category(character) != "Cn":
            return character


def made_text(lines):
    parts = []
    for _ in range(random.randrange(14)):
        kind = random.choice([*KINDS, "line", "character", "marks"])
        if kind == "line":
            parts.append(random.choice(random.choice(lines).split()))
        elif kind == "character":
            parts.append(any_character())
        elif kind == "marks":
            parts.append(random.choice("aeoucnAE") + "".join(chr(random.randrange(0x300, 0x370)) for _ in range(2)))
        else:
            parts.append(random.choice(kind))
        if random.random() < 0.7:
            parts.append(random.choice(SPACES) if random.random() < 0.4 else " ")
    return "".join(parts)


def write_config(directory, name, tokenizer):
    os.makedirs(directory)
    end = tokenizer.token_to_id(byte_level.SPECIAL[name][2])
    write(directory + "/config.json", {"model_type": "bart" if name == "bart" else "llama", "eos_token_id": end,
                                       "vocab_size": tokenizer.get_vocab_size()})


def by_class(directory, name, tokenizer):
    """The directory's tokenizer as transformers' class makes it of vocab.json and merges.txt, which are written."""
    document = json.loads(tokenizer.to_str())
    write(directory + "/vocab.json", document["model"]["vocab"])
    with open(directory + "/merges.txt", "w", encoding="utf-8") as file:
        file.write("#version: 0.2\n" + "".join(" ".join(merge) + "\n" for merge in document["model"]["merges"]))
    added = {str(token.pop("id")): token for token in document["added_tokens"]}
    special = dict(eos_token=byte_level.SPECIAL[name][2])
    if name == "bart":
        special.update(bos_token="<s>", pad_token="<pad>", unk_token="<unk>", mask_token="<mask>")
    write(directory + "/tokenizer_config.json",
          {"tokenizer_class": CLASSES[name], "added_tokens_decoder": added, "add_prefix_space": name == "bart", **special})
    return getattr(transformers, CLASSES[name]).from_pretrained(directory).backend_tokenizer


def by_word_pieces(directory, name, tokenizer):
    """The directory's tokenizer as transformers' class makes it of vocab.txt, which is written."""
    tokenizer.model.save(directory)
    added = [token for token in json.loads(tokenizer.to_str())["added_tokens"] if not token["special"]]
    write(directory + "/tokenizer_config.json",
          {"tokenizer_class": "BertTokenizer", "do_lower_case": name == "uncased",
           "added_tokens_decoder": {str(token.pop("id")): token for token in added}})
    return transformers.BertTokenizer.from_pretrained(directory).backend_tokenizer


def write_bert_config(directory, tokenizer):
    os.makedirs(directory)
    write(directory + "/config.json", {"model_type": "bert", "vocab_size": tokenizer.get_vocab_size()})


def compare(build, name, directory, tokenizer, texts):
    ids, decoded = byte_level.read(tokenizer, texts)
    found = token_ids(build, directory, texts)
    assert len(found) == len(texts)
    print(f"{name}: of {len(texts)} texts {sum(one[0] != ids_ for one, ids_ in zip(found, ids))} have other ids, "
          f"{sum(one[1] != text for one, text in zip(found, decoded))} are decoded otherwise", flush=True)


def main(arguments):
    if len(arguments) != 3:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    random.seed(7)
    texts = [[line.rstrip("\n") for line in open(path, encoding="utf-8")] for path in arguments[1:]]
    lines = texts[0] + texts[1]
    corpus = lines + [made_text(lines) for _ in range(9000)]
    probe = texts[0][-2000:] + texts[1][-2000:] + [made_text(lines) for _ in range(6000)]
    with tempfile.TemporaryDirectory() as work:
        for name in byte_level.SPECIAL:
            tokenizer = byte_level.build(name, 8000, corpus)
            directory = f"{work}/{name}"
            write_config(directory, name, tokenizer)
            tokenizer.save(directory + "/tokenizer.json")
            compare(arguments[0], name, directory, Tokenizer.from_file(directory + "/tokenizer.json"), probe)
            if name in CLASSES:
                write_config(directory + ".merges", name, tokenizer)
                compare(arguments[0], CLASSES[name], directory + ".merges",
                        by_class(directory + ".merges", name, tokenizer), probe)
        for name in word_piece.NAMES:
            tokenizer = word_piece.build(name, 8000, corpus)
            directory = f"{work}/{name}"
            write_bert_config(directory, tokenizer)
            tokenizer.save(directory + "/tokenizer.json")
            compare(arguments[0], f"WordPiece, {name}", directory, tokenizer, probe)
            write_bert_config(directory + ".pieces", tokenizer)
            compare(arguments[0], f"BertTokenizer, {name}", directory + ".pieces",
                    by_word_pieces(directory + ".pieces", name, tokenizer), probe)
