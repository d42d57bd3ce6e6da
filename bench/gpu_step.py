"""Training steps of PyTorch on a GPU, timed; bench/steps.py --gpu runs it.
usage: gpu_step.py gpt2|resnet50 BATCH STEPS VOCABULARY [compile] [DEVICE]
bf16 autocast, fused AdamW or SGD, channels last, cuDNN's search; data in the GPU's memory. Prints one JSON object: the median
and least step in ms, the peak of memory, the last loss."""
import json
import statistics
import sys
import time

import torch
from torch.nn import functional as F

from gpu_models import GptWork, ResnetWork


def main():
    name, batch, steps, vocabulary = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    device = "cpu" if "cpu" in sys.argv[5:] else "cuda"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    work = GptWork(batch, vocabulary) if name == "gpt2" else ResnetWork(batch)
    net = work.network().to(device)
    if name == "gpt2":
        x, y = torch.randint(0, min(vocabulary, 50257), (2, batch, work.context), device=device)
    else:
        net = net.to(memory_format=torch.channels_last)
        x = torch.randn(batch, 3, work.side, work.side, device=device).to(memory_format=torch.channels_last)
        y = torch.randint(0, work.classes, (batch,), device=device)
    optimizer = work.optimizer(net)
    run = torch.compile(net) if "compile" in sys.argv[5:] else net
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    warm, times = min(20, steps), []
    for _ in range(steps + warm):
        wait()
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = F.cross_entropy(run(x), y.flatten())
        loss.backward()
        optimizer.step()
        wait()
        times.append((time.perf_counter() - begin) * 1e3)
    memory = torch.cuda.max_memory_reserved() if device == "cuda" else 0
    print(json.dumps({"ms": statistics.median(times[warm:]), "least_ms": min(times[warm:]), "memory": memory, "loss": loss.item(),
                      "version": torch.__version__}))


if __name__ == "__main__":
    main()
