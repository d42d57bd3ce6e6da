"""A small GPT-2 as transformers saves it (names behind "transformer."), tokens, and the loss on them. usage: save_gpt2.py FOLDER"""
import sys

import numpy as np
import torch
import transformers

folder, context = sys.argv[1], 16
torch.manual_seed(1)
config = transformers.GPT2Config(vocab_size=27, n_positions=context, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3,
                                 bos_token_id=0, eos_token_id=0)
model = transformers.GPT2LMHeadModel(config).eval()
model.save_pretrained(f"{folder}/gpt2")
tokens = np.random.default_rng(0).integers(0, 27, 8 * context + 1)
tokens.astype("<u2").tofile(f"{folder}/tokens.bin")
x = torch.from_numpy(tokens[:-1]).view(8, context)
y = torch.from_numpy(tokens[1:]).view(8, context)
with torch.no_grad():
    logits = model(x).logits
print(torch.nn.functional.cross_entropy(logits.double().view(-1, 27), y.reshape(-1)).item())
