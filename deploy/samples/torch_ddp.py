"""DistributedDataParallel on CPUs, exact to the bit across restarts.

Everything it knows of its job comes from the environment of an AITrainingJob:

    TRAINER_HOSTS                     host:port of every worker, in rank order; the first is the meeting point
    TRAININGJOB_REPLICA_INDEX         which of them this is
    TRAININGJOB_REPLICA_RESTARTCOUNT  how often the workers were restarted

Rank 0 writes a checkpoint after every step, into the directory of the volume `checkpoints`. The data of a step depend on
nothing but the seed, the step and the rank, so a run that goes on from a checkpoint computes what it would have computed.
The last line is a digest of the weights: with and without a failure it is the same.
"""

import argparse
import hashlib
import os
import signal
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
    parser.add_argument("--batch", type=int, default=64, help="examples per worker and step")
    parser.add_argument("--fail-rank", type=int, help="the rank that kills itself, if the job was never restarted")
    parser.add_argument("--fail-step", type=int, default=50, help="the step, from 1, in which it does")
    parser.add_argument("--step-ms", type=int, default=0, help="wait this long before each step: time to disturb it")
    parser.add_argument("--timeout-seconds", type=int, default=60, help="how long to wait for the other workers")
    return parser.parse_args()


def join(timeout):
    """Meets the other workers; returns rank and number of workers."""
    hosts = os.environ["TRAINER_HOSTS"].split(",")
    rank = int(os.environ["TRAININGJOB_REPLICA_INDEX"])
    address, port = hosts[0].rsplit(":", 1)
    os.environ.update(MASTER_ADDR=address, MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(len(hosts)))
    dist.init_process_group("gloo", init_method="env://", timeout=timeout)
    return rank, len(hosts)


def checkpoint_file():
    directory = Path(os.environ.get("TRAINYARD_VOLUME_CHECKPOINTS", "/checkpoints"))
    directory.mkdir(parents=True, exist_ok=True)
    return directory / f"{os.environ.get('TRAININGJOB_NAME', 'job')}.pt"


def save(path, state):
    """Whole or not at all: whoever dies in the middle leaves the file before."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, path)


def examples(seed, step, rank, count):
    """Points of a plane, and whether they lie inside a circle."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step * 1_009 + rank)
    points = torch.rand(count, 2, generator=generator) * 2 - 1
    return points, (points.norm(dim=1) < 0.7).float().unsqueeze(1)


def digest(model):
    state = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        state.update(name.encode())
        state.update(tensor.contiguous().numpy().tobytes())
    return state.hexdigest()[:16]


def main():
    options = arguments()
    torch.manual_seed(options.seed)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    rank, size = join(timedelta(seconds=options.timeout_seconds))
    first_try = os.environ["TRAININGJOB_REPLICA_RESTARTCOUNT"] == "0"

    network = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.03)
    path, done, loss = checkpoint_file(), 0, None
    # Rank 0 says where to go on, so that all agree even if only it can read the file.
    saved = [torch.load(path) if rank == 0 and path.exists() else None]
    dist.broadcast_object_list(saved, src=0)
    if saved[0]:
        network.load_state_dict(saved[0]["network"])
        optimizer.load_state_dict(saved[0]["optimizer"])
        done, loss = saved[0]["step"], saved[0]["loss"]
    print(f"rank {rank} of {size}: going on after step {done}", flush=True)

    model = DistributedDataParallel(network)
    for step in range(done + 1, options.steps + 1):
        if first_try and rank == options.fail_rank and step == options.fail_step:
            print(f"rank {rank}: killing myself in step {step}, as told", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(options.step_ms / 1000)
        points, labels = examples(options.seed, step, rank, options.batch)
        optimizer.zero_grad()
        own_loss = nn.functional.binary_cross_entropy_with_logits(model(points), labels)
        own_loss.backward()
        optimizer.step()
        mean = own_loss.detach() / size
        dist.all_reduce(mean)
        loss = mean.item()
        if rank == 0:
            state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "loss": loss}
            save(path, state)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} of {options.steps}: loss {loss:.6f}", flush=True)
        dist.barrier()

    digests = [None] * size
    dist.all_gather_object(digests, digest(network))
    if len(set(digests)) != 1:
        sys.exit(f"rank {rank}: the workers' weights differ: {digests}")
    if rank == 0:
        print(f"done: loss {loss:.9f}, weights {digests[0]}", flush=True)
    dist.barrier()
    # Nothing is left to do. Taking gloo down in order can wait for itself for ever: its threads let go of tensors, which
    # takes the interpreter's lock, while the interpreter holds it and waits for them.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
