#!/usr/bin/env bash
# The page of `heddle inspect --html`: one file that needs no others, for runs, checkpoints and datasets; hostile text; mistakes.
set -euo pipefail
if ! command -v python3 > /dev/null; then
  echo "NOT CHECKED: the page's data, because python3 is not here (apt-get install python3)"
  exit 77
fi
source "$HEDDLE_SOURCE/tests/integration/inspected_run"

page() { # page FILE ARGUMENTS...
  local file=$1
  shift
  "$HEDDLE" inspect "$@" --html "$file" > log 2>&1 || fail "inspect $*"
}
# data FILE EXPRESSION: of the page's data, by Python.
data() {
  python3 - "$1" "$2" << 'PYTHON'
import json, re, sys
text = open(sys.argv[1], encoding="utf-8").read()
page = json.loads(re.search(r'<script type="application/json" id="heddle-data">(.*?)</script>', text, re.S).group(1))
sys.exit(0 if eval(sys.argv[2]) else 1)
PYTHON
}

page run.html run third --source "$hostile" --word "$hostile" --pairs pairs.tsv --compare other
grep -qE '(src|href)="?(https?:|//|[a-z]+\.)' run.html && fail "the page names another file"
[ "$(grep -c '<script' run.html)" = 2 ] || fail "the page has other scripts than its own"
grep -qF '<img' run.html && fail "text became markup"
data run.html '[run["name"] for run in page["runs"]] == ["run", "third", "other"] and len(page["model"]["sentences"]) == 3' || fail "runs and sentences"
data run.html 'page["runs"][0]["metrics"]["series"]["valid_loss"]["steps"] == [10.0, 20.0, 30.0]' || fail "the curve of the validation loss"
data run.html '["optimizer.learning_rate", "0.01", "0.02", "0.003"] in page["differences"]' || fail "differences"
data run.html '["train.steps", "30", "15", "30"] in page["differences"]' || fail "a key in which only one run differs"
data run.html '[(each["step"], len(each["rows"])) for each in page["runs"][0]["metrics"]["samples"]] == [(10, 8), (20, 8), (30, 8)]' || fail "samples"
data run.html '"translations" not in page' || fail "the newest samples are computed again"
data run.html 'len(page["runs"][0]["norms"]) > 20 and all("update" in each for each in page["runs"][0]["norms"])' || fail "norms"
data run.html '[each["path"] for each in page["model"]["sentences"][0]["attention"]] == ["encoder.layers.0.self_attention",
  "encoder.layers.1.self_attention", "decoder.layers.0.self_attention", "decoder.layers.0.cross_attention"]' || fail "sublayers"
data run.html 'page["runs"][0]["schedule"]["step"] == "step 2" and any("other/trace.json" in note for note in page["notes"])' || fail "it does not say how to get a trace"

data run.html '(lambda facts: {"best checkpoint", "last checkpoint"} <= set(facts) and facts["last checkpoint"].startswith("step 30, validation loss ") and
  "(this one)" in facts["best checkpoint"])(dict(page["runs"][0]["facts"]))' || fail "best and last checkpoint"

# Without sentences some of the validation data are taken; without data the page says so.
page short.html run/checkpoints/step-00000020
data short.html '"translations" not in page' || fail "the samples of the checkpoint's validation are computed again"
cp -r run/checkpoints/step-00000020 alone
page alone.html alone
data alone.html 'len(page["translations"]) == 8 and all(len(row) == 3 for row in page["translations"])' || fail "translations of a checkpoint without its run"
data short.html 'len(page["model"]["sentences"]) == 2 and page["runs"][0]["facts"][0] == ["step", "20"]' || fail "a checkpoint"
mv data gone
page nothing.html run
data nothing.html '"model" not in page and any("--source" in note for note in page["notes"])' || fail "a run without data"
mv gone data
page data.html data
data data.html 'len(page["datasets"]) == 2 and page["datasets"][0]["sides"][1]["histogram"]' || fail "datasets"

# A run of 10,000 steps, each with a line.
mkdir long
python3 -c '
import json, math
for step in range(1, 10001):
    print(json.dumps({"step": step, "train_loss": 8 * step ** -0.2 + math.sin(step) / 9 + (100 if step == 4711 else 0), "learning_rate": 1 / step,
                      "gradient_norm": 1 + math.cos(step), "tokens": 1, "tokens_per_second": 9e3 + step % 77, "seconds": step}))' > long/metrics.jsonl
