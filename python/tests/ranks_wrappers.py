"""A rank of test_torch.py: what docs/python.md says of scripts that choose the backend themselves. Its argument is the
package."""

import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn

import engine_dp.torch


def accelerate():
    dist.init_process_group("engine")
    from accelerate import Accelerator
    a = Accelerator(cpu=True)
    model = nn.Linear(4, 2)
    model, optimizer = a.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    a.backward(model(torch.ones(3, 4)).sum())
    optimizer.step()
    assert a.gather(torch.tensor([a.process_index])).tolist() == [0, 1]


class Fitted(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, x=None, labels=None):
        y = self.linear(x).squeeze(-1)
        return {"loss": (y - labels).pow(2).mean(), "logits": y}


def transformers():
    dist.init_process_group("engine")
    from transformers import Trainer, TrainingArguments
    data = [{"x": torch.randn(4), "labels": torch.tensor(1.0)} for _ in range(32)]
    with tempfile.TemporaryDirectory() as folder:
        how = TrainingArguments(output_dir=folder, use_cpu=True, max_steps=3, report_to=[], disable_tqdm=True,
                                save_strategy="no")
        assert how.world_size == 2
        Trainer(Fitted(), how, train_dataset=data).train()


def lightning():
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 1)

        def training_step(self, batch, _):
            return self.linear(batch).pow(2).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    trainer = lightning.Trainer(max_steps=3, accelerator="cpu", devices=2, logger=False, enable_checkpointing=False,
                                strategy=DDPStrategy(process_group_backend="engine"), enable_progress_bar=False)
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=4))


def main():
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()
    assert dist.get_backend() == "engine" and isinstance(dist.group.WORLD, engine_dp.torch.ProcessGroup)
    assert dist.group.WORLD.engine.statistics().calls > 3
    dist.destroy_process_group()


main()
