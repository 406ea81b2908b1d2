"""Elastic training with torchrun: workers come and go, and the loss goes on where it was.

torchrun gives RANK and WORLD_SIZE, and starts this program again whenever their number changes. Rank 0 writes a checkpoint
after every step, into the directory of the volume `checkpoints`. A step's batch depends on nothing but the seed and the
step, and is divided among the workers there are, so the losses are those of a run with any number of workers, but for rounding.
"""

import argparse
import os
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=120, help="examples per step, of all workers together")
    parser.add_argument("--step-ms", type=int, default=0, help="wait this long before each step: time to disturb it")
    parser.add_argument("--step-ms-file", type=Path, help="a file with this number, read before each step")
    parser.add_argument("--timeout-seconds", type=int, default=60, help="how long to wait for the other workers")
    return parser.parse_args()


def checkpoint_file():
    directory = Path(os.environ.get("TRAINYARD_VOLUME_CHECKPOINTS", "/checkpoints"))
    directory.mkdir(parents=True, exist_ok=True)
    return directory / "elastic.pt"


def save(path, state):
    """Whole or not at all: a worker that dies in the middle leaves the file before."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, path)


def step_ms(options, before):
    """An edit of the file reaches a training that runs. While it is being written it may be empty."""
    text = options.step_ms_file.read_text().strip() if options.step_ms_file else ""
    return int(text) if text else before


def examples(seed, step, count):
    """Points of a plane, and whether they lie inside a circle."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    points = torch.rand(count, 2, generator=generator) * 2 - 1
    return points, (points.norm(dim=1) < 0.7).float().unsqueeze(1)


def main():
    options = arguments()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=options.timeout_seconds))
    rank, size = dist.get_rank(), dist.get_world_size()

    network = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.03)
    path, done = checkpoint_file(), 0
    # Rank 0 says where to go on, so that all agree even if only it can read the file.
    saved = [torch.load(path) if rank == 0 and path.exists() else None]
    dist.broadcast_object_list(saved, src=0)
    if saved[0]:
        network.load_state_dict(saved[0]["network"])
        optimizer.load_state_dict(saved[0]["optimizer"])
        done = saved[0]["step"]
    print(f"rank {rank} of {size}, agent {os.getppid()}: going on after step {done}", flush=True)

    model = DistributedDataParallel(network)
    pause = options.step_ms
    for step in range(done + 1, options.steps + 1):
        before, pause = pause, step_ms(options, pause)
        if pause != before:
            print(f"rank {rank}: {pause} ms before each step", flush=True)
        time.sleep(pause / 1000)
        points, labels = examples(options.seed, step, options.batch)
        optimizer.zero_grad()
        # Shares of equal size: the mean of their means is that of the batch.
        share = slice(rank, options.batch - options.batch % size, size)
        loss = nn.functional.binary_cross_entropy_with_logits(model(points[share]), labels[share])
        loss.backward()
        optimizer.step()
        mean = loss.detach() / size
        dist.all_reduce(mean)
        if rank == 0:
            save(path, {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
            print(f"step {step} of {options.steps}: loss {mean.item():.4f}, {size} workers", flush=True)
        dist.barrier()

    if rank == 0:
        print(f"done after {options.steps} steps", flush=True)
    dist.barrier()
    # Nothing is left to do. Taking gloo down in order can wait for itself for ever: its threads let go of tensors, which
    # takes the interpreter's lock, while the interpreter holds it and waits for them.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