# Then it diverges; the first such line is of an earlier version.
printf '{"step":10001,"valid_loss":Infinity}\n{"step":10002,"train_loss":2,"valid_loss":null}\n' >> long/metrics.jsonl
page long.html long
data long.html 'max(page["runs"][0]["metrics"]["series"]["train_loss"]["values"]) > 100' || fail "a peak is lost"
data long.html '(lambda m: m["unreadable"] == 0 and m["series"]["valid_loss"]["not_finite"] == [[10001, 10002]] and
  m["not_finite"] == ["valid_loss is not finite from step 10,001 on"])(page["runs"][0]["metrics"])' || fail "a divergence is lost"
[ "$(stat -c %s long.html)" -lt 400000 ] || fail "the page of a long run has $(stat -c %s long.html) bytes"

# A decoder of a text: the pack has the sequences that the lines are joined to.
"$HEDDLE" prepare --text text/train.en --valid-text text/valid.en --vocab-size 90 --out lines > log 2>&1 || fail "prepare --text"
"$HEDDLE" train run.toml --set 'model.stacks=["decoder"]' --set run.directory=decoder --set data.train=lines/train.h5 --set data.valid=lines/valid.h5 \
  --set model.max_length=40 --set model.decoder.self_attention.window=5 --set model.positions=alibi --set train.steps=2 > log 2>&1 || fail "train a decoder"
page lines.html lines
data lines.html '[side["name"] for each in page["datasets"] for side in each["sides"]] == 2 * ["line"]' || fail "lines"
head -n 2 pairs.tsv | cut -f 1 > alone.txt
page decoder.html decoder --pairs alone.txt
data decoder.html 'page["pack"][0]["name"] == "lines, joined to at most 40 tokens"' || fail "the pack's name"
data decoder.html 'all(20 < length <= 40 for length in page["pack"][0]["lengths"][:-1])' || fail "lines are not joined"
data decoder.html '[mask["mask"] for mask in page["model"]["masks"]] == ["window(5, 0)"]' || fail "the name of a window"
data decoder.html '[(bias["first_column"], bias["matrix"]["columns"]) for bias in page["model"]["positions"]] == [(-39, 40)]' || fail "a bias of hidden keys"

# Denoising: the pack has text as the model reads it, with masks in the sources.
"$HEDDLE" train run.toml --set train.task=denoising --set train.noise=infilling --set run.directory=denoising --set model.max_length=40 \
  --set data.train=lines/train.h5 --set data.valid=lines/valid.h5 --set train.steps=2 > log 2>&1 || fail "train for denoising"
page denoising.html denoising --pairs alone.txt
data denoising.html '[side["name"] for side in page["pack"]] == [f"{side} of lines, joined to at most 40 tokens" for side in ("source", "target")]' ||
  fail "the sides of denoising"
data denoising.html 'len(page["pack"][0]["texts"]) == 3 and all("<mask>" in text for text in page["pack"][0]["texts"])' || fail "sources without masks"
data denoising.html 'not any("<mask>" in text for text in page["pack"][1]["texts"])' || fail "targets with masks"
data denoising.html 'any(note.startswith("masks in the sentences") for note in page["notes"])' || fail "sentences without masks are not named"

expect() { # expect CODE PATTERN ARGUMENTS...
  local code=$1 pattern=$2 found=0
  shift 2
  "$HEDDLE" inspect "$@" > log 2>&1 || found=$?
  [ "$found" = "$code" ] || fail "exit code $found instead of $code: $*"
  grep -qe "$pattern" log || fail "no word of '$pattern': $*"
}
expect 64 'add --html PAGE' run --source x
expect 64 'a second PATH is for a page; add --html PAGE' run other
expect 64 'needs --source' run --target x --html x.html
expect 65 'nor a metrics.jsonl' text --html x.html
expect 64 '--beam is 0; expected at least 1' run --beam 0 --html x.html
expect 64 '--html is "-"; expected the name of a file' run --html -
expect 1 'there is no directory missing$' run --html missing/x.html
expect 64 '--source, --compare are for a run or a checkpoint, but data/train.h5 has datasets' data/train.h5 --html x.html --compare run --source text
expect 65 'data: has datasets, not a run; runs are compared by their directories' run --compare data --html x.html
expect 65 'data/train.h5: is a file' run --compare data/train.h5 --html x.html
expect 65 'long: the run has no checkpoint yet; with --html PAGE its curves are drawn' long
grep -q 'long/metrics.jsonl: valid_loss is not finite from step 10,001 on$' log || fail "inspect hides a divergence"
expect 64 'is decoder-only or encoder-only and reads text without a translation' decoder --source one --target eins --html x.html
expect 64 'is decoder-only or encoder-only' decoder --pairs pairs.tsv --html x.html
expect 65 'has no sentences' run --pairs /dev/null --html x.html
expect 65 'nowhere: does not exist' run --compare nowhere --html x.html
[ ! -e x.html ] || fail "a page was written"
echo done
