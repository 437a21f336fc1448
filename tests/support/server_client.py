"""A server of `heddle serve` in a test, and clients of it that send what they like. Standard library only."""

import json
import os
import re
import signal
import socket
import subprocess


class Server:
    """`heddle serve` on a free port of the loopback. It is killed at the end of a `with`, unless it ended."""

    def __init__(self, *arguments, checkpoint="run", before=()):
        self.log = open("server.log", "w+b")
        command = [*before, os.environ["HEDDLE"], "serve", "--checkpoint", checkpoint, "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log)
        found = re.search(rb":(\d+)/\n$", self.process.stdout.readline())
        if not found:
            raise AssertionError(f"the server did not start: {self.messages()}")
        self.port = int(found.group(1))

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()

    def messages(self):
        self.log.flush()
        return open("server.log", encoding="utf-8").read()

    def workers(self):
        """The processes that translate."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as file:
            return [int(number) for number in file.read().split()]

    def resident(self):
        """The resident memory of the server and of each worker, in KiB, without pages that they share."""
        sizes = []
        for process in [self.process.pid, *self.workers()]:
            with open(f"/proc/{process}/smaps_rollup", encoding="ascii") as file:
                text = file.read()
            sizes.append(sum(int(size) for size in re.findall(r"Private_(?:Clean|Dirty): +(\d+)", text)))
        return sizes

    def stop(self, code=0):
        self.process.send_signal(signal.SIGTERM)
        found = self.process.wait(timeout=40)
        assert found == code, f"the server ended with {found}: {self.messages()}"

    def connect(self, timeout=30):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def raw(self, data, half_close=False):
        """Sends bytes on a connection of their own; all that comes back until the server closes it."""
        with self.connect() as connection:
            try:
                connection.sendall(data)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
            except (ConnectionResetError, BrokenPipeError):
                pass
            return read_all(connection)

    def get(self, path, fields=""):
        return parse(self.raw(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n".encode()))

    def post(self, body, fields=""):
        return parse(self.raw(post(body, "Connection: close\r\n" + fields)))


def read_all(connection):
    received = b""
    try:
        while data := connection.recv(1 << 16):
            received += data
    except ConnectionResetError:
        pass
    return received


def post(body, fields=""):
    """A request to translate; a body that is not bytes becomes JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n{fields}\r\n"
    return head.encode() + data


def parse(answer):
    """The status, the header's text and the body of an answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]) if head.startswith(b"HTTP/1.1 ") else 0, head.decode("latin-1"), body


def texts_of(body):
    return [result["translations"][0]["text"] for result in json.loads(body)["results"]]
