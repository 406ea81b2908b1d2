"""Workers that fit a line, each on its own data: worker 2 is killed on the first try, and all go on from their checkpoints.

    trainyard run -n 4 --max-restarts 3 -- python3 deploy/samples/resume.py

It needs Python alone. The loss after a restart is the one that an undisturbed run has at that step.
"""

import json
import os
import pathlib
import signal
import time

rank = int(os.environ["RANK"])
checkpoint = pathlib.Path(f"resume-{rank}.json")
is_resumed = checkpoint.exists()
state = json.loads(checkpoint.read_text()) if is_resumed else {"step": 0, "slope": 0.0}
points = [(x, (rank + 2) * x) for x in range(1, 6)]

while state["step"] < 6:
    errors = [state["slope"] * x - y for x, y in points]
    loss = sum(error * error for error in errors) / len(points)
    print(f"step {state['step']} loss {loss:.4f}", flush=True)
    gradient = sum(2 * error * x for error, (x, _) in zip(errors, points)) / len(points)
    state = {"step": state["step"] + 1, "slope": state["slope"] - 0.03 * gradient}
    # Written aside and renamed: a checkpoint is whole, or the one before it.
    aside = checkpoint.with_suffix(".new")
    aside.write_text(json.dumps(state))
    aside.rename(checkpoint)
    time.sleep(0.3)
    if rank == 2 and state["step"] == 3 and not is_resumed:
        os.kill(os.getpid(), signal.SIGKILL)

print(f"trained: slope {state['slope']:.3f}, rm resume-*.json forgets it", flush=True)
