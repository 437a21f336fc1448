"""Makes metrics.tsv, the golden values of tests/io/metrics/metrics_test.cpp, with sacreBLEU: python3 metrics.py > metrics.tsv

Lines, tab-separated, "\\n" and "\\t" inside a field written as \\n and \\t:
  token  TOKENIZER  SENTENCE  TOKENIZED
  bleu  CORPUS  TOKENIZER  BLEU-TEXT
  pair   CORPUS  HYPOTHESIS  REFERENCE
  score  CORPUS  BLEU-13A-TEXT  BLEU-NONE-TEXT  CHRF  CHRF++  TER
  two    CORPUS  BLEU  CHRF  CHRF++  TER: with a second reference, that of the next pair
  baseline  CORPUS  HYPOTHESIS
  resampled  CORPUS  METRIC  MEAN  HALF-WIDTH  P: by bootstrap, and beside the baseline
"""
import random

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
from sacrebleu.tokenizers.tokenizer_char import TokenizerChar
from sacrebleu.tokenizers.tokenizer_intl import TokenizerV14International
from sacrebleu.tokenizers.tokenizer_zh import TokenizerZh

TOKENIZERS = {"13a": Tokenizer13a(), "zh": TokenizerZh(), "char": TokenizerChar(), "intl": TokenizerV14International()}

SENTENCES = [
    "", " ", ".", "...", "a.b,c", "1,000.50 dollars", "1.", ".5", "5-4 is 1", "well-known", "a -- b", "He said: \"No!\"",
    "Tom's dog's (big) [brown] {old} <young> tail/paw", "&quot;quoted&quot; &amp;lt; &lt;b&gt; &amp;amp;", "<skipped>x<skipped>",
    "soft-\nware on two\nlines", "trailing space \u3000\t", "no\u00a0break\u2003space", "Stra\u00dfe, gr\u00fc\u00dfe. \u00c4pfel,\u00d6l",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002ok", "\u201eZitat\u201c \u2013 Strich\u2026", "3.14,15.x,.5,,6", "x.\u00e4,\u00f6.1", "100%", "a&b", "~`^_|\\@#$*+=;?",
    "U.S.A. vs. U.K.,", "\u00e9-1-2-\u00e9", "2-\u00e4", "emoji \U0001f600.\U0001f600", "\x1funit\x1eseparator", "e-mail: a.b@c.de", "'tis 'quoted' '90s",
 "\u2026 a.b\u20ac5.x", "  .lead \u2190", "\uff11\uff0e\uff15\u5143", "\u00bd.\u0663,x\u00ab1,5\u00bb\u00a75", "\u2000.\u2001.\u3041\u3000\u30ab.", "x\u0301.\u0301",
]

WORDS = ("ein zwei Mann Frau H\u00fcnde stra\u00dfe, l\u00e4uft steht rennt. schnell! 1,5 3-4 &quot;gut&quot; (rot) blau's der die das in auf \u2013 "
         "\u4f60\u597d").split()


def corpora():
    generator = random.Random(20261)
    def sentence(length):
        return " ".join(generator.choice(WORDS) for _ in range(length))
    def disturb(text, rate):
        words = [generator.choice(WORDS) if generator.random() < rate else word for word in text.split()]
        if words and generator.random() < rate:
            words.pop(generator.randrange(len(words)))
        return " ".join(words)
    for name, rate, count, low, high in (("close", 0.1, 60, 3, 20), ("middling", 0.4, 60, 3, 20), ("far", 0.85, 40, 1, 12),
                                         ("short", 0.3, 12, 1, 3), ("one", 0.2, 1, 9, 9)):
        references = [sentence(generator.randint(low, high)) for _ in range(count)]
        yield name, [disturb(text, rate) for text in references], references
    yield "cjk", ["\u4ed6\u8d70\u5f88\u5feb\u3002", "3.5\u5143\uff0c\u8c22\u8c22(\u60a8)!", "\u72ac\u304c\u8d70\u308b\u3002"], \
        ["\u4ed6\u8d70\u5f97\u5f88\u5feb\u3002", "3.5\u5143\uff0c\u8c22\u8c22\u4f60 (x)!", "\u72ac\u304c\u8d70\u3063\u305f\u3002"]
    yield "same", ["Der Mann l\u00e4uft schnell.", "Ja."], ["Der Mann l\u00e4uft schnell.", "Ja."]
    yield "nothing", ["xxx yyy", ""], ["aaa bbb ccc ddd eee", "f"]
    yield "empty", ["", ""], ["a b c d", "e"]
    yield "long", ["a b c d e f g h i j"] * 2, ["a b c", "d e f g h"]


def field(text):
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def main():
    for name, tokenizer in TOKENIZERS.items():
        for sentence in SENTENCES:
            print("token", name, field(sentence), field(" ".join(tokenizer(sentence.rstrip()).split())), sep="\t")
    for name, hypotheses, references in corpora():
        for hypothesis, reference in zip(hypotheses, references):
            print("pair", name, field(hypothesis), field(reference), sep="\t")
        scores = [str(BLEU(tokenize=tokenization).corpus_score(hypotheses, [references])) for tokenization in ("13a", "none")]
        others = [f"{metric.corpus_score(hypotheses, [references]).score:.10f}" for metric in metrics()[1:]]
        print("score", name, *scores, *others, sep="\t")
        for tokenization in ("zh", "char", "intl"):
            print("bleu", name, tokenization, BLEU(tokenize=tokenization).corpus_score(hypotheses, [references]), sep="\t")
        two = [references, references[1:] + references[:1]]
        print("two", name, *(f"{metric.corpus_score(hypotheses, two).score:.10f}" for metric in metrics()), sep="\t")
        if name in ("close", "middling"):
            resample(name, hypotheses, references)


def metrics():
    return [BLEU(), CHRF(), CHRF(word_order=2), TER()]


def resample(name, hypotheses, references):
    baseline = [" ".join(reversed(text.split())) if number % 5 == 0 else text for number, text in enumerate(hypotheses)]
    for hypothesis in baseline:
        print("baseline", name, field(hypothesis), sep="\t")
    for metric in metrics():
        score = metric.corpus_score(hypotheses, [references], n_bootstrap=1000)
        pair = [("baseline", baseline), ("system", hypotheses)]
        found = PairedTest(pair, {"metric": metric}, [references], "bs")()[1]
        p = next(results[1].p_value for key, results in found.items() if key != "System")
        print("resampled", name, score.name, f"{score._mean:.3f}", f"{score._ci:.3f}", f"{p:.6f}", sep="\t")


if __name__ == "__main__":
    main()
