"""Both ways between the engine and PyTorch, for networks of the zoo: a checkpoint of ours goes into a module by load_state_dict and gives
the same loss; what PyTorch saves (its counters of batches too) comes back by model.init and gives the same loss and weights.
Run by tests/e2e/cli_torch_test.c where torch is installed. usage: check_torch.py ENGINE FOLDER"""
import json
import struct
import subprocess
import sys

import numpy as np
import torch
from torch.nn import functional as F

import torch_models as models

DTYPES = {"F32": np.float32, "I64": np.int64}
NETWORKS = {
    "lenet": ("lenet", (1, 28, 28), models.Lenet),
    "vgg11": ("zoo: vgg11, width: 8, hidden: [32], dropout: 0", (3, 32, 32), lambda: models.Vgg11(8, [32], 10, 32)),
    "resnet20": ("zoo: resnet20, width: 8", (3, 32, 32), lambda: models.Resnet(models.Basic, [3, 3, 3], 8, 10, "cifar")),
    "vit": ("zoo: vit-tiny, depth: 2, width: 32, heads: 2, patch: 8", (3, 32, 32), lambda: models.Vit(32, 8, 2, 32, 2, 10)),
}


def read_safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        rest = f.read()
    return {name: torch.from_numpy(np.frombuffer(rest[slice(*t["data_offsets"])], dtype=DTYPES[t["dtype"]]).reshape(t["shape"]).copy())
            for name, t in header.items() if name != "__metadata__"}


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, t in tensors.items():
        part = t.numpy().tobytes()
        header[name] = {"dtype": "I64" if t.dtype == torch.int64 else "F32", "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def run(engine, folder, name, model, steps, rate):
    """One batch of all the data: the loss of the last step, and where the weights after it are."""
    data = f"{{set: npy, train: {folder}/x.npy, labels: {folder}/y.npy, val: {folder}/x.npy, val_labels: {folder}/y.npy, normalize: off}}"
    sets = [f"model={model}", f"data={data}", "batch=16", f"train={steps}st", f"optimizer={{name: sgd, lr: {rate}, momentum: 0}}", "mode=single",
            "devices=cpu:1", "threads=1", "eval=off", f"checkpoint={steps}st", "log.every=1st", f"log.dir={folder}/{name}"]
    done = subprocess.run([engine, "run", "--json", "--quiet"] + [w for s in sets for w in ("--set", s)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name}: {done.stderr}")
    with open(f"{folder}/{name}/metrics.jsonl", encoding="utf-8") as f:
        losses = [json.loads(line)["loss"] for line in f if '"loss":' in line and '"val' not in line]
    return losses[-1], f"{folder}/{name}/ckpt/step-{steps:09d}/model.safetensors"


def near(what, a, b):
    print(f"{what}: {a:.9g} and {b:.9g}")
    if not abs(a - b) <= 1e-5 * abs(b):
        sys.exit(f"{what}: {a} is not {b}")


def check(engine, folder, name):
    zoo, shape, make = NETWORKS[name]
    x = models.signs("x", 16 * int(np.prod(shape))).astype(np.float32).reshape((16,) + shape)
    y = np.arange(16) * 7 % 10
    np.save(f"{folder}/x.npy", x)
    np.save(f"{folder}/y.npy", y.astype(np.int64))
    model = f"{{{zoo}}}" if ":" in zoo else zoo
    beside = zoo if ":" in zoo else f"zoo: {zoo}"
    _, trained = run(engine, folder, f"{name}-trained", model, 3, 0.01)

    net = make()
    told = net.load_state_dict(read_safetensors(trained), strict=False)
    if told.unexpected_keys or any(not k.endswith("num_batches_tracked") for k in told.missing_keys):
        sys.exit(f"{name}: PyTorch misses {told.missing_keys} and does not know {told.unexpected_keys}")
    theirs = F.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y)).item()
    ours, _ = run(engine, folder, f"{name}-again", f"{{{beside}, init: {trained}}}", 1, 0)
    near(f"{name}: loss from our checkpoint", ours, theirs)

    net = models.fill(make())
    write_safetensors(f"{folder}/{name}.safetensors", net.state_dict())
    theirs = F.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y)).item()
    ours, after = run(engine, folder, f"{name}-theirs", f"{{{beside}, init: {folder}/{name}.safetensors}}", 1, 0)
    near(f"{name}: loss from PyTorch's weights", ours, theirs)
    for key, t in read_safetensors(after).items():
        if "running" not in key and not torch.equal(t, net.state_dict()[key]):
            sys.exit(f"{name}: {key} has changed on its way")


def main():
    torch.set_num_threads(1)
    for name in NETWORKS:
        check(sys.argv[1], sys.argv[2], name)


if __name__ == "__main__":
    main()
