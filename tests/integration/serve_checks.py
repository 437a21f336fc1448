"""The checks of serve.sh, in its directory: a model in run/ and lines in test.en."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.environ["HEDDLE_SOURCE"], "tests/support"))
from server_client import Server, parse, post, read_all, texts_of  # noqa: E402


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def heddle(*arguments, text=""):
    return subprocess.run([os.environ["HEDDLE"], *arguments], input=text, capture_output=True, text=True, check=False)


def check_translations(server, lines):
    direct = heddle("translate", "--checkpoint", "run", "--threads", "1", text="\n".join(lines) + "\n").stdout.splitlines()
    status, head, body = server.post({"texts": lines})
    served = texts_of(body)
    different = sum(a != b for a, b in zip(direct, served))
    check(status == 200 and len(served) == len(lines) and different <= len(lines) // 50, f"{different} of {len(lines)} lines differ: {head}")
    check(served[lines.index("")] == "", "the translation of an empty line")
    one = texts_of(server.post({"text": lines[0]})[2])
    check(one == direct[:1], f"one line: {one}, not {direct[:1]}")
    listed = heddle("translate", "--checkpoint", "run", "--n-best", "3", text=lines[0] + "\n").stdout.splitlines()
    best = json.loads(server.post({"text": lines[0], "n_best": 3, "scores": True})[2])["results"][0]["translations"]
    for line, translation in zip(listed, best, strict=True):
        _, text, score = line.split(" ||| ")
        check(text == translation["text"] and abs(float(score) - translation["score"]) < 1e-4, f"{line}: {translation}")
    aligned = heddle("translate", "--checkpoint", "run", "--threads", "1", "--align", "hard", "--align-words", text="\n".join(lines[:5]) + "\n")
    results = json.loads(server.post({"texts": lines[:5] + [""], "alignments": True})[2])["results"]
    for line, result in zip(aligned.stdout.splitlines() + [" ||| "], results, strict=True):
        pairs = " ".join(f"{source}-{target}" for source, target in result["translations"][0].get("alignment", []))
        check(pairs == line.partition(" ||| ")[2], f"{line}: {pairs}")
    check(json.loads(server.post({"text": "one hundred " * 40})[2])["results"][0]["truncated"]["kept"] == 39, "a long text")

    # Each line of a text is translated by itself; what belongs to a line is in "lines".
    text = f"{lines[0]}\r\n\n{lines[1]}\n"
    several, single = json.loads(server.post({"texts": [text, lines[2] + "\n"], "n_best": 2, "scores": True, "alignments": True})[2])["results"]
    check(several["translations"] == [{"text": f"{served[0]}\n\n{served[1]}"}], f"a text of three lines: {several}")
    check([len(line["translations"]) for line in several["lines"]] == [2, 1, 2] and len(single["translations"]) == 2, f"n-best lists of lines: {several}")
    check(all({"score", "alignment"} <= set(line["translations"][0]) for line in (several["lines"][0], several["lines"][2], single)), f"{several}")
    events = [event.split("\n") for event in server.post({"texts": [text, lines[2]], "stream": True})[2].decode().strip().split("\n\n")]
    events = [(name, json.loads(data.removeprefix("data: "))) for name, data in events]
    last = {(data["index"], data.get("line")): data["text"] for name, data in events if name == "event: growing"}
    check([last[0, line] for line in range(3)] == [served[0], "", served[1]] and (1, None) in last, f"lines as they grow: {last}")
    ends = {data["index"]: data["translations"][0]["text"] for name, data in events if name == "event: result"}
    check(ends == {0: several["translations"][0]["text"], 1: served[2]}, f"the stream ends with {ends}")

    stream = server.post({"texts": lines[:3], "stream": True})
    check("Content-Type: text/event-stream" in stream[1], stream[1])
    events = [event.split("\n") for event in stream[2].decode().strip().split("\n\n")]
    results = {}
    for name, data in events:
        if name == "event: result":
            result = json.loads(data.removeprefix("data: "))
            results[result["index"]] = result["translations"][0]["text"]
    check([results[index] for index in range(3)] == served[:3], f"the stream has {results}")
    check(sum(name == "event: growing" for name, _ in events) > 6 and events[-1] == ["event: done", "data: {}"], stream[2])


def check_shortlist(lines):
    """A shortlist and forbidden words are those of translate, and are in the digest."""
    check(heddle("lexicon", "--dataset", "data", "--output", "lex.gz").returncode == 0, "lexicon")
    with open("forbidden", "w", encoding="utf-8") as file:
        file.write("und\n")
    options = ["--shortlist", "lex.gz:4:2", "--forbid", "forbidden"]
    direct, plain = (heddle("translate", "--checkpoint", "run", "--threads", "1", *each, text="\n".join(lines) + "\n").stdout.splitlines()
                     for each in (options, []))
    with Server("--threads", "1", "--model", "plain=run", *options) as server:
        served = texts_of(server.post({"texts": lines})[2])
        different = sum(a != b for a, b in zip(direct, served, strict=True))
        check(direct != plain and different <= len(lines) // 50, f"{different} lines differ with a shortlist")
        check(texts_of(server.post({"texts": lines[:5], "model": "plain"})[2]) == plain[:5], "another model has the shortlist, too")
        models = json.loads(server.get("/v1/models")[2])["models"]
        check(models[0]["digest"] != models[1]["digest"], "the digest is that of the model alone")
        server.stop()


def check_requests(server):
    def status(request, answers=1, **options):
        answer = server.raw(request, **options).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        check(answer.count(b"HTTP/1.1 ") == answers, f"{request[:200]}: {answer}")
        return parse(answer)[0]

    close = "Connection: close\r\n"
    good = post({"text": "five"})
    check(status(post({"text": "five"}, close)) == 200, "a good request")
    check(status(good, half_close=True) == 200, "a client that sends nothing more is answered")
    check(status(good + post({"text": "six"}, close), answers=2) == 200, "two requests at once")
    chunked = good.partition(b"Content-Length")[0] + close.encode() + b"Transfer-Encoding: chunked\r\n\r\n"
    check(status(chunked + b"9\r\n{\"text\": \r\n7\r\n\"five\"}\r\n0\r\n\r\n") == 200, "chunks")
    expecting = server.raw(post({"text": "five"}, close + "Expect: 100-continue\r\n"))
    check(expecting.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200"), expecting)
    check(server.raw(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").endswith(b"\r\n\r\n"), "HEAD")

    for body in (b"", b"{", b"[" * 5000, b'{"text": "\xff"}', b'{"text": 1}', b'{"text": "a", "beem": 1}', b'{"text": "a", "model": "x"}',
                 b'{"text": "a", "adapter": "x"}', b'{"text": "a", "target_language": "xx"}'):
        check(status(post(body, close)) == 400, f"the body {body[:40]}")
    for path in ("/../etc/passwd", "/%2e%2e/etc/passwd", "//", "/page.js/../page.html", "/v1/translate/"):
        check(server.get(path)[0] == 404, path)
    check(server.get("/v1/translate")[0] == 405, "GET of translate")

    # Smuggling: one answer, and the connection ends, so that nothing after it is a request.
    base = good.partition(b"Content-Length")[0]
    body = b'{"text": "five"}'
    for fields in (b"Content-Length: 16\r\nTransfer-Encoding: chunked\r\n", b"Transfer-Encoding: chunked\r\nContent-Length: 16\r\n",
                   b"Content-Length: 16\r\nContent-Length: 1\r\n", b"Content-Length: 16\r\nContent-Length: 16\r\n",
                   b"Content-Length: 16, 16\r\nContent-Length: 16\r\n", b"Content-Length: 16, 16\r\n", b"Transfer-Encoding: gzip\r\n", b"Content-Length: +16\r\n"):
        check(status(base + fields + b"\r\n" + body + good) in (400, 501), fields)
    check(status(b"GET /health HTTP/1.1\r\nHost: evil.example\r\n" + close.encode() + b"\r\n") == 421, "another host")

    # Sizes.
    check(status(post(b'{"text": "' + b"a" * (1 << 20) + b'"}')) == 413, "a long body")
    check(status(chunked + b"fffff\r\n" + b"a" * 0xfffff + b"\r\nffff\r\n" + b"a" * 0xffff) == 413, "a long body in chunks")
    check(status(base + b"Content-Length: 99999999999\r\n\r\n") == 413, "a body that is only announced")
    check(status(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 10000 + b"\r\n\r\n") == 431, "a long header")
    check(status(post({"texts": ["a"] * 1025}, close)) == 413, "many texts")
    check(status(post({"text": "a" * 8193}, close)) == 413, "a long text")
    check(status(post({"text": "a", "beam_size": 17}, close)) == 400, "a wide beam")


def until(condition, what):
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(what)


def check_cancelled(server):
    """Texts of a client that went away are not computed, whether they wait or a worker has them."""
    def metric(name):
        return int(server.get("/metrics")[2].decode().partition(f"\nheddle_{name} ")[2].partition("\n")[0])

    worker, total = server.workers()[0], metric("texts_total")
    for version in (b"1.1", b"1.0"):
        os.kill(worker, signal.SIGSTOP)
        with server.connect() as gone:
            gone.sendall(post({"texts": ["five", "six"]}).replace(b" HTTP/1.1\r\n", b" HTTP/" + version + b"\r\n"))
            until(lambda: metric("texts_computing") == 1 and metric("texts_waiting") == 1, "texts of a client")
        until(lambda: metric("texts_waiting") == 0, f"a text waits for a client of HTTP/{version} that went away")
        os.kill(worker, signal.SIGCONT)
        until(lambda: metric("texts_computing") == 0, "a text is computed for a client that went away")
    check(metric("texts_total") == total, f"{metric('texts_total')} texts instead of {total}")


def check_limits():
    """A worker that is stopped makes requests wait; it takes one text at a time."""
    with Server("--threads", "1", "--queue", "3", "--batch-tokens", "1", "--client-timeout", "1", "--max-connections", "4") as server:
        worker = server.workers()[0]
        check(server.get("/health")[0] == 200, "health")
        os.kill(worker, signal.SIGSTOP)
        with server.connect() as first, server.connect() as second:
            first.sendall(post({"text": "five"}, "Connection: close\r\n"))
            until(lambda: b"heddle_texts_computing 1\n" in server.get("/metrics")[2], "a worker that computes")
            second.sendall(post({"texts": ["six", "seven", "eight"]}, "Connection: close\r\n"))
            until(lambda: b"heddle_texts_waiting 3\n" in server.get("/metrics")[2], "texts that wait")
            status, head, _ = server.post({"text": "nine"})
            check(status == 429 and "Retry-After: 1" in head, head)
            with server.connect() as slow, server.connect():
                check(parse(server.raw(b""))[0] in (0, 503), "a connection beyond the limit")
                began = time.monotonic()
                for _ in range(40):
                    try:
                        slow.sendall(b"G")
                    except (ConnectionResetError, BrokenPipeError):
                        break
                    time.sleep(0.1)
                check(0.5 < time.monotonic() - began < 3, "a slow client is not cut off")
            os.kill(worker, signal.SIGCONT)
            check(parse(read_all(first))[0] == 200 and parse(read_all(second))[0] == 200, "requests that waited")
        check_cancelled(server)
        metrics = server.get("/metrics")[2].decode()
        check('heddle_http_answers_total{path="/v1/translate",status="429"} 1\n' in metrics, metrics)
        server.stop()
    with Server("--threads", "1", "--timeout", "0.5") as server:
        os.kill(server.workers()[0], signal.SIGSTOP)
        check(server.post({"text": "five"})[0] == 504, "a worker that hangs")
        until(lambda: "is unresponsive; it is killed" in server.messages(), server.messages())
        until(lambda: server.post({"text": "five"})[0] == 200, "a new worker in place of one that hung")
        server.stop()


@contextlib.contextmanager
def computing(server):
    """A stopped worker with the text of a client."""
    worker = server.workers()[-1]
    os.kill(worker, signal.SIGSTOP)
    with server.connect() as client:
        client.sendall(post({"text": "five"}))
        until(lambda: b"heddle_texts_computing 1\n" in server.get("/metrics")[2], "a worker that computes")
        yield worker, client


def check_signals():
    with Server("--threads", "1") as server:
        with computing(server) as (worker, client):
            os.kill(worker, signal.SIGKILL)
            client.settimeout(10)
            check(client.recv(1 << 16).startswith(b"HTTP/1.1 500 "), "a request whose worker was killed")
        check(f"(process {worker}) was killed by signal 9; 1 texts that it had fail" in server.messages(), server.messages())
        until(lambda: server.post({"text": "five"})[0] == 200, "a new worker")
        with computing(server) as (worker, client), server.connect() as idle:
            server.process.send_signal(signal.SIGTERM)
            until(lambda: "SIGTERM" in server.messages(), "SIGTERM")
            try:
                server.connect()
                check(False, "a connection after SIGTERM")
            except ConnectionRefusedError:
                pass
            idle.sendall(post({"text": "six"}))
            check(parse(read_all(idle))[0] == 503, "a request after SIGTERM")
            os.kill(worker, signal.SIGCONT)
            status, head, body = parse(read_all(client))
            check(status == 200 and "Connection: close" in head and texts_of(body), "a request that ran at SIGTERM")
        check(server.process.wait(timeout=10) == 0, server.messages())
        until(lambda: not os.path.exists(f"/proc/{worker}"), "a worker without its server")


def check_stops():
    """Stopped and idle workers do not keep a server; a closed terminal, or one that does not read, ends no request."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        with Server("--threads", "2") as server:
            for worker in server.workers():
                os.kill(worker, signal.SIGSTOP)
            server.process.send_signal(number)
            check(server.process.wait(timeout=10) == 0, server.messages())
    with Server("--threads", "1", "--stop-timeout", "0.5") as server:
        with computing(server):
            server.stop(1)
    with Server("--threads", "1") as server:
        with computing(server) as (worker, client):
            server.process.send_signal(signal.SIGHUP)
            until(lambda: "SIGHUP: finishing 1 texts" in server.messages(), "SIGHUP")
            os.kill(worker, signal.SIGHUP)
            os.kill(worker, signal.SIGCONT)
            check(parse(read_all(client))[0] == 200, "a request that ran at SIGHUP")
        check(server.process.wait(timeout=10) == 0, server.messages())
    with Server("--threads", "1", before=["bash", "-c", 'exec "$@" 2> >(:)', "bash"]) as server:
        with computing(server) as (worker, client):
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            os.kill(worker, signal.SIGCONT)
            check(parse(read_all(client))[0] == 200, "a request that ran when nobody read messages any more")
        check(server.process.wait(timeout=10) == 0, "a server whose messages nobody reads")
    with Server("--threads", "1", before=["nohup"]) as server:
        server.process.send_signal(signal.SIGHUP)
        check(server.get("/health")[0] == 200, "nohup")
        server.stop()


