"""Heddle's programs and files for the parts of the comparison."""
import json
import subprocess
import sys


def write(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False)


def run(*command, stdin=None):
    done = subprocess.run(command, input=stdin, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr.decode()}")
    return done.stdout


def token_ids(build_directory, directory, texts):
    """Heddle's ids of each text, and the text that they stand for."""
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    found = run(build_directory + "/bench/bench_token_ids", directory, stdin=lines.encode())
    return [json.loads(line) for line in found.decode().split("\n")[:-1]]


def model_logits(build_directory, run_directory, pairs, *options):
    """The output of bench_model_logits for pairs of ids: logits, or with options greedy outputs."""
    lines = "".join(f"{' '.join(map(str, source))} | {' '.join(map(str, target))}\n" for source, target in pairs)
    return run(build_directory + "/bench/bench_model_logits", run_directory, *options, stdin=lines.encode())


def greedy_ids(build_directory, run_directory, pairs, tokens):
    printed = model_logits(build_directory, run_directory, pairs, str(tokens)).decode()
    return [list(map(int, line.split())) for line in printed.splitlines()]
