"""Hostile and many requests for serving.sh, in a directory with a model in run/ and lines in test.en."""

import json
import os
import random
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.environ["HEDDLE_SOURCE"], "tests/support"))
from server_client import Server, parse, post, texts_of  # noqa: E402

BIG = os.environ["HEDDLE_TORTURE"] == "big"
GROWTH = 4096  # KiB


def mutated(rng, request):
    """A good request with a few bytes that are changed, left out, doubled or put in."""
    data = bytearray(request)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at:at + rng.randint(1, 20)]
        elif kind == 2:
            data[at:at] = data[at:at + rng.randint(1, 200)]
        else:
            data[at:at] = rng.choice([b"\r\n", b"\0", b"\n", b" ", b":", b"\r\n\r\n", b"\xff", b"Content-Length: 0\r\n"])
        if not data:
            data = bytearray(b"\n")
    return bytes(data)


def hostile(rng, good):
    """The bytes of a hostile request."""
    base = good.partition(b"Content-Length")[0]
    length = rng.choice([b"0", b"1", b"16", b"99999999999999999999", b"-1", b"+5", b"0x5", b"5,5", b"5, 6", b""])
    return rng.choice([
        lambda: mutated(rng, good),
        lambda: rng.randbytes(rng.randint(1, 2000)),
        lambda: good[:rng.randrange(len(good))],
        lambda: base + b"Content-Length: " + length + b"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + good,
        lambda: base + b"Transfer-Encoding: chunked\r\n\r\n" + rng.choice([b"g", b"fffffffffffffffff", b"-1", b"5;x=" + b"y" * 9000, b""]) + b"\r\nhello\r\n",
        lambda: base + b"Content-Length: " + length + b"\r\nContent-Length: 16\r\n\r\n" + b'{"text": "five"}' + good,
        lambda: f"GET /{'../' * rng.randrange(9)}{rng.choice(['etc/passwd', '%00', '%2e%2e', 'page.js', 'v1/models'])} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
        lambda: b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * rng.randint(1000, 3000) + b"\r\n",
        lambda: b"GET /" + b"a" * rng.randint(8000, 70000) + b" HTTP/1.1\r\n\r\n",
        lambda: post(rng.randbytes(rng.randint(0, 3000))),
        lambda: post(b'{"text": "' + b"a" * rng.randint(8000, 1100000) + b'"}'),
        lambda: post(b"[" * rng.randint(1, 100000)),
        lambda: post({"texts": ["x"] * rng.randint(0, 2000), "beam_size": rng.randint(-1, 40), "n_best": rng.randint(-1, 40)}),
        lambda: post({"text": "".join(chr(rng.choice([rng.randrange(1, 0xd800), rng.randrange(0x20)])) for _ in range(rng.randint(0, 300))),
                      "max_length": rng.choice([0, 1, 3, 10**6]), "length_penalty": rng.random() * 3, "beam_size": rng.randint(1, 16),
                      "stream": rng.random() < 0.5}),
    ])()


def attack(server, rng, count):
    """Statuses of the answers to hostile requests; some clients stay connected without a word, some leave at once."""
    good = post({"text": "seven hundred and five", "beam_size": 2})
    expected = texts_of(server.post({"text": "seven hundred and five", "beam_size": 2})[2])
    statuses, open_clients = {}, []
    for number in range(count):
        data = hostile(rng, good)
        how = rng.random()
        if how < 0.1:  # says no more, or leaves
            client = server.connect()
            try:
                client.sendall(data[:rng.randrange(1, len(data) + 1)])
            except (ConnectionResetError, BrokenPipeError):
                pass
            open_clients.append(client)
            if len(open_clients) > 40:
                open_clients.pop(rng.randrange(40)).close()
        else:
            status = parse(server.raw(data, half_close=True))[0]
            statuses[status] = statuses.get(status, 0) + 1
        if number % 100 == 0:
            answer = server.post({"text": "seven hundred and five", "beam_size": 2})
            assert answer[0] == 200 and texts_of(answer[2]) == expected, f"a good request among hostile ones: {answer}"
    for client in open_clients:
        client.close()
    assert not {500, 502, 504} & set(statuses), statuses
    return statuses


def receive(client, received):
    """An answer's body, from a connection that stays open; `received` is what came before."""
    while True:
        head, end, rest = received.partition(b"\r\n\r\n")
        if end:
            length = int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0])
            if len(rest) >= length:
                assert head.startswith(b"HTTP/1.1 200 "), received
                return rest[:length], rest[length:]
        data = client.recv(1 << 16)
        assert data, "the server closed a connection"
        received += data


def request_many(server, lines, count):
    """Sends many requests on connections that each have several under way, and watches the memory."""
    clients = [server.connect() for _ in range(8)]
    for client in clients:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    rest = [b""] * len(clients)
    sizes = []
    group = 16 * len(clients)
    for done in range(0, count, group):
        for index, client in enumerate(clients):
            client.sendall(b"".join(post({"text": lines[(done + index + each) % len(lines)], "beam_size": 1}) for each in range(16)))
        for index, client in enumerate(clients):
            for _ in range(16):
                body, rest[index] = receive(client, rest[index])
                assert len(json.loads(body)["results"]) == 1, body
        if done // group % max(1, count // group // 10) == 0:
            sizes.append(server.resident())
    for client in clients:
        client.close()
    sizes.append(server.resident())
    return sizes


def main():
    rng = random.Random(7)
    hostile_count, many = (10_000, 100_000) if BIG else (400, 3_000)
    with open("test.en", encoding="utf-8") as file:
        lines = file.read().splitlines()
    with Server("--threads", "2", "--client-timeout", "2") as server:
        workers = server.workers()
        request_many(server, lines, 1000)
        before = server.resident()
        statuses = attack(server, rng, hostile_count)
        time.sleep(3)
        after = server.resident()
        began = time.monotonic()
        sizes = request_many(server, lines, many)
        seconds = time.monotonic() - began
        middle, end = sizes[len(sizes) // 3], sizes[-1]
        assert server.workers() == workers, f"a worker ended: {server.messages()}"
        assert after[0] < before[0] + 65536, f"hostile requests leave {after[0]} KiB, from {before[0]}"
        assert all(b < a + GROWTH for a, b in zip(middle, end)), f"private memory grows: {sizes}"
        server.stop()
    counts = ", ".join(f"{status or 'closed'}: {count}" for status, count in sorted(statuses.items()))
    print(f"figures: {hostile_count} hostile requests ({counts}), private memory of the server {before[0]} KiB before and {after[0]} KiB after; "
          f"{many} requests, {many / seconds:.0f} a second, private KiB of server and workers {middle} after a third, {end} at the end")


if __name__ == "__main__":
    main()
