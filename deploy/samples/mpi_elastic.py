"""Elastic data-parallel training in the shape of Horovod's, without MPI: a launcher and workers that come and go.

Before each step the launcher asks the script of the MPI operator, `discover_hosts.sh`, for the hosts of the workers. The workers there compute
gradients of their shards of the batch over TCP; the launcher adds them and writes a checkpoint every few steps. A worker that does not
answer is left out, and the step is made again by the others. The batch of a step depends on nothing but the seed and the step, and shards
are added in their order, so the losses are to the bit those of a run with any number of workers. Needs nothing but Python.
"""

import argparse
import json
import math
import os
import random
import socket
import socketserver
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PORT = 7070
SHARDS, EXAMPLES, HIDDEN = 12, 10, 8
RATE = 0.5
# How long a worker may take to answer, in seconds.
TIMEOUT = 10


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("role", choices=["launcher", "worker", "alone"])
    parser.add_argument("--hosts", default="/etc/mpi/discover_hosts.sh", help="prints the hosts of the workers, one a line")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--step-ms", type=int, default=0, help="wait this long before each step: time to disturb it")
    parser.add_argument("--checkpoint", type=Path, help="the file to go on from")
    parser.add_argument("--checkpoint-every", type=int, default=10)
    return parser.parse_args()


def say(text):
    print(text, flush=True)


def first_weights(seed):
    """Weights of a network of two layers: for each hidden unit two inputs, a bias and its output; last the output's bias."""
    generator = random.Random(seed)
    return [generator.uniform(-1, 1) for _ in range(4 * HIDDEN + 1)]


def gradient(weights, seed, step, shard):
    """Sums of loss and gradient over a shard: points of a plane, and whether they lie inside a circle."""
    generator = random.Random((seed * 1_000_003 + step) * SHARDS + shard)
    loss, sums = 0.0, [0.0] * len(weights)
    for _ in range(EXAMPLES):
        x, y = generator.uniform(-1, 1), generator.uniform(-1, 1)
        inside = 1.0 if math.hypot(x, y) < 0.7 else 0.0
        units = [math.tanh(weights[4 * i] * x + weights[4 * i + 1] * y + weights[4 * i + 2]) for i in range(HIDDEN)]
        out = weights[-1] + sum(weights[4 * i + 3] * units[i] for i in range(HIDDEN))
        error = 1 / (1 + math.exp(-out)) - inside
        loss += math.log1p(math.exp(-out)) + (1 - inside) * out
        for i in range(HIDDEN):
            back = error * weights[4 * i + 3] * (1 - units[i] ** 2)
            sums[4 * i] += back * x
            sums[4 * i + 1] += back * y
            sums[4 * i + 2] += back
            sums[4 * i + 3] += error * units[i]
        sums[-1] += error
    return [loss, sums]


class Worker(socketserver.StreamRequestHandler):
    """A line asks for some shards of a step, and a line answers."""

    def handle(self):
        for line in self.rfile:
            asked = json.loads(line)
            done = [gradient(asked["weights"], asked["seed"], asked["step"], shard) for shard in asked["shards"]]
            self.wfile.write(json.dumps(done).encode() + b"\n")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def work():
    # On a process node every pod has a loopback address of its own, and the port is the same for all.
    with Server((os.environ.get("POD_IP", ""), PORT), Worker) as server:
        say(f"at {time.time():.3f}: serving")
        server.serve_forever()


class Workers:
    """The workers that answer now, each with its connection."""

    def __init__(self, script, fewest):
        self.script, self.fewest, self.known = script, fewest, {}
        self.pool = ThreadPoolExecutor(max_workers=64)

    def find(self):
        """Follows the script; returns once enough workers answer."""
        while True:
            hosts = subprocess.run([self.script], capture_output=True, text=True, check=False).stdout.split()
            for gone in set(self.known) - set(hosts):
                self.drop(gone)
            for host in hosts:
                if host not in self.known:
                    try:
                        connection = socket.create_connection((host, PORT), timeout=TIMEOUT)
                        self.known[host] = connection.makefile("rwb")
                    except OSError:
                        pass  # It does not serve yet, or any more.
            if len(self.known) >= self.fewest:
                return
            time.sleep(0.2)

    def drop(self, host):
        try:
            self.known.pop(host).close()
        except OSError:
            pass

    def ask(self, host, asked):
        try:
            stream = self.known[host]
            stream.write(json.dumps(asked).encode() + b"\n")
            stream.flush()
            return json.loads(stream.readline())
        except (OSError, ValueError):
            return None

    def gradients(self, weights, seed, step):
        """Loss and gradient of each shard, in their order, and by how many workers. None if a worker was lost."""
        hosts = sorted(self.known)
        shares = [list(range(n, SHARDS, len(hosts))) for n in range(len(hosts))]
        asked = [{"weights": weights, "seed": seed, "step": step, "shards": share} for share in shares]
        answers = list(self.pool.map(self.ask, hosts, asked))
        shards = {}
        for host, share, answer in zip(hosts, shares, answers):
            if answer is None:
                say(f"launcher: {host} does not answer in step {step}")
                self.drop(host)
            else:
                shards.update(zip(share, answer))
        return [shards[n] for n in range(SHARDS)] if len(shards) == SHARDS else None, len(hosts)


def load(path, seed):
    if path and path.exists():
        saved = json.loads(path.read_text())
        return saved["step"], saved["weights"]
    return 0, first_weights(seed)


def save(path, step, weights):
    """Whole or not at all: a launcher that is killed in the middle leaves the file before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps({"step": step, "weights": weights}))
    os.replace(unfinished, path)


def train(options, gradients):
    done, weights = load(options.checkpoint, options.seed)
    say(f"launcher: going on after step {done}")
    size = 0
    for step in range(done + 1, options.steps + 1):
        time.sleep(options.step_ms / 1000)
        shards, before = None, size
        while shards is None:
            shards, size = gradients(weights, options.seed, step)
        if size != before:
            say(f"at {time.time():.3f}: {size} workers from step {step}")
        loss = sum(shard[0] for shard in shards) / (SHARDS * EXAMPLES)
        slopes = [sum(each) / (SHARDS * EXAMPLES) for each in zip(*(shard[1] for shard in shards))]
        weights = [weight - RATE * slope for weight, slope in zip(weights, slopes)]
        say(f"step {step} of {options.steps}: loss {loss!r}, {size} workers")
        if options.checkpoint and step % options.checkpoint_every == 0:
            save(options.checkpoint, step, weights)
    say(f"at {time.time():.3f}: done after {options.steps} steps")


def main():
    options = arguments()
    if options.role == "worker":
        work()
    elif options.role == "alone":
        train(options, lambda *asked: ([gradient(*asked, shard) for shard in range(SHARDS)], 1))
    else:
        workers = Workers(options.hosts, int(os.environ.get("MIN_NUM_PROC", "1")))

        def gradients(*asked):
            workers.find()
            return workers.gradients(*asked)

        train(options, gradients)


if __name__ == "__main__":
    sys.exit(main())
