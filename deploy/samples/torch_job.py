"""The training of a TorchJob: master and workers on CPUs, which go on from a checkpoint whoever of them is replaced.

The operator gives RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Rank 0 writes a checkpoint into the directory of the volume
`checkpoints`: every few steps, when a process is asked to end, and when the operator of an elastic job asks for one. A process
that lost a peer ends with 138, the exit code by which a program asks for its own replacement. Steps are those of torch_elastic.py:
the losses do not depend on the number of processes, but for rounding.
"""

import argparse
import json
import os
import signal
import ssl
import sys
import threading
import time
import urllib.request
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from torch_elastic import checkpoint_file, examples, save

# Exit codes that restartPolicy ExitCode answers with a new pod.
AGAIN = 138
ASKED_TO_END = 143

REQUESTED = "distributed.io/ckpt-requested-version"
COMPLETED = "distributed.io/ckpt-completed-version"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=120, help="examples per step, of all processes together")
    parser.add_argument("--step-ms", type=int, default=0, help="wait this long before each step: time to disturb it")
    parser.add_argument("--checkpoint-every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--timeout-seconds", type=int, default=300, help="how long to wait for the other processes")
    return parser.parse_args()


class Requests(threading.Thread):
    """Checkpoints that the operator asks for by an annotation of the TorchJob, and the annotation that answers.

    The training answers once it has written one. While rank 0 waits for its peers, the last one that was written is the answer.
    """

    def __init__(self):
        super().__init__(daemon=True)
        self.lock = threading.Lock()
        self.training = False
        self.version = None
        api = os.environ["KUBERNETES_API"]
        path = f"apis/train.distributed.io/v1alpha1/namespaces/{os.environ['JOB_NAMESPACE']}/torchjobs/{os.environ['JOB_NAME']}"
        self.url = f"{api}/{path}"
        authority = ACCOUNT / "ca.crt"
        self.tls = ssl.create_default_context(cafile=authority if authority.exists() else None)

    def call(self, method="GET", patch=None):
        token = ACCOUNT / "token"
        headers = {"Content-Type": "application/merge-patch+json"}
        if token.exists():
            headers["Authorization"] = f"Bearer {token.read_text()}"
        data = json.dumps(patch).encode() if patch else None
        request = urllib.request.Request(self.url, data=data, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=10, context=self.tls) as answer:
            return json.load(answer)

    def run(self):
        while True:
            try:
                self.look()
            except (OSError, ValueError) as error:
                print(f"no answer about the job: {error}", flush=True)
            time.sleep(0.5)

    def look(self):
        annotations = self.call()["metadata"].get("annotations", {})
        requested = json.loads(annotations.get(REQUESTED, "{}"))
        completed = json.loads(annotations.get(COMPLETED, "{}"))
        version = requested.get("version")
        if requested.get("status") != "InProgress" or completed.get("version") == version:
            return
        with self.lock:
            if self.training:
                self.version = version
            else:
                self.answer(version, saved().get("step", 0))

    def begin(self):
        """The training itself answers from now on."""
        with self.lock:
            self.training = True

    def answer(self, version, step):
        """Says that the checkpoint of a step is written."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        completed = {"version": version, "status": "Succeeded", "context": f"step {step}", "timestamp": now}
        try:
            self.call("PATCH", {"metadata": {"annotations": {COMPLETED: json.dumps(completed)}}})
        except OSError as error:
            # The request stands, and is met again.
            print(f"checkpoint {version} could not be answered: {error}", flush=True)
        else:
            print(f"checkpoint {version} is written: step {step}", flush=True)

    def take(self):
        """The request that the training is to answer, if there is one."""
        with self.lock:
            version, self.version = self.version, None
        return version


def saved():
    """The last checkpoint; empty before the first one."""
    path = checkpoint_file()
    return torch.load(path) if path.exists() else {}


def train(options, requests):
    """Returns the exit code."""
    asked_to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_end.set())
    dist.init_process_group("gloo", timeout=timedelta(seconds=options.timeout_seconds))
    rank, size = dist.get_rank(), dist.get_world_size()

    network = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.03)
    done = 0
    # Rank 0 says where to go on: only it has the volume.
    start = [saved() if rank == 0 else None]
    dist.broadcast_object_list(start, src=0)
    if start[0]:
        network.load_state_dict(start[0]["network"])
        optimizer.load_state_dict(start[0]["optimizer"])
        done = start[0]["step"]
    print(f"rank {rank} of {size}, process {os.getpid()}: going on after step {done}", flush=True)
    if requests:
        requests.begin()

    model = DistributedDataParallel(network)
    for step in range(done + 1, options.steps + 1):
        time.sleep(options.step_ms / 1000)
        points, labels = examples(options.seed, step, options.batch)
        optimizer.zero_grad()
        # Shares of equal size: the mean of their means is that of the batch.
        share = slice(rank, options.batch - options.batch % size, size)
        loss = nn.functional.binary_cross_entropy_with_logits(model(points[share]), labels[share])
        loss.backward()
        optimizer.step()
        ends = asked_to_end.is_set()
        common = torch.tensor([loss.item() / size, float(ends)])
        dist.all_reduce(common)
        mean, any_ends = common[0].item(), common[1].item() > 0
        if rank == 0:
            print(f"step {step} of {options.steps}: loss {mean:.4f}, {size} workers", flush=True)
            asked = requests.take() if requests else None
            if any_ends or asked is not None or step % options.checkpoint_every == 0:
                state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                save(checkpoint_file(), state)
            if asked is not None:
                requests.answer(asked, step)
        if any_ends:
            # Nobody leaves before the checkpoint is written.
            dist.barrier()
            print(f"rank {rank}: a process is asked to end after step {step}", flush=True)
            return ASKED_TO_END if ends else AGAIN
    if rank == 0:
        print(f"done after {options.steps} steps", flush=True)
    dist.barrier()
    return 0


def main():
    options = arguments()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    requests = None
    if os.environ["RANK"] == "0" and "KUBERNETES_API" in os.environ:
        requests = Requests()
        requests.start()
    try:
        code = train(options, requests)
    except RuntimeError as error:
        print(f"rank {os.environ['RANK']} lost a peer: {str(error).splitlines()[0]}", flush=True)
        code = AGAIN
    # Taking gloo down in order can wait for itself for ever: its threads let go of tensors, which takes the interpreter's lock,
    # while the interpreter holds it and waits for them.
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