def check_access():
    for arguments in (["--listen", "0.0.0.0"], ["--listen", "nowhere"], ["--port", "70000"], ["--token-file", "run.toml"], ["--model", "x"],
                      ["--token-file", "token", "--no-auth"], ["--queue", "0"]):
        found = heddle("serve", "--checkpoint", "run", *arguments)
        check(found.returncode == 64 and found.stderr.startswith("heddle: "), f"{arguments}: {found.returncode} {found.stderr}")
    check(heddle("serve", "--checkpoint", "data", "--port", "0").returncode == 65, "a directory without a model")
    with open("token", "w", encoding="ascii") as file:
        file.write("a token".replace(" ", "-") * 3)
    token = "Authorization: Bearer " + "a-token" * 3 + "\r\n"
    with Server("--token-file", "token", "--threads", "1", "--model", "second=run") as server:
        check(server.post({"text": "five"})[0] == 401 and server.get("/v1/models")[0] == 401, "no token")
        check(server.post({"text": "five"}, token.replace("a-", "b-"))[0] == 401, "a wrong token")
        check(server.post({"text": "five", "model": "second"}, token)[0] == 200, "the token")
        models = json.loads(server.get("/v1/models", token)[2])["models"]
        check([model["name"] for model in models] == ["default", "second"], models)
        check(server.get("/health")[0] == 200, "health without the token")
        found = heddle("serve", "--checkpoint", "run", "--port", str(server.port))
        check(found.returncode == 64 and "--port chooses another one" in found.stderr, f"a port in use: {found.stderr}")
        server.stop()


def main():
    with open("test.en", encoding="utf-8") as file:
        lines = file.read().splitlines() + [""]
    with Server("--threads", "2") as server:
        check_translations(server, lines)
        check_requests(server)
        check(len(server.workers()) == 2, "workers")
        server.stop()
        check("worker" not in server.messages(), server.messages())
    check_shortlist(lines)
    check_limits()
    check_signals()
    check_stops()
    check_access()
    print("translations, requests, limits, signals, access")


if __name__ == "__main__":
    main()
