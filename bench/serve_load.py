"""Load a server on this machine with many clients, and check every answer.

    python bench/serve_load.py checkpoints/quickstart --clients 100 --seconds 60
    python bench/serve_load.py --url http://127.0.0.1:8000/ --clients 100 --seconds 60

Each client sends one request after the other over one connection; the texts are sentences of
different length, some of them two lines. Every answer is compared with what the same request
gets when it is alone. A run folder is served for the time of the test by `nmt serve`; its memory,
resident and at its peak, is read from /proc (Linux).
"""

import argparse
import asyncio
import collections
import json
import re
import signal
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path

TEXT = """
I like cats . Where is the nearest library ? He bought a new phone yesterday . We should go
home before it rains . She is my teacher . Do you want to drink a cup of tea ? The weather
was nice , so they walked to the park and talked about the old days .
"""

PATIENCE = 60  # seconds until an answer counts as missing


def make_texts(count):
    """Return different texts of 1 to 25 words, the same every time."""
    pool = TEXT.split()
    texts = []
    for number in range(count):
        length = 1 + number * 7 % 25
        start = number * 11 % len(pool)
        words = (pool * 2)[start : start + length]
        if number % 10 == 9:
            words.insert(length // 2, "\n")
        texts.append(f"{number}: {' '.join(words)}")
    return texts


class Connection:
    """One HTTP/1.1 connection that is kept open; just what this test needs."""

    def __init__(self, host, port):
        self._address = (host, port)
        self._host = f"{host}:{port}"
        self._streams = None

    async def translate(self, fields):
        """POST fields to /translate; return the status and the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address)
        reader, writer = self._streams
        body = json.dumps(fields).encode()
        head = (
            f"POST /translate HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {len(body)}\r\n"
            f"Content-Type: application/json\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status = int(head.split()[1])
        length = int(re.search(r"(?i)content-length: (\d+)", head)[1])
        return status, json.loads(await reader.readexactly(length))

    def close(self):
        """Close it; the next request opens it again."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def load(host, port, requests, clients, seconds):
    """Ask alone, then with all clients; return (seconds, status, is right) of these."""
    alone = []
    connection = Connection(host, port)
    for request in requests:
        status, answer = await connection.translate(request)
        if status != 200:
            sys.exit(f"a single request failed: {status} {answer}")
        alone.append(texts_of(answer))
    connection.close()

    records = []
    begun = time.monotonic()
    end = begun + seconds

    async def client(number):
        connection = Connection(host, port)
        turn = number * 17
        while time.monotonic() < end:
            index = turn % len(requests)
            turn += 1
            started = time.monotonic()
            try:
                async with asyncio.timeout(PATIENCE):
                    status, answer = await connection.translate(requests[index])
            except (OSError, EOFError) as error:
                status, answer = type(error).__name__, None
                connection.close()
            is_right = status != 200 or texts_of(answer) == alone[index]
            records.append((time.monotonic() - started, status, is_right))
            if status != 200:
                await asyncio.sleep(0.1)
        connection.close()

    await asyncio.gather(*map(client, range(clients)))
    return records, time.monotonic() - begun


def texts_of(answer):
    """Return what of an answer must not depend on other requests; scores may, in last digits."""
    return [
        (each["text"], *(other["text"] for other in each["alternatives"]))
        for each in answer["translations"]
    ]


def memory(pid):
    """Return the resident memory of a process and its peak, in MiB; None if it is not told."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8")
    except OSError:
        return None
    return tuple(
        int(re.search(rf"{name}:\s+(\d+)", status)[1]) // 1024 for name in ("VmRSS", "VmHWM")
    )


def start_server(run, options):
    """Start `nmt serve` on a free port; return the process and its address."""
    command = [sys.executable, "-m", "nmt", "serve", str(run), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8")
    announced = process.stdout.readline()
    if not announced:
        sys.exit(process.wait())
    return process, announced.split()[-1]


def report(records, seconds):
    """Print what the load gave."""
    counts = collections.Counter(status for _, status, _ in records)
    taken = sorted(took for took, status, _ in records if status == 200)
    wrong = sum(not is_right for *_, is_right in records)
    print(f"requests: {len(records)}; by status: {dict(counts)}")
    print(f"answers unlike the one alone: {wrong}")
    if taken:
        p50, p99 = (taken[int(share * (len(taken) - 1))] for share in (0.5, 0.99))
        print(f"throughput: {len(taken) / seconds:.1f} answers a second")
        print(f"latency: p50 {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms")
    return wrong == 0 and set(counts) <= {200}


def main():
    """Read the arguments, start a server if need be, load it, report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="?", type=Path, help="run folder or export to serve")
    parser.add_argument("--url", help="a server that is running already, on this machine")
    parser.add_argument("--engine", help="of the run: tensorflow, ctranslate2, ctranslate2-int8")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--texts", type=int, default=60, help="different requests")
    parser.add_argument("--pid", type=int, help="of the server at --url, for its memory")
    parser.add_argument("--no-warm-up", action="store_true")
    arguments = parser.parse_args()
    if (arguments.run is None) == (arguments.url is None):
        parser.error("give either a run folder or --url")
    process, url, pid = None, arguments.url, arguments.pid
    if arguments.run is not None:
        options = ["--engine", arguments.engine] if arguments.engine else []
        options += ["--no-warm-up"] if arguments.no_warm_up else []
        process, url = start_server(arguments.run, options)
        pid = process.pid
    address = urllib.parse.urlsplit(url)
    if address.hostname not in ("127.0.0.1", "localhost", "::1"):
        parser.error(f"--url must be of this machine; received {url}")
    requests = [
        {"text": text, "beam": arguments.beam, "nbest": arguments.beam}
        for text in make_texts(arguments.texts)
    ]
    try:
        before = memory(pid)
        records, seconds = asyncio.run(
            load(address.hostname, address.port, requests, arguments.clients, arguments.seconds)
        )
        print(f"clients: {arguments.clients}; beam: {arguments.beam}; {seconds:.1f} s")
        is_good = report(records, seconds)
        print(f"memory (resident, peak) in MiB: {before} at the start, {memory(pid)} at the end")
    finally:
        if process is not None:
            process.send_signal(signal.SIGTERM)
            print(f"the server stopped with {process.wait(60)}")
    sys.exit(not is_good)


if __name__ == "__main__":
    main()
